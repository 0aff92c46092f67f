"""A document as Markdown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from guardmark.canon.visible import spell_hidden
from guardmark.reports.document.blocks import (
    Bullets,
    Cell,
    Facts,
    LineChart,
    Listing,
    Paragraph,
    SampleBrowser,
    SampleEntry,
    Table,
    TextCell,
    Tone,
)
from guardmark.reports.document.safe_text import markdown_code, markdown_line, markdown_listing
from guardmark.reports.document.wording import cell_text, count_text

if TYPE_CHECKING:
    from guardmark.analysis.defense.bypasses import Flaw
    from guardmark.reports.document.blocks import Block, Document, Headline, Row

_LISTED = 50


def render_markdown(document: Document, *, texts: bool = True, marker: str = "") -> str:
    """Render a document as Markdown.

    Charts are left out: tables hold their figures. With a marker, in the first line, by which a
    workflow finds it, it is a comment for a pull request: small headings, tables folded.
    """
    level = "##" if marker else ""
    lines = [f"<!-- {marker} -->"] if marker else []
    lines += [f"{level}# {markdown_line(document.title)}", ""]
    if document.subtitle:
        lines += [markdown_line(document.subtitle), ""]
    if document.caveats:
        lines += [*(f"- **Note:** {markdown_line(each)}" for each in document.caveats), ""]
    lines += _lead(document, texts=texts)
    for section in document.sections:
        lines.extend(("", f"{level}## {markdown_line(section.title)}", ""))
        for block in section.blocks:
            rendered = _block(block, texts=texts)
            if marker and isinstance(block, Table) and block.collapsed:
                rendered = _folded(block)
            if rendered:
                lines.extend((*rendered, ""))
    if document.version:
        lines.append(markdown_line(f"guardmark {document.version}"))
    return "\n".join(lines).rstrip("\n") + "\n"


def _folded(table: Table) -> list[str]:
    summary = f"<details><summary>{markdown_line(table.title)}</summary>"
    return [summary, "", *_table(replace(table, title="")), "", "</details>"]


def _lead(document: Document, *, texts: bool) -> list[str]:
    """Lay out the answer, what stands beside it, and the verdicts."""
    lines: list[str] = []
    for at, answer in enumerate(map(markdown_line, document.answer)):
        lines += [answer if at else f"**{answer}**", ""]
    for block in document.lead:
        lines += [*_block(block, texts=texts), ""]
    told = [each for each in document.verdicts if _is_told(each, document)]
    lines += [_verdict(each, document) for each in told]
    if document.verdicts:
        lines += ["", "*Rows in italics: too few samples or groups to rely on.*"]
    return lines


def _is_told(verdict: Headline, document: Document) -> bool:
    """Tell whether a verdict has a line of its own beside a table that holds the rates."""
    return not document.is_tabled or verdict in document.cards or bool(verdict.remarks)


def _verdict(verdict: Headline, document: Document) -> str:
    notes = "".join(f" ({markdown_line(note)})" for note in verdict.remarks)
    name = markdown_line(verdict.title) if verdict.title else markdown_code(verdict.defense)
    figures = "" if document.is_tabled else f" {markdown_line(verdict.figures)}"
    if verdict.baseline:
        return f"- {name} (baseline){figures}{notes}"
    return f"- **{name} {markdown_line(verdict.verdict)}.**{figures}{notes}"


def _block(block: Block, *, texts: bool) -> list[str]:
    lines: list[str] = []
    match block:
        case Paragraph():
            lines = [_toned(block.text, block.tone)]
        case Bullets():
            lines = [_bullet(block, at) for at in range(len(block.lines))]
        case Facts():
            lines = [f"- {markdown_line(label)}: {_cell(value)}" for label, value in block.pairs]
        case Listing():
            lines = [f"**{markdown_line(block.title)}**", "", *markdown_listing(block.lines)]
        case Table():
            lines = _table(block)
        case LineChart():
            lines = [f"{markdown_line(block.title)}: {markdown_line(block.summary)}"]
        case SampleBrowser():
            lines = _browser(block, texts=texts)
    return lines


def _bullet(block: Bullets, at: int) -> str:
    command = block.command(at)
    typed = f" {markdown_code(command)}" if command else ""
    return f"- {_toned(block.lines[at], block.tone)}{typed}"


def _toned(text: str, tone: Tone) -> str:
    return f"{'**Note:** ' if tone is Tone.WARNING else ''}{markdown_line(text)}"


def _table(table: Table) -> list[str]:
    lines = [f"**{markdown_line(table.title)}**", ""] if table.title else []
    lines += [
        f"| {' | '.join(markdown_line(each.title) for each in table.columns)} |",
        f"|{'|'.join('---:' if each.numeric else '---' for each in table.columns)}|",
        *map(_row, table.rows),
    ]
    if table.note:
        lines.extend(("", markdown_line(table.note)))
    meanings = [f"{each.title}: {each.meaning}" for each in table.columns if each.meaning]
    if meanings:
        lines.extend(("", markdown_line("; ".join(meanings) + ".")))
    return lines


def _row(row: Row) -> str:
    cells = [_cell(cell) for cell in row.cells]
    if row.greyed:
        cells = [f"*{cell}*" if cell else "" for cell in cells]
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    text = cell_text(cell)
    if not isinstance(cell, TextCell):
        return f"**{text}**" if cell.is_strong else text  # figures are words of our own
    return markdown_code(text, in_table=True) if cell.code else markdown_line(text)


def _browser(browser: SampleBrowser, *, texts: bool) -> list[str]:
    return [
        f"**{markdown_line(browser.title)}**",
        "",
        *(
            f"- {_kind(each.kind)} ({each.meaning}): {count_text(each.total)} samples; all: "
            f"{markdown_code(each.command)}"
            for each in browser.counts
        ),
        "",
        *(_entry(entry, texts=texts) for entry in browser.entries[:_LISTED]),
    ]


def _kind(kind: Flaw) -> str:
    return kind.value.replace("_", " ")


def _entry(entry: SampleEntry, *, texts: bool) -> str:
    kinds = ", ".join(map(_kind, entry.kinds))
    facets = ", ".join(f"{name} {value}" for name, value in entry.facets)
    outcomes = "; ".join(f"{each.defense} {each.outcome or 'not asked'}" for each in entry.answers)
    head = f"- {markdown_code(entry.sample_id)} ({markdown_line(kinds)})"
    parts = [markdown_line(part) for part in (facets, outcomes) if part]
    if texts:
        cut = f" (of {count_text(entry.characters)} characters)" if entry.cut else ""
        parts.append(f"{markdown_code(spell_hidden(entry.excerpt))}{cut}")
        parts += [f"{markdown_line(who)}: {markdown_code(text)}" for who, text in entry.story]
    else:
        parts.append(markdown_code(f"sha256 {entry.sha256}"))
    return f"{head}: {'. '.join(filter(None, parts))}"
