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
    level = ""
    lines: list[str] = []
    if marker:
        level = "##"
        lines.append(f"<!-- {marker} -->")
    lines += [f"{level}# {markdown_line(document.title)}", ""]
    if document.subtitle:
        lines += [markdown_line(document.subtitle), ""]
    for caveat in document.caveats:
        lines.append(f"- {_toned(caveat, Tone.WARNING)}")
    if document.caveats:
        lines.append("")
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
    for answer in document.answer[:1]:
        lines += [f"**{markdown_line(answer)}**", ""]
    for answer in document.answer[1:]:
        lines += [markdown_line(answer), ""]
    for block in document.lead:
        lines += [*_block(block, texts=texts), ""]
    for verdict in document.verdicts:
        if _is_told(verdict, document):
            lines.append(_verdict(verdict, document))
    if document.verdicts:
        lines += ["", "*Rows in italics: too few samples or groups to rely on.*"]
    return lines


def _is_told(verdict: Headline, document: Document) -> bool:
    """Tell whether a verdict has a line of its own beside a table that holds the rates."""
    return not document.is_tabled or verdict in document.cards or bool(verdict.remarks)


def _verdict(verdict: Headline, document: Document) -> str:
    name = markdown_code(verdict.defense)
    if verdict.title:
        name = markdown_line(verdict.title)
    line = f"- **{name} {markdown_line(verdict.verdict)}.**"
    if verdict.baseline:
        line = f"- {name} (baseline)"
    if not document.is_tabled:
        line += f" {markdown_line(verdict.figures)}"
    for remark in verdict.remarks:
        line += f" ({markdown_line(remark)})"
    return line


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
    line = f"- {_toned(block.lines[at], block.tone)}"
    command = block.command(at)
    if command:
        line += f" {markdown_code(command)}"
    return line


def _toned(text: str, tone: Tone) -> str:
    if tone is Tone.WARNING:
        return f"**Note:** {markdown_line(text)}"
    return markdown_line(text)


def _table(table: Table) -> list[str]:
    lines: list[str] = []
    if table.title:
        lines += [f"**{markdown_line(table.title)}**", ""]
    titles, rules = [], []
    for column in table.columns:
        titles.append(markdown_line(column.title))
        if column.numeric:
            rules.append("---:")
        else:
            rules.append("---")
    lines += [f"| {' | '.join(titles)} |", f"|{'|'.join(rules)}|", *map(_row, table.rows)]
    if table.note:
        lines.extend(("", markdown_line(table.note)))
    meanings = [f"{each.title}: {each.meaning}" for each in table.columns if each.meaning]
    if meanings:
        lines.extend(("", markdown_line("; ".join(meanings) + ".")))
    return lines


def _row(row: Row) -> str:
    cells = []
    for cell in row.cells:
        text = _cell(cell)
        if row.greyed and text:
            text = f"*{text}*"
        cells.append(text)
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    text = cell_text(cell)
    if isinstance(cell, TextCell):
        if cell.code:
            return markdown_code(text, in_table=True)
        return markdown_line(text)
    if cell.is_strong:
        return f"**{text}**"
    return text  # figures are words of our own


def _browser(browser: SampleBrowser, *, texts: bool) -> list[str]:
    lines = [f"**{markdown_line(browser.title)}**", ""]
    for each in browser.counts:
        lines.append(
            f"- {_kind(each.kind)} ({each.meaning}): {count_text(each.total)} samples; all: "
            f"{markdown_code(each.command)}"
        )
    lines.append("")
    for entry in browser.entries[:_LISTED]:
        lines.append(_entry(entry, texts=texts))
    return lines


def _kind(kind: Flaw) -> str:
    return kind.value.replace("_", " ")


def _entry(entry: SampleEntry, *, texts: bool) -> str:
    """Write one sample on a line: ids, facets, answers, and its text or its hash."""
    kinds = ", ".join(map(_kind, entry.kinds))
    facets = ", ".join(f"{name} {value}" for name, value in entry.facets)
    outcomes = "; ".join(f"{each.defense} {each.outcome or 'not asked'}" for each in entry.answers)
    head = f"- {markdown_code(entry.sample_id)} ({markdown_line(kinds)})"
    parts = [markdown_line(part) for part in (facets, outcomes) if part]
    if not texts:
        parts.append(markdown_code(f"sha256 {entry.sha256}"))
        return f"{head}: {'. '.join(parts)}"
    excerpt = markdown_code(spell_hidden(entry.excerpt))
    if entry.cut:
        excerpt += f" (of {count_text(entry.characters)} characters)"
    parts.append(excerpt)
    for who, text in entry.story:
        parts.append(f"{markdown_line(who)}: {markdown_code(text)}")
    return f"{head}: {'. '.join(filter(None, parts))}"
