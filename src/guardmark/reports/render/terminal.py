"""A document's gist for a terminal: verdicts, headline table, what follows."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.pipeline import CARD_TABLES
from guardmark.reports.chapters.spending import SPENDING_TABLE
from guardmark.reports.document.blocks import Bullets, Paragraph, Table, Tone
from guardmark.reports.document.safe_text import plain_line
from guardmark.reports.document.wording import cell_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.reports.document.blocks import Block, Document

_COLUMNS: Final = ("Defense", "ASR", "FPR", "Balanced error", "Answered", "Malformed", "Errors")
_MOST_ADVICE: Final = 6
_BOLD: Final = "\x1b[1m"
_DIM: Final = "\x1b[2m"
_PLAIN: Final = "\x1b[0m"


def render_terminal(document: Document, *, width: int = 100, colour: bool = False) -> str:
    """Render verdicts, the headline table and the recommendations."""
    space = max(40, width)
    title = _wrapped(plain_line(document.title), space, first="", rest="  ")
    lines = [_painted(line, _BOLD, use=colour) for line in title]
    lines.extend((*_wrapped(plain_line(document.subtitle), space, first="", rest="  "), ""))
    for warning in _warnings(document):
        lines.extend((*_wrapped(warning, space, first="Beware: ", rest="  "), ""))
    lines.extend(_verdicts(document, space, colour=colour))
    for table in _tables(document, "overview"):
        if table.rows:
            lines.extend(("", *_table(table, space)))
    for card in (card for table_id in CARD_TABLES for card in _tables(document, table_id)):
        titles = tuple(column.title for column in card.columns)
        if card.rows:
            lines.extend(("", _painted(card.title, _BOLD, use=colour)))
            lines.extend(_table(card, space, titles))
    for spent in _tables(document, SPENDING_TABLE):
        lines.extend(("", _painted(spent.title, _BOLD, use=colour)))
        lines.extend(_table(spent, space, tuple(column.title for column in spent.columns)))
    advice = list(_advice(document))
    if advice:
        lines.extend(("", _painted("What follows", _BOLD, use=colour)))
        for line in advice[:_MOST_ADVICE]:
            lines.extend(_wrapped(line, space, first="- ", rest="  "))
        if len(advice) > _MOST_ADVICE:
            lines.append(f"  ({len(advice) - _MOST_ADVICE} more in the report)")
    return "\n".join(lines) + "\n"


def _verdicts(document: Document, width: int, *, colour: bool) -> Iterator[str]:
    margin = max((len(plain_line(each.defense)) for each in document.verdicts), default=0)
    margin = min(margin, 24) + 2
    for verdict in document.verdicts:
        name = plain_line(verdict.defense)
        text = plain_line(verdict.sentence)
        notes = "".join(f" ({plain_line(note)})" for note in verdict.notes)
        first, *others = _wrapped(
            f"{text}{notes}", width, first=f"{name:<{margin - 2}}  ", rest=" " * margin
        )
        paint = _DIM if verdict.baseline else _BOLD
        painted = first.replace(name, _painted(name, paint, use=colour), 1)
        yield painted
        yield from others


def _table(table: Table, width: int, wanted: tuple[str, ...] = _COLUMNS) -> list[str]:
    """Lay out the columns that fit, the first always."""
    chosen = [at for at, each in enumerate(table.columns) if each.title in wanted]
    cells = [[table.columns[at].title for at in chosen]]
    cells.extend([plain_line(cell_text(row.cells[at])) for at in chosen] for row in table.rows)
    while len(cells[0]) > 1 and _needed(cells) > width:
        cells = [row[:-1] for row in cells]
    sizes = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        first = f"{row[0]:<{sizes[0]}}"
        others = [f"{cell:>{size}}" for cell, size in zip(row[1:], sizes[1:], strict=True)]
        lines.append("  ".join((first, *others)).rstrip())
    lines.insert(1, "-" * min(width, _needed(cells)))
    return lines


def _needed(cells: list[list[str]]) -> int:
    sizes = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    return sum(sizes) + 2 * (len(sizes) - 1)


def _tables(document: Document, table_id: str) -> Iterator[Table]:
    for block in _blocks(document):
        if isinstance(block, Table) and block.id == table_id:
            yield block


def _blocks(document: Document) -> Iterator[Block]:
    for section in document.sections:
        yield from section.blocks


def _warnings(document: Document) -> Iterator[str]:
    """What holds for every figure: that records are missing."""
    told = [part for part in document.sections if part.id == "configuration"]
    for block in (block for part in told for block in part.blocks):
        if isinstance(block, Paragraph) and block.tone is Tone.WARNING:
            yield plain_line(block.text)


def _advice(document: Document) -> Iterator[str]:
    told = [part for part in document.sections if part.id == "recommendations"]
    for block in (block for part in told for block in part.blocks):
        if isinstance(block, Bullets):
            yield from (plain_line(line) for line in block.lines)


def _wrapped(text: str, width: int, *, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def _painted(text: str, paint: str, *, use: bool) -> str:
    return f"{paint}{text}{_PLAIN}" if use else text
