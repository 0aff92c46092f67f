"""Texts from data made harmless for where they are shown.

Attack texts are hostile: they may carry escape sequences, markup or formulas.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


_BREAKS: Final = re.compile(r"[\s\u2028\u2029]+")
_BREAKS_WITHIN: Final = re.compile(r"[\t\n\r\u2028\u2029]+")
_MARKDOWN: Final = re.compile(r"([\\`*_\[\]|~$])")
_MARKDOWN_START: Final = re.compile(r"^([-+#=]|\d+(?=[.)](?:\s|$)))")
_LINKS: Final = {"://": "&#58;//", "@": "&#64;", "www.": "www&#46;"}
_FENCE: Final = re.compile(r"`+")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")


def plain_line(text: str) -> str:
    """Strip what could steer a terminal, and squeeze to one line."""
    return _BREAKS.sub(" ", clean(text)).strip()


def markdown_line(text: str) -> str:
    """Escape a text so that it is shown as it stands in Markdown."""
    escaped = plain_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = _MARKDOWN_START.sub(_escape_start, _MARKDOWN.sub(r"\\\1", escaped))
    for mark, entity in _LINKS.items():
        escaped = escaped.replace(mark, entity)
    return escaped


def _escape_start(found: re.Match[str]) -> str:
    """Keep the beginning of a line from opening a list, a heading or a rule."""
    start = found.group()
    return f"&#{ord(start[0])};{start[1:]}"


def markdown_code(text: str, *, in_table: bool = False) -> str:
    """Show a text as inline code, whatever back-ticks it holds."""
    line = plain_line(text)
    if in_table:
        line = line.replace("|", "\\|")
    if not line:
        return ""
    longest = max((len(run) for run in _FENCE.findall(line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def markdown_listing(lines: Iterable[str]) -> list[str]:
    """Show lines as a block of code, whatever back-ticks they hold."""
    shown = [_BREAKS_WITHIN.sub(" ", clean(line)).rstrip() for line in lines]
    longest = max((len(run) for line in shown for run in _FENCE.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *shown, fence]


def csv_cell(text: str) -> str:
    """Keep a spreadsheet from taking a text as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


_CONTROL: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI sequences: colours, cursor movement
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC sequences: titles, links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS and the like
    r"|\x1b."
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters but tab and line feed
    r"|[\u202a-\u202e\u2066-\u2069\u200e\u200f]",  # direction marks that reorder a line
    re.DOTALL,
)


def clean(text: str) -> str:
    """Strip everything that could steer a terminal."""
    return _CONTROL.sub("", text)
