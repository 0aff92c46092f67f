"""The blocks of a document laid out for a page: what is drawn, what stands side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeGuard

from guardmark.reports.document.blocks import (
    FigureCell,
    Histogram,
    IntervalChart,
    Line,
    LineChart,
    SampleBrowser,
    Table,
    Unit,
)
from guardmark.reports.figures.bars import describe_histogram, draw_histogram, histogram_height
from guardmark.reports.figures.interval import draw_mark, plot_intervals
from guardmark.reports.figures.lines import DASHES, HEIGHT, WIDTH, draw_lines
from guardmark.reports.figures.scale import scale_of
from guardmark.reports.figures.svg import (
    BASELINE,
    NEUTRAL,
    element,
    join,
    series_class,
    shape_path,
)
from guardmark.reports.render.html.samples import show_samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from guardmark.reports.document.blocks import Block, Cell, Document, Headline, Section
    from guardmark.reports.figures.interval import IntervalPlot
    from guardmark.reports.render.html.samples import ShownSamples

_STACKED: Final = 3
_BLOCKED: Final = 0
_WRONGLY: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOutDrawing:
    """A drawing of fixed proportions."""

    width: int
    height: int
    content: Markup
    legend: tuple[tuple[str, Markup], ...]
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePart:
    """One block, ready for the page."""

    kind: str
    block: Block
    plot: IntervalPlot | None = None
    legend: tuple[tuple[str, Markup], ...] = ()
    drawing: LaidOutDrawing | None = None
    samples: ShownSamples | None = None
    stacked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Neighbouring blocks that are shown alike."""

    kind: str
    parts: tuple[PagePart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOutSection:
    """A section, laid out."""

    section: Section
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOutVerdict:
    """A verdict with its drawing."""

    verdict: Headline
    blocked: Markup
    wrongly: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marks:
    """Indices of the defenses, the same in every chart of a page."""

    series: Mapping[str, int]
    drawn: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A document, laid out."""

    verdicts: tuple[LaidOutVerdict, ...]
    baselines: tuple[LaidOutVerdict, ...]
    sections: tuple[LaidOutSection, ...]
    texts: bool
    has_folds: bool


def lay_out(document: Document, *, text_bytes: int | None) -> Page:
    """Lay a document out for a page."""
    series = series_of(document)
    baselines = {each.defense: BASELINE for each in document.verdicts if each.baseline}
    marks = _Marks(series=series, drawn={**baselines, **series})
    verdicts = tuple(_verdict(each) for each in document.verdicts)
    sections = tuple(_section(each, marks, text_bytes) for each in document.sections)
    return Page(
        verdicts=tuple(each for each in verdicts if not each.verdict.baseline),
        baselines=tuple(each for each in verdicts if each.verdict.baseline),
        sections=sections,
        texts=text_bytes is not None,
        has_folds=any(group.kind == "folds" for section in sections for group in section.groups),
    )


def series_of(document: Document) -> dict[str, int]:
    """Return the index of each defense under test, the same in every chart of a page."""
    names = [each.defense for each in document.verdicts if not each.baseline]
    return {name: index for index, name in enumerate(dict.fromkeys(names))}


def is_measure(cell: Cell) -> TypeGuard[FigureCell]:
    """Tell a figure from words."""
    return isinstance(cell, FigureCell)


def _verdict(verdict: Headline) -> LaidOutVerdict:
    scale = scale_of(Unit.SHARE, ())
    ticks = [
        element("line", x1=f"{percent}%", x2=f"{percent}%", y2="100%")
        for percent in (0, 25, 50, 75, 100)
    ]
    ground = element("g", *ticks, class_="grid")
    return LaidOutVerdict(
        verdict=verdict,
        blocked=join([ground, draw_mark(verdict.blocked, scale, _BLOCKED)]),
        wrongly=join([ground, draw_mark(verdict.wrongly_blocked, scale, _WRONGLY)]),
    )


def _section(section: Section, marks: _Marks, text_bytes: int | None) -> LaidOutSection:
    groups: list[Group] = []
    for block in section.blocks:
        part, kind = _part(block, marks, text_bytes), _group_kind(block)
        if groups and kind == groups[-1].kind != "one":
            groups[-1] = Group(kind=kind, parts=(*groups[-1].parts, part))
        else:
            groups.append(Group(kind=kind, parts=(part,)))
    return LaidOutSection(section=section, groups=tuple(groups))


def _group_kind(block: Block) -> str:
    if isinstance(block, LineChart | Histogram):
        return "drawings"
    return "folds" if isinstance(block, Table) and block.collapsed else "one"


def _part(block: Block, marks: _Marks, text_bytes: int | None) -> PagePart:
    kind = type(block).__name__
    if isinstance(block, IntervalChart):
        plot = plot_intervals(block, marks.drawn)
        return PagePart(kind=kind, block=block, plot=plot, legend=_legend(plot.legend))
    if isinstance(block, LineChart):
        drawing = LaidOutDrawing(
            width=WIDTH,
            height=HEIGHT,
            content=draw_lines(block, marks.drawn),
            legend=_line_legend(block, marks.drawn),
            summary=block.summary,
        )
        return PagePart(kind=kind, block=block, drawing=drawing)
    if isinstance(block, Histogram):
        drawing = LaidOutDrawing(
            width=WIDTH,
            height=histogram_height(block),
            content=draw_histogram(block),
            legend=(),
            summary=describe_histogram(block),
        )
        return PagePart(kind=kind, block=block, drawing=drawing)
    if isinstance(block, SampleBrowser):
        return PagePart(
            kind=kind, block=block, samples=show_samples(block, marks.series, text_bytes)
        )
    return PagePart(kind=kind, block=block, stacked=isinstance(block, Table) and _is_wide(block))


def _is_wide(table: Table) -> bool:
    """Tell whether a table has so many intervals that they go under their figures."""
    first = table.rows[0].cells if table.rows else ()
    return sum(1 for cell in first if is_measure(cell) and cell.low is not None) >= _STACKED


def _legend(names: Sequence[tuple[str, int]]) -> tuple[tuple[str, Markup], ...]:
    return tuple(
        (name, _sample_mark(element("path", d=shape_path(index), class_="dot"), index))
        for name, index in names
    )


def _line_legend(chart: LineChart, drawn: Mapping[str, int]) -> tuple[tuple[str, Markup], ...]:
    legend = [
        (
            line.label,
            _sample_mark(_line_sample(line, place), drawn.get(line.label, NEUTRAL)),
        )
        for place, line in enumerate(chart.lines)
    ]
    if chart.diagonal:
        legend.append((chart.diagonal_name, _sample_mark(_stroke("chance"), NEUTRAL)))
    return tuple(legend)


def _line_sample(line: Line, place: int) -> Markup:
    if len(line.points) == 1:
        return element("path", d=shape_path(place), class_="dot")
    return _stroke(f"line d{place % DASHES}")


def _stroke(classes: str) -> Markup:
    return element("line", x1=-12, x2=12, class_=classes)


def _sample_mark(mark: Markup, index: int) -> Markup:
    return element("g", mark, class_=series_class(index), transform="translate(12 8)")
