"""A document for a terminal."""

from __future__ import annotations

import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass
from guardmark.reports.document.blocks import (
    Bullets,
    Facts,
    LineChart,
    Listing,
    Paragraph,
    Table,
    Tone,
)
from guardmark.reports.document.cells import without_columns
from guardmark.reports.document.safe_text import plain_line
from guardmark.reports.document.wording import cell_text, count_text
from guardmark.reports.render.terminal_plane import PLANE_WIDTH, plane_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.reports.document.blocks import Block, Document, Headline, Section

_NARROWEST, _NAMED = 40, 5
_REMARKED = 3  # of many defenses, those with remarks
_MARGIN: Final = "  "
_GAP: Final = 4  # blanks between a table and the picture beside it
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def render_terminal(document: Document, *, width: int = 100, colour: bool = False) -> str:
    """Render a document, all set in: no line begins with what data say.

    Of its charts the picture beside the table of all is drawn, where there is room.
    """
    space = max(_NARROWEST, width) - len(_MARGIN)
    lines = []
    if document.subtitle:
        lines.extend(_wrapped(plain_line(document.subtitle), space, rest="  "))
    lines.append("")
    for caveat in document.caveats:
        lines.extend((*_wrapped(plain_line(caveat), space, first="Note: ", rest="  "), ""))
    lines.extend(_lead(document, space, colour=colour))
    for section in document.sections:
        lines.extend(_section(section, space, colour=colour))
    text = ""
    before = ""
    for line in _heading(document.title, space, colour=colour):
        text += f"{line}\n"
        before = line
    for line in lines:
        if line:
            text += f"{_MARGIN}{line}\n"
        elif before:
            text += "\n"
        before = line
    return text


def _lead(document: Document, width: int, *, colour: bool) -> Iterator[str]:
    """Lay out the answer, the table of all, and remarks on some."""
    for line in document.answer:
        yield from _wrapped(plain_line(line), width)
    pictures = [block for block in document.lead if isinstance(block, LineChart)]
    for block in document.lead:
        if isinstance(block, Table):
            yield ""
            is_whole = not document.is_brief
            yield from _pictured(block, pictures, width, colour=colour, is_whole=is_whole)
    yield ""
    yield from _verdicts(document, width, colour=colour)


def _pictured(
    table: Table, pictures: Sequence[LineChart], width: int, *, colour: bool, is_whole: bool
) -> Iterator[str]:
    """Lay out a table with its picture beside it; without room below it, where all is told."""
    plain = list(_table(table, width, colour=False))
    lines = list(_table(table, width, colour=colour))
    names = [plain_line(cell_text(row.cells[0])) for row in table.rows]
    drawn: list[str] = []
    for picture in pictures:
        drawn += plane_lines(picture, names)
    wide = max(map(len, plain)) + _GAP
    if wide + PLANE_WIDTH > width:
        yield from lines
        if drawn and is_whole:
            yield from ("", *drawn)
        return
    for left, unpainted, right in zip_longest(lines, plain, drawn, fillvalue=""):
        gap = " " * (wide - len(unpainted))
        yield f"{left}{gap}{right}".rstrip()


def _verdicts(document: Document, width: int, *, colour: bool) -> Iterator[str]:
    """Tell verdicts one by one; of many that a table holds, what has to be said beside it."""
    shown = document.cards
    if not document.is_tabled:
        shown = document.verdicts
    remarked = [each for each in document.verdicts if each not in shown and each.notes]
    shown = (*shown, *remarked[: max(0, _REMARKED - len(shown))])
    heads = {each: plain_line(each.title or each.defense) for each in shown}
    margin = min(max(map(len, heads.values()), default=0), 26) + 2
    for verdict in shown:
        name = heads[verdict]
        text = plain_line(_verdict_text(verdict, document))
        if not text:
            continue
        first, *others = _wrapped(text, width, first=f"{name:<{margin - 2}}  ", rest=" " * margin)
        paint = _BOLD
        if verdict.baseline:
            paint = _DIM
        yield first.replace(name, _painted(name, paint, use=colour), 1)
        yield from others


