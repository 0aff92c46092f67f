"""The words of a report before it has a format: figures, tables, charts, lists of samples.

Every text in here may come from data or from a service. A renderer escapes all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from guardmark.reports.measures import Cell, Measure, Tone, Unit, Words
from guardmark.reports.sample_blocks import (
    Finding,
    SampleBrowser,
    SampleCount,
    SampleEntry,
    SampleKind,
)

__all__ = [
    "Block",
    "Bullets",
    "Cell",
    "Column",
    "Document",
    "Facts",
    "Finding",
    "Histogram",
    "IntervalChart",
    "IntervalMark",
    "Line",
    "LineChart",
    "Listing",
    "Measure",
    "Paragraph",
    "Row",
    "SampleBrowser",
    "SampleCount",
    "SampleEntry",
    "SampleKind",
    "Section",
    "Table",
    "Tone",
    "Unit",
    "Verdict",
    "Words",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer for one defense, as it heads the report.

    Attributes:
        defense: Its name.
        sentence: The whole verdict in one line, without the name.
        blocked: Share of answered attacks that were blocked.
        wrongly_blocked: Share of answered benign samples that were blocked.
        malformed: Answers nobody could read.
        errors: Samples without an answer.
        baseline: Whether it only marks the floor or the ceiling (allow-all, block-all, coin).
        notes: Short remarks that belong beside the verdict.
    """

    defense: str
    sentence: str
    blocked: Measure
    wrongly_blocked: Measure
    malformed: int
    errors: int
    baseline: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """One or more sentences.

    Attributes:
        text: The sentences.
        tone: How to take them; `warning` is a caveat the reader must see.
    """

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """A list of sentences.

    Attributes:
        lines: One sentence or more each.
        tone: How to take them.
    """

    lines: tuple[str, ...]
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Pairs of a word and what it stands at.

    Attributes:
        title: What they describe.
        pairs: Label and value, in order.
    """

    title: str
    pairs: tuple[tuple[str, Words], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Lines to copy as they stand.

    Attributes:
        id: Unique in the document; letters, digits and hyphens.
        title: What they are.
        lines: Without line feeds.
    """

    id: str
    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Head of a table's column.

    Attributes:
        title: Short head.
        numeric: Whether its cells are figures (aligned right).
        meaning: The abbreviation spelled out, or empty.
    """

    title: str
    numeric: bool = False
    meaning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table; the first cell heads it.

    Attributes:
        cells: As many as the table has columns.
        greyed: Whether the data are too few to lean on the row.
        tone: How to take it.
    """

    cells: tuple[Cell, ...]
    greyed: bool = False
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of typed cells.

    Attributes:
        id: Unique in the document; letters, digits and hyphens.
        title: Its caption.
        columns: Heads.
        rows: Lines, in the order to show.
        note: What a reader must know beside it, or empty.
        collapsed: Whether a long report may fold it.
    """

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    collapsed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalMark:
    """One dot with its whisker.

    Attributes:
        label: What it belongs to (a defense, a category).
        measure: The figure; without a value the line stays empty and says why.
        series: Name of the series (a defense) when several share a label, or empty.
        note: Short words beside it, such as `n = 120`.
    """

    label: str
    measure: Measure
    series: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChart:
    """Dots with whiskers on one axis, first mark on top.

    Attributes:
        id: Unique in the document; letters, digits and hyphens.
        title: What is shown; the accessible name too.
        unit: Of the axis; `SHARE` runs from 0 to 1.
        axis: Words under the axis.
        marks: In the order to show; marks of one label stand together.
        reference: Value and label of a line across the chart, or None.
    """

    id: str
    title: str
    unit: Unit
    axis: str
    marks: tuple[IntervalMark, ...]
    reference: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart.

    Attributes:
        label: Its name in the legend.
        points: x and y, in order of x.
        band: Lower and upper y at each point, or empty without a band.
        reach: Lower and upper x at each point, or empty. A line of one point is drawn as a mark,
            with its band and its reach as whiskers.
    """

    label: str
    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float], ...] = ()
    reach: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Lines over two axes.

    Attributes:
        id: Unique in the document; letters, digits and hyphens.
        title: What is shown; the accessible name too.
        x_axis: Words under the x axis.
        y_axis: Words beside the y axis.
        lines: One or more.
        x_unit: `SHARE` runs from 0 to 1; others fit the data from 0.
        y_unit: As `x_unit`.
        diagonal: Whether to draw the line on which both axes agree.
        diagonal_name: What lies on it.
        summary: What the chart shows, in words, for who cannot see it.
    """

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
    """Counts over bins of one quantity, one row of bars for each series.

    Attributes:
        id: Unique in the document; letters, digits and hyphens.
        title: What is shown; the accessible name too.
        axis: Words under the axis.
        unit: Of the axis.
        edges: One more than there are bins, rising.
        series: Name and counts.
        logarithmic: Whether the edges rise by a factor, so bins look equally wide on a
            logarithmic axis.
    """

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
    """One part of the report; a part without data says so in a muted paragraph.

    Attributes:
        id: Unique in the document; letters, digits and hyphens.
        title: Its heading.
        blocks: In order.
        empty: Whether there is no data for it.
    """

    id: str
    title: str
    blocks: tuple[Block, ...]
    empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole report without a format.

    Attributes:
        title: Its title.
        subtitle: Data, date and evaluator in a line.
        run: Name of the run.
        created_utc: Start of the run, from its manifest.
        version: guardmark's version that made the run.
        confidence: Nominal coverage of the intervals, in (0, 1).
        verdicts: One for each defense, baselines last.
        sections: In the order of the report.
    """

    title: str
    subtitle: str
    run: str
    created_utc: str
    version: str
    confidence: float
    verdicts: tuple[Verdict, ...]
    sections: tuple[Section, ...]
