"""The words of a report before it has a format: figures, tables, charts, lists of samples.

Every text in here may come from data or from a service. A renderer escapes all of it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guardmark.analysis.defense.bypasses import Flaw, SampleAnswer


class Unit(StrEnum):
    """What a figure counts in."""

    SHARE = "share"
    POINTS = "points"
    MILLISECONDS = "ms"
    COUNT = "count"
    NUMBER = "number"
    P_VALUE = "p"


class Tone(StrEnum):
    """How a reader should take a block."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"
    MUTED = "muted"


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureCell:
    """A figure as a typed cell; `wording.measure_text` puts it into words.

    Attributes:
        is_strong: Whether it is told apart from the others of its row.
    """

    value: float | None
    unit: Unit
    low: float | None = None
    high: float | None = None
    trials: int | None = None
    successes: int | None = None
    at_least: bool = False
    greyed: bool = False
    reason: str = ""
    is_strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCell:
    """A cell of plain words."""

    text: str
    code: bool = False
    tone: Tone = Tone.PLAIN


Cell = FigureCell | TextCell


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleEntry:
    """One listed sample.

    Attributes:
        story: What came of it, step by step: a word and a text.
    """

    sample_id: str
    is_attack: bool
    facets: tuple[tuple[str, str], ...]
    kinds: tuple[Flaw, ...]
    answers: tuple[SampleAnswer, ...]
    excerpt: str
    characters: int
    cut: bool
    sha256: str
    story: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCount:
    """How many samples of one kind there are, and how many are listed.

    Attributes:
        meaning: Which samples are counted, and of how many defenses one is enough.
    """

    kind: Flaw
    meaning: str
    total: int
    listed: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleBrowser:
    """Samples to read, worst first.

    Attributes:
        id: Anchor on the page.
        title: What heads it.
        entries: The listed samples.
        counts: How many samples of each kind there are.
    """

    id: str
    title: str
    entries: tuple[SampleEntry, ...]
    counts: tuple[SampleCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The answer for one defense, as it heads the report.

    Attributes:
        defense: Name of the defense, or of the arm of a pipeline.
        title: What heads it; empty for the name.
        key: What it is called in JSON; empty for the name.
        answer: Whether one can rely on it, in two or three words.
        reason: What the answer rests on, in a few words.
        blind_spots: Slices that are worse than the rest, the surest.
        quote: Words of the data, for pages that show texts.
        error: Balanced error, by which many of one answer are put in order.
    """

    defense: str
    sentence: str
    title: str = ""
    key: str = ""
    answer: str = ""
    tone: Tone = Tone.PLAIN
    reason: str = ""
    baseline: bool = False
    notes: tuple[str, ...] = ()
    blind_spots: tuple[str, ...] = ()
    quote: str = ""
    error: float | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What has to be said beside the rates."""
        return self.notes + self.blind_spots

    @property
    def verdict(self) -> str:
        """The answer and what it rests on."""
        if self.reason:
            return f"{self.answer}: {self.reason}"
        return self.answer

    @property
    def figures(self) -> str:
        """The sentence, as it goes on after the answer."""
        if self.answer:
            return f"{self.sentence[:1].upper()}{self.sentence[1:]}"
        return self.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """One or more sentences."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """A list of sentences.

    Attributes:
        evidence: Ids of what each line rests on.
        commands: What to type for each line; empty for nothing.
    """

    lines: tuple[str, ...]
    tone: Tone = Tone.PLAIN
    evidence: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    def command(self, at: int) -> str:
        """Return what to type for a line, or nothing."""
        if at < len(self.commands):
            return self.commands[at]
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Pairs of a label and its value."""

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
    """Head of a table's column.

    Attributes:
        is_derived: Follows from others: left out where there is no room for all.
    """

    title: str
    numeric: bool = False
    meaning: str = ""
    is_derived: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table; the first cell heads it."""

    cells: tuple[Cell, ...]
    greyed: bool = False
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of typed cells.

    Attributes:
        id: Anchor on the page, and name of its file.
        title: What heads it.
        columns: Heads of its columns.
        rows: Its lines.
        note: What has to be said below it.
        collapsed: Whether a page shows it on request only.
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
        tone: Of the note.
        limit: What the interval is held against.
    """

    label: str
    measure: FigureCell
    series: str = ""
    note: str = ""
    tone: Tone = Tone.PLAIN
    limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChart:
    """Dots with whiskers on one axis, first mark on top.

    Attributes:
        id: Anchor on the page, and name of its file.
        title: What heads it.
        axis: What the axis shows.
        marks: One figure each.
        unit: Unit of the axis.
        reference: A value to compare with, and its name.
    """

    id: str
    title: str
    axis: str
    marks: tuple[IntervalMark, ...]
    unit: Unit = Unit.SHARE
    reference: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart.

    Attributes:
        hollow: What a mark without filling is, beside the filled one of the same label.
    """

    label: str
    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float], ...] = ()
    reach: tuple[tuple[float, float], ...] = ()
    hollow: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Lines over two axes.

    Attributes:
        is_logarithmic: Along x.
        is_falling: The diagonal, from top left.
        limits: Within which a mark is good, along x and along y.
    """

    id: str
    title: str
    x_axis: str
    y_axis: str
    lines: tuple[Line, ...]
    x_unit: Unit = Unit.SHARE
    y_unit: Unit = Unit.SHARE
    is_logarithmic: bool = False
    diagonal: bool = False
    diagonal_name: str = "pure chance"
    is_falling: bool = False
    limits: tuple[float, float] | None = None
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts over bins of one quantity, one row of bars for each series.

    Attributes:
        id: Anchor on the page, and name of its file.
        title: What heads it.
        axis: What the axis shows.
        unit: Unit of the axis.
        edges: Ends of the bins, one more than there are bins.
        series: Name and counts of each row of bars.
        logarithmic: Whether the axis is logarithmic.
    """

    id: str
    title: str
    axis: str
    unit: Unit
    edges: tuple[float, ...]
    series: tuple[tuple[str, tuple[int, ...]], ...]
    logarithmic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStream:
    """One kind of samples on its way.

    Attributes:
        name: What they are.
        total: How many set out.
        reached: How many come to each stage, and to the end.
        leaving: What became of some at each stage, in words.
        ends: What came out at the end, in words.
    """

    name: str
    total: int
    reached: tuple[int, ...]
    leaving: tuple[tuple[str, ...], ...]
    ends: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowChart:
    """Two streams through the same stages, from which a part leaves at each.

    Attributes:
        id: Anchor on the page, and name of its file.
        title: What heads it.
        stages: Names of the stages, in their order.
        streams: Attacks and benign samples, stage by stage.
    """

    id: str
    title: str
    stages: tuple[str, ...]
    streams: tuple[FlowStream, FlowStream]


Block = (
    Paragraph
    | Bullets
    | Facts
    | Listing
    | Table
    | IntervalChart
    | LineChart
    | Histogram
    | FlowChart
    | SampleBrowser
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the report; a part without data says so in a muted paragraph.

    Attributes:
        folded: Closed at first where a page can fold.
    """

    id: str
    title: str
    blocks: tuple[Block, ...]
    empty: bool = False
    folded: bool = False


Part = Block | str | list[str] | tuple[str, ...] | None
"""What a section is made of: a text becomes a paragraph, several become a list."""


def present(*parts: Part) -> tuple[Block, ...]:
    """Make blocks of texts, and leave out what is not there and lists without a line."""
    blocks: list[Block] = []
    for part in parts:
        if not part:
            continue
        block = part
        if isinstance(block, str | list | tuple):
            block = _of_texts(block)
        if not isinstance(block, Bullets) or block.lines:
            blocks.append(block)
    return tuple(blocks)


def _of_texts(texts: str | Iterable[str], tone: Tone = Tone.PLAIN) -> Paragraph | Bullets:
    if isinstance(texts, str):
        return Paragraph(text=texts, tone=tone)
    return Bullets(lines=tuple(texts), tone=tone)


def warning(texts: str | Iterable[str]) -> Paragraph | Bullets:
    """Make a warning of a text, or one of each of several."""
    return _of_texts(texts, Tone.WARNING)


def muted(text: str) -> Paragraph:
    """Set a text back behind those around it."""
    return Paragraph(text=text, tone=Tone.MUTED)


def section(section_id: str, title: str, *parts: Part, otherwise: str = "") -> Section:
    """Put what there is under a title; where there is nothing, say so."""
    blocks = present(*parts)
    return Section(
        id=section_id, title=title, blocks=blocks or (muted(otherwise),), empty=not blocks
    )


MOST_CARDS = 2
"""Of so many defenses each has a card, also where a table holds their rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole report without a format.

    Attributes:
        answer: What a reader wants to know first, a sentence or two each.
        lead: Table and picture that stand beside the answer.
        is_brief: What it leaves out stands in a longer one.
    """

    title: str
    subtitle: str
    sections: tuple[Section, ...]
    caveats: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    verdicts: tuple[Headline, ...] = ()
    lead: tuple[Block, ...] = ()
    run: str = ""
    created_utc: str = ""
    version: str = ""
    confidence: float = 0.95
    is_brief: bool = False

    @property
    def is_tabled(self) -> bool:
        """Whether a table beside the answer holds the rates, so that verdicts need not."""
        return any(isinstance(block, Table) for block in self.lead)

    @property
    def cards(self) -> tuple[Headline, ...]:
        """The verdicts that get a card of their own: of one or two defenses, or of a system."""
        verdicts = tuple(each for each in self.verdicts if not each.baseline)
        if self.is_tabled and len(verdicts) > MOST_CARDS:
            return ()
        return verdicts

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What stands beside the answer, and what all sections hold, in order."""
        blocks = list(self.lead)
        for section in self.sections:
            blocks += section.blocks
        return tuple(blocks)
