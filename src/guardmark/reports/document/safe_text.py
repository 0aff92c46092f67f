"""Texts from data made harmless for where they are shown.

Attack texts are hostile: they may carry escape sequences, markup or formulas.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from guardmark.canon.visible import spell_hidden

if TYPE_CHECKING:
    from collections.abc import Iterable

_BREAKS: Final = re.compile(r"[\s\u2028\u2029]+")
_BREAKS_WITHIN: Final = re.compile(r"[\t\n\r\u2028\u2029]+")
_MARKDOWN: Final = re.compile(r"([\\`*_\[\]|~$])")
_MARKDOWN_START: Final = re.compile(r"^([-+#=]|\d+(?=[.)](?:\s|$)))")
_LINKS: Final = {"://": "&#58;//", "@": "&#64;", "www.": "www&#46;"}
_FENCE: Final = re.compile(r"`+")
_LATEX: Final = str.maketrans(
    {each: f"\\{each}" for each in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}"}
    | {'"': r"{\char34}"}
)
_LIGATURES: Final = re.compile(r"([-',])(?=\1)")


def plain_line(text: str) -> str:
    """Spell out what could steer a terminal, and squeeze to one line."""
    return _BREAKS.sub(" ", spell_hidden(text)).strip()


def latex_line(text: str) -> str:
    """Escape a text so that LaTeX sets it as it stands, in a cell of a table too."""
    escaped = _LIGATURES.sub(r"\1{}", plain_line(text).translate(_LATEX))
    if escaped.startswith(("[", "*")):  # LaTeX would take these as an option of \\
        return f"{{}}{escaped}"
    return escaped


def markdown_line(text: str) -> str:
    """Escape a text so that it is shown as it stands in Markdown."""
    escaped = plain_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = _MARKDOWN_START.sub(_escape_start, _MARKDOWN.sub(r"\\\1", escaped))
    for mark, entity in _LINKS.items():
        escaped = escaped.replace(mark, entity)
    return escaped


def _escape_start(match: re.Match[str]) -> str:
    """Keep the beginning of a line from opening a list, a heading or a rule."""
    start = match.group()
    return f"&#{ord(start[0])};{start[1:]}"


def markdown_code(text: str, *, in_table: bool = False) -> str:
    """Show a text as inline code, whatever back-ticks it holds."""
    line = plain_line(text)
    if in_table:
        line = line.replace("|", "\\|")
    if not line:
        return ""
    fence = "`" * (_longest_fence(line) + 1)
    if line.startswith("`") or line.endswith("`"):
        line = f" {line} "
    return f"{fence}{line}{fence}"


def markdown_listing(lines: Iterable[str]) -> list[str]:
    """Show lines as a block of code, whatever back-ticks they hold."""
    shown = [_BREAKS_WITHIN.sub(" ", spell_hidden(line)).rstrip() for line in lines]
    longest = max(map(_longest_fence, shown), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *shown, fence]


def _longest_fence(line: str) -> int:
    """Return the length of the longest run of back-ticks in a line; 0 without any."""
    return max(map(len, _FENCE.findall(line)), default=0)
