"""Charts of a document as files of their own."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import needs
from guardmark.reports.document.blocks import FlowChart, Histogram, IntervalChart, LineChart
from guardmark.reports.document.wording import measure_text
from guardmark.reports.figures.bars import draw_histogram
from guardmark.reports.figures.flow import draw_flow
from guardmark.reports.figures.interval import STRIP, plot_intervals
from guardmark.reports.figures.lines import draw_lines
from guardmark.reports.figures.svg import Drawing, element, fit_for_files, join

if TYPE_CHECKING:
    from collections.abc import Mapping

    from markupsafe import Markup

    from guardmark.reports.figures.interval import IntervalPlot

Figure = IntervalChart | LineChart | Histogram | FlowChart  # a block that can be drawn

_HEAD: Final = 40
_LABELS, _STRIPS, _FIGURES, _GAP = 190, 400, 270, 20
_LEGEND: Final = 20
_LONGEST: Final = 27
_LETTER: Final = 8.2  # width of a letter of a title, on average


def figure_svg(figure: Figure, series: Mapping[str, int] | None = None) -> str:
    """Draw a chart as an SVG file that needs nothing outside itself."""
    if series is None:
        series = _series(figure)
    if isinstance(figure, IntervalChart):
        drawing = _strips(figure, plot_intervals(figure, series))
    elif isinstance(figure, LineChart):
        drawing = _with_legend(draw_lines(figure, series))
    elif isinstance(figure, FlowChart):
        drawing = draw_flow(figure)
    else:
        drawing = draw_histogram(figure)
    width = max(drawing.width, round(_LETTER * len(figure.title))) + 16
    height = drawing.height + _HEAD + 8
    content = [
        element("title", figure.title),
        element("desc", drawing.summary),
        element("style", _style()),
        element("rect", width="100%", height="100%", fill="#fff"),
        element("text", figure.title, x=0, y=18, class_="title"),
        element("g", drawing.content, transform=f"translate(0 {_HEAD - 8})"),
    ]
    return fit_for_files(
        element(
            "svg",
            *content,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"-8 -4 {width} {height}",
            width=width,
            height=height,
            role="img",
        )
    )


def pdf_of(drawing: str) -> bytes:
    """Turn an SVG file into a PDF file of one page that holds its fonts."""
    with needs("PDF needs typst", "pdf"):
        import typst
    # Nothing of the drawing is read as a program: it comes in as a value.
    page = b"#set page(width: auto, height: auto, margin: 0pt)\n#set document(date: none)\n"
    page += b'#image(bytes(sys.inputs.drawing), format: "svg")'
    pdf: bytes = typst.compile(page, format="pdf", sys_inputs={"drawing": drawing})
    return pdf


@cache
def _style() -> str:
    text = Path(__file__).with_name("figures.css").read_text(encoding="utf-8")
    return text.replace("\n", "")


def _series(figure: Figure) -> dict[str, int]:
    names = [line.label for line in getattr(figure, "lines", ())]
    names += [mark.series for mark in getattr(figure, "marks", ()) if mark.series]
    return {name: index for index, name in enumerate(dict.fromkeys(names))}


def _with_legend(drawing: Drawing) -> Drawing:
    parts, height = [drawing.content], drawing.height
    for label, sign in drawing.legend:
        words = element("text", label, x=32, y=12.5)
        parts.append(element("g", sign, words, transform=f"translate(58 {height})"))
        height += _LEGEND
    return replace(drawing, height=height, content=join(parts))


def _strips(chart: IntervalChart, plot: IntervalPlot) -> Drawing:
    """Draw the strips of a chart below each other, labels before and figures behind them."""
    parts = []
    rows = (*plot.strips, *plot.thin)
    for index, strip in enumerate(rows):
        mark, middle = strip.mark, index * STRIP + STRIP / 2 + 4.5
        label = mark.label
        if mark.series:
            label += f", {mark.series}"
        if len(label) > _LONGEST:
            label = f"{label[: _LONGEST - 3]}..."
        words = f"{measure_text(mark.measure)}  {mark.note}".rstrip()
        parts += [
            element("text", label, x=0, y=middle),
            _strip(strip.drawing, index),
            element("text", words, x=_LABELS + _STRIPS + _GAP, y=middle, class_="soft"),
        ]
    axis = element(
        "text",
        plot.scale.titled(chart.axis),
        x=_LABELS + _STRIPS / 2,
        y=(len(rows) + 1) * STRIP + 12,
        text_anchor="middle",
        class_="soft",
    )
    return Drawing(
        width=_LABELS + _STRIPS + _FIGURES,
        height=(len(rows) + 2) * STRIP,
        content=join([*parts, _strip(plot.axis, len(rows)), axis]),
        summary="",
    )


def _strip(drawing: Markup, index: int) -> Markup:
    return element(
        "svg", drawing, x=_LABELS, y=index * STRIP, width=_STRIPS, height=STRIP, overflow="visible"
    )
