"""What a page shows of a document: indices of its defenses, blocks that stand side by side."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass
from guardmark.reports.document.blocks import FigureCell, FlowChart, Histogram, LineChart, Table
from guardmark.reports.document.wording import has_interval
from guardmark.reports.figures.svg import BASELINE, NEUTRAL, dot, element, series_class

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from markupsafe import Markup

    from guardmark.reports.document.blocks import Block, Document, Row

_STACKED: Final = 3
_MOST_COLUMNS: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """How the blocks of a document are drawn: alike in every chart.

    Attributes:
        series: Index of each defense under test.
        drawn: The same, baselines included.
        text_bytes: Most bytes of a sample's text, or None where texts are left out.
        ids: What a link can lead to.
    """

    series: Mapping[str, int]
    drawn: Mapping[str, int]
    text_bytes: int | None
    ids: frozenset[str] = frozenset()


def page_of(document: Document, *, text_bytes: int | None) -> Page:
    """Give every defense of a document its index."""
    series = series_of(document)
    baselines = {each.defense: BASELINE for each in document.verdicts if each.baseline}
    ids = {getattr(block, "id", "") for block in document.lead}
    for section in document.sections:
        if not section.empty:
            ids.add(section.id)
            ids.update(getattr(block, "id", "") for block in section.blocks)
    return Page(
        series=series,
        drawn={**baselines, **series},
        ids=frozenset(ids),
        text_bytes=text_bytes,
    )


def series_of(document: Document) -> dict[str, int]:
    """Return the index of each defense under test, the same in every chart of a page."""
    names = [each.defense for each in document.verdicts if not each.baseline]
    if not document.verdicts:  # a comparison: in the order of its marks
        for block in document.blocks:
            if isinstance(block, LineChart) and block.is_falling:
                names += [line.label for line in block.lines]
    return {name: index for index, name in enumerate(dict.fromkeys(names))}


def mark_of(series: Mapping[str, int], name: str) -> Markup:
    """Draw the mark that stands for a defense in every chart."""
    index = series.get(name, NEUTRAL)
    drawn = element("g", dot(index), class_=series_class(index), transform="translate(8 8)")
    return element("svg", drawn, width=16, height=16, class_="mark", aria_hidden="true")


def groups_of(blocks: Sequence[Block]) -> Iterator[tuple[str, Iterator[Block]]]:
    """Yield neighbouring blocks that are shown alike, and how: drawings, folds, or one by one."""
    return groupby(blocks, key=_group_kind)


def _group_kind(block: Block) -> str:
    if isinstance(block, LineChart | Histogram | FlowChart):
        return "drawings"
    if isinstance(block, Table) and block.collapsed:
        return "folds"
    return "one"


def is_wide(table: Table) -> bool:
    """Tell whether a table has so many intervals or columns that they go under their figures."""
    if len(table.columns) > _MOST_COLUMNS:
        return True
    return any(_interval_count(row) >= _STACKED for row in table.rows)


def _interval_count(row: Row) -> int:
    count = 0
    for cell in row.cells:
        if isinstance(cell, FigureCell) and has_interval(cell):
            count += 1
    return count
