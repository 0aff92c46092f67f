"""The words of a report before it has a format: figures, tables, charts, lists of samples.

Every text in here may come from data or from a service. A renderer escapes all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from guardmark.reports.measures import Cell, FigureCell, TextCell, Tone, Unit
from guardmark.reports.sample_blocks import (
    SampleBrowser,
    SampleCount,
    SampleEntry,
    SampleFinding,
    SampleKind,
)

__all__ = [
    "Block",
    "Bullets",
    "Cell",
    "Column",
    "Document",
    "Facts",
    "FigureCell",
    "Headline",
    "Histogram",
    "IntervalChart",
    "IntervalMark",
    "Line",
    "LineChart",
    "Listing",
    "Paragraph",
    "Row",
    "SampleBrowser",
    "SampleCount",
    "SampleEntry",
    "SampleFinding",
    "SampleKind",
    "Section",
    "Table",
    "TextCell",
    "Tone",
    "Unit",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The answer for one defense, as it heads the report."""

    defense: str
    sentence: str
    blocked: FigureCell
    wrongly_blocked: FigureCell
    malformed: int
    errors: int
    baseline: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """One or more sentences."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """A list of sentences."""

    lines: tuple[str, ...]
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Pairs of a word and what it stands at."""

    title: str
    pairs: tuple[tuple[str, TextCell], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Lines to copy as they stand."""

    id: str
    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Head of a table's column."""

    title: str
    numeric: bool = False
    meaning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table; the first cell heads it."""

    cells: tuple[Cell, ...]
    greyed: bool = False
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of typed cells."""

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    collapsed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalMark:
    """One dot with its whisker."""

    label: str
    measure: FigureCell
    series: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChart:
    """Dots with whiskers on one axis, first mark on top."""

    id: str
    title: str
    unit: Unit
    axis: str
    marks: tuple[IntervalMark, ...]
    reference: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart."""

    label: str
    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float], ...] = ()
    reach: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Lines over two axes."""

    id: str
    title: str
    x_axis: str
    y_axis: str
    lines: tuple[Line, ...]
    x_unit: Unit = Unit.SHARE
    y_unit: Unit = Unit.SHARE
    diagonal: bool = False
    diagonal_name: str = "pure chance"
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts over bins of one quantity, one row of bars for each series."""

    id: str
    title: str
    axis: str
    unit: Unit
    edges: tuple[float, ...]
    series: tuple[tuple[str, tuple[int, ...]], ...]
    logarithmic: bool = False


Block = (
    Paragraph
    | Bullets
    | Facts
    | Listing
    | Table
    | IntervalChart
    | LineChart
    | Histogram
    | SampleBrowser
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the report; a part without data says so in a muted paragraph."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole report without a format."""

    title: str
    subtitle: str
    run: str
    created_utc: str
    version: str
    confidence: float
    verdicts: tuple[Headline, ...]
    sections: tuple[Section, ...]