def _verdict_text(verdict: Headline, document: Document) -> str:
    """Return what is said of one: all of it, or what the table beside it does not hold."""
    is_card = verdict in document.cards
    parts = []
    if is_card or not document.is_tabled:
        parts.append(verdict.verdict)
    if not document.is_tabled:
        parts.append(verdict.figures)
    parts += verdict.notes
    if is_card:
        parts += verdict.blind_spots
    sentences = []
    for part in filter(None, parts):
        sentence = part[:1].upper() + part[1:]
        sentences.append(sentence.rstrip("."))
    if sentences:
        return ". ".join(sentences) + "."
    return ""


def _section(section: Section, width: int, *, colour: bool) -> Iterator[str]:
    """Lay out a section; folded tables are only named, with how many rows they have."""
    yield ""
    yield from _heading(section.title, width, colour=colour)
    folded = []
    for at, block in enumerate(section.blocks):
        if isinstance(block, Table) and block.collapsed:
            folded.append(f"{plain_line(block.title)} ({count_text(len(block.rows))})")
            continue
        lines = list(_block(block, width, colour=colour))
        follows = isinstance(block, Bullets) and isinstance(section.blocks[at - 1], Bullets)
        if lines and at and not (_is_muted(block) or follows):
            yield ""
        yield from lines
    if folded:
        more = ""
        if len(folded) > _NAMED:
            more = f"; and {len(folded) - _NAMED} more"
        text = f"Folded here, with rows: {'; '.join(folded[:_NAMED])}{more}."
        yield ""
        yield from _wrapped(text, width, rest="  ")


def _block(block: Block, width: int, *, colour: bool) -> Iterator[str]:
    match block:
        case Paragraph():
            yield from _paragraph(block, width)
        case Bullets():
            yield from _bullets(block, width)
        case Facts():
            yield from _heading(block.title, width, colour=colour)
            yield from _facts(block, width)
        case Listing():
            yield from _heading(block.title, width, colour=colour)
            for line in block.lines:
                yield f"  {' ' * (len(line) - len(line.lstrip(' ')))}{plain_line(line)}"
        case Table(rows=[_, *_]):
            yield from _heading(block.title, width, colour=colour)
            yield from _table(block, width, colour=colour)


def _paragraph(block: Paragraph, width: int) -> list[str]:
    first = rest = ""
    if block.tone is Tone.WARNING:
        first = "Note: "
    elif block.tone is Tone.MUTED:
        first = rest = "  "
    return _wrapped(plain_line(block.text), width, first=first, rest=rest)


def _bullets(block: Bullets, width: int) -> Iterator[str]:
    first = "- "
    if block.tone is Tone.WARNING:
        first = "- Note: "
    for at, line in enumerate(block.lines):
        yield from _wrapped(plain_line(line), width, first=first, rest="  ")
        command = block.command(at)
        if command:
            yield f"    {plain_line(command)}"


def _facts(block: Facts, width: int) -> Iterator[str]:
    margin = max(len(label) for label, _ in block.pairs) + 2
    for label, value in block.pairs:
        first = f"  {plain_line(label):<{margin}}"
        rest = " " * len(first)
        yield from _wrapped(plain_line(value.text), width, first=first, rest=rest)


def _is_muted(block: Block) -> bool:
    return isinstance(block, Paragraph) and block.tone is Tone.MUTED


def _table(table: Table, width: int, *, colour: bool) -> Iterator[str]:
    """Lay out a table; columns that do not fit follow below it, beside what names each row again.

    No line begins with what data say.
    """
    cells = _cells(table)
    sizes = _sizes(cells)
    derived = {each.title for each in table.columns if each.is_derived}
    if derived and 2 + _needed(sizes) > width:
        table = without_columns(table, derived)
        cells = _cells(table)
        sizes = _sizes(cells)
    names = _naming_columns(cells[1:], sizes, width)
    for number, shown in enumerate(_parts(sizes, names, width)):
        rows = list(range(1, len(cells)))
        if number:
            yield ""
            rows = _rows_that_tell(cells, [column for column in shown if column not in names])
        part = _Part(columns=shown, rows=rows, width=width)
        yield from _columns(table, cells, part, colour=colour)
    if table.note:
        yield from _wrapped(plain_line(table.note), width)


