"""Texts from data made harmless for where they are shown.

Attack texts are hostile: they may carry escape sequences, markup or formulas.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_BREAKS: Final = re.compile(r"[\s\u2028\u2029]+")
_BREAKS_WITHIN: Final = re.compile(r"[\t\n\r\u2028\u2029]+")
_MARKDOWN: Final = re.compile(r"([\\`*_\[\]|~$])")
_MARKDOWN_START: Final = re.compile(r"^([-+#=]|\d+(?=[.)](?:\s|$)))")
_LINKS: Final = {"://": "&#58;//", "@": "&#64;", "www.": "www&#46;"}
_FENCE: Final = re.compile(r"`+")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")
_TAGS: Final = "\U000e0020-\U000e007e"
_HIDDEN: Final = re.compile(
    f"(?P<tags>[{_TAGS}]+)"
    "|["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"  # zero width, direction marks
    "\u3164\ufeff\uffa0\ufff0-\uffff"
    "\ud800-\udfff"  # half characters, which no file can hold
    "\U000e0000-\U000e001f\U000e007f-\U000e0fff"
    "]+"
    "|[\ufe00-\ufe0f]{2,}"  # one alone belongs to an emoji; a run carries a message
    "|[\u200c\u200d]{2,}|(?<=[\x00-\x7f])[\u200c\u200d]+|[\u200c\u200d]+(?=[\x00-\x7f])"
)
_LISTED: Final = 6


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


def spell_hidden(text: str) -> str:
    """Write a text for a terminal, with what it hides spelled out in brackets."""
    return "".join(piece for piece, _ in hidden_pieces(text.replace("\r\n", "\n")))


def hidden_pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Cut a text into what is seen and what is not."""
    done = 0
    for found in _HIDDEN.finditer(text):
        yield text[done : found.start()], False
        yield _name(found), True
        done = found.end()
    yield text[done:], False


def _name(found: re.Match[str]) -> str:
    run = found.group()
    if found.group("tags"):
        # Tag characters mirror ASCII: what a model may read and a person does not see.
        return f"[hidden tags: {''.join(chr(ord(sign) - 0xE0000) for sign in run)}]"
    if len(set(run)) == 1:
        times = f" x {len(run)}" if len(run) > 1 else ""
        return f"[U+{ord(run[0]):04X}{times}]"
    codes = " ".join(f"U+{ord(sign):04X}" for sign in run[:_LISTED])
    rest = f" and {len(run) - _LISTED} more" if len(run) > _LISTED else ""
    return f"[{codes}{rest}]"
