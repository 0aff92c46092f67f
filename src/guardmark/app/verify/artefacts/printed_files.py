"""The main tables of a report, read out of Markdown or HTML and compared cell by cell."""

from __future__ import annotations

import html
import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from guardmark.app.verify.difference import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from guardmark.app.verify.artefacts.printed import Printed
    from guardmark.app.verify.difference import Comparer

Read = list[list[str]]

_BAR: Final = re.compile(r"(?<!\\)\|")
_ESCAPE: Final = re.compile(r"\\(.)")
_ROW: Final = re.compile(r"<tr\b[^>]*>(.*?)</tr>", re.DOTALL)
_CELL: Final = re.compile(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", re.DOTALL)
_ASIDE: Final = re.compile(r"<small\b[^>]*>[^<]*</small>")
"""What stands beside a figure: that its samples are few, or why it is undefined."""
_TAG: Final = re.compile(r"<[^>]*>")


def check_printed(path: Path, tables: Iterable[Printed], comparer: Comparer) -> None:
    """Compare the tables that were counted again with those that a report prints."""
    text = path.read_text(encoding="utf-8", errors="replace")
    read: Callable[[str, str], Read] = _in_html if path.suffix == ".html" else _in_markdown
    for table in tables:
        head, *rows = read(text, table.title) or [[]]
        if not head:
            comparer.findings.append(
                Finding(file=path.name, place=table.title, said="no such table", found="a table")
            )
            continue
        comparer.value(path.name, f"{table.title}, heads", said=head, found=[*table.heads])
        comparer.value(path.name, f"{table.title}, rows", said=len(rows), found=len(table.rows))
        for number, (row, wanted) in enumerate(zip(rows, table.rows, strict=False), 1):
            for title, said, found in zip_longest(table.heads, row, wanted):
                if found is not None:
                    place = f"{table.title}, row {number}, {title}"
                    comparer.value(path.name, place, said=said, found=found)


def _in_markdown(text: str, title: str) -> Read:
    """Read the table under a title; nothing where there is none."""
    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith("**") and _plain(line.strip("*")) == title:
            next(lines, "")
            table = []
            for row in lines:
                if not row.startswith("|"):
                    break
                table.append([_cell(cell) for cell in _BAR.split(row)[1:-1]])
            return table[:1] + table[2:]
    return []


def _cell(text: str) -> str:
    return _plain(text.strip().strip("*").strip("`"))


def _plain(text: str) -> str:
    """Return a text of Markdown as it is shown."""
    return " ".join(_ESCAPE.sub(r"\1", html.unescape(text)).split())


def _in_html(text: str, title: str) -> Read:
    """Read the table under a caption; nothing where there is none."""
    _, found, rest = text.partition(f"<caption><span>{html.escape(title)}</span></caption>")
    table = rest.partition("</table>")[0] if found else ""
    return [
        [" ".join(html.unescape(_TAG.sub("", _ASIDE.sub("", cell))).split()) for cell in cells]
        for cells in map(_CELL.findall, _ROW.findall(table))
    ]