def _rows_that_tell(cells: Sequence[Sequence[str]], columns: Sequence[int]) -> list[int]:
    """Return the rows below the heads that hold anything in some columns."""
    rows = []
    for at in range(1, len(cells)):
        if any(cells[at][column] for column in columns):
            rows.append(at)
    return rows


def _cells(table: Table) -> list[list[str]]:
    """Return heads and cells as text, every line as long as the first."""
    cells = [[each.title for each in table.columns]]
    for row in table.rows:
        texts = [plain_line(cell_text(cell)) for cell in row.cells]
        cells.append([*texts, *[""] * (len(table.columns) - len(texts))])
    return cells


def _naming_columns(rows: Sequence[Sequence[str]], sizes: Sequence[int], width: int) -> list[int]:
    """Return the first columns that together tell rows apart, if they leave room for others."""
    for count in range(1, len(sizes)):
        if 2 + _needed(sizes[:count]) > width // 2:
            break
        if len({tuple(row[:count]) for row in rows}) == len(rows):
            return list(range(count))
    return [0]


def _parts(sizes: Sequence[int], names: Sequence[int], width: int) -> Iterator[list[int]]:
    """Say which columns stand side by side: as many as fit, the naming ones in each part."""
    part = list(names)
    for column in range(len(names), len(sizes)):
        is_begun = len(part) > len(names)
        wanted = [sizes[each] for each in (*part, column)]
        if is_begun and 2 + _needed(wanted) > width:
            yield part
            part = list(names)
        part.append(column)
    yield part


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Columns and rows of a table that are laid out together, and the room for them."""

    columns: Sequence[int]
    rows: Sequence[int]
    width: int


def _columns(
    table: Table, cells: Sequence[Sequence[str]], part: _Part, *, colour: bool
) -> Iterator[str]:
    """Lay out a part of a table; words of its last column that are too long go on below."""
    lines = []
    for at in (0, *part.rows):
        lines.append([cells[at][column] for column in part.columns])
    sizes = _sizes(lines)
    over = 2 + _needed(sizes) - part.width
    if over > 0 and not table.columns[part.columns[-1]].numeric:
        sizes[-1] = max(_NARROWEST // 2, sizes[-1] - over)
    for at, texts in zip((0, *part.rows), lines, strict=True):
        last = texts[-1:]
        if len(texts[-1]) > sizes[-1]:
            last = _wrapped(texts[-1], sizes[-1])
        is_dim = at > 0 and table.rows[at - 1].tone is Tone.MUTED
        for number, words in enumerate(last):
            line = [*texts[:-1], words]
            if number > 0:
                line[:-1] = [""] * (len(line) - 1)
            aligned = []
            for column, text, size in zip(part.columns, line, sizes, strict=True):
                if table.columns[column].numeric:
                    aligned.append(text.rjust(size))
                else:
                    aligned.append(text.ljust(size))
            yield _painted(f"  {'  '.join(aligned)}".rstrip(), _DIM, use=colour and is_dim)
        if at == 0:
            yield "  " + "-" * _needed(sizes)


def _sizes(cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*cells, strict=True)]


def _needed(sizes: Sequence[int]) -> int:
    """Return the width of columns with two blanks between them."""
    return sum(sizes) + 2 * (len(sizes) - 1)


def _heading(title: str, width: int, *, colour: bool) -> Iterator[str]:
    """Yield the lines of a title; none without one."""
    if not title:
        return
    for line in _wrapped(plain_line(title), width, rest="  "):
        yield _painted(line, _BOLD, use=colour)


def _wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """Wrap a text; a number is not parted from its percent sign."""
    lines = textwrap.wrap(
        text.replace(" %", "\u00a0%"),  # a rate does not end a line without its unit
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]
    return [line.replace("\u00a0%", " %") for line in lines]


def _painted(text: str, paint: str, *, use: bool) -> str:
    if use:
        return f"{paint}{text}{_PLAIN}"
    return text
