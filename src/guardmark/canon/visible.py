"""Texts with what they hide spelled out, for people and for the cells of a table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
_IN_CELLS: Final = re.compile(rf"{_HIDDEN.pattern}|\[(?=U\+)")
_SPELLED: Final = re.compile(r"\[(U\+[0-9A-F]{4,6}(?: U\+[0-9A-F]{4,6})*)\]")
_LISTED: Final = 6
_LAST: Final = 0x10FFFF
_FORMULA: Final = re.compile(
    "'*(?:[\t\r\n]"
    "|[\\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff"
    "\U000e0000-\U000e0fff]*"
    "[=+@|%\\-\uff1d\uff0b\uff20\uff0d\uff5c\uff05\u2212\ufe62\ufe63\ufe66\ufe6b])"
)
"""What a spreadsheet may evaluate, also behind blanks and what cannot be seen, and full-width."""


def spell_hidden(text: str) -> str:
    """Write a text for a person, with what it hides spelled out in brackets."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(piece for piece, _ in hidden_pieces(text.replace("\r\n", "\n")))


def hidden_pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Cut a text into what is seen and what is not."""
    done = 0
    for match in _HIDDEN.finditer(text):
        yield text[done : match.start()], False
        yield _name(match), True
        done = match.end()
    yield text[done:], False


def _name(match: re.Match[str]) -> str:
    """Spell a run of hidden characters out in brackets."""
    run = match.group()
    if match.group("tags"):
        # Tag characters mirror ASCII: what a model may read and a person does not see.
        letters = [chr(ord(sign) - 0xE0000) for sign in run]
        return f"[hidden tags: {''.join(letters)}]"
    if len(set(run)) == 1:
        name = _code(run[0])
        if len(run) > 1:
            name += f" x {len(run)}"
        return f"[{name}]"
    codes = " ".join(map(_code, run[:_LISTED]))
    if len(run) > _LISTED:
        codes += f" and {len(run) - _LISTED} more"
    return f"[{codes}]"


def _code(sign: str) -> str:
    """Write a character by its number, such as U+200B."""
    return f"U+{ord(sign):04X}"


def _codes(match: re.Match[str]) -> str:
    """Write every character of a match by its number, in brackets."""
    return f"[{' '.join(map(_code, match[0]))}]"


def is_formula(text: str) -> bool:
    """Tell whether a spreadsheet might evaluate a text, or take it for one that we made inert."""
    return _FORMULA.match(text) is not None


def cell_of(text: str) -> str:
    """Return a text as it stands in a cell: all that is hidden spelled out, never a formula."""
    if not (text.isascii() and text.isprintable() and "[U+" not in text):
        text = _IN_CELLS.sub(_codes, text)
    if is_formula(text):
        return f"'{text}"
    return text


def text_of_cell(cell: str) -> str:
    """Return the text that `cell_of` wrote as this cell."""
    if cell.startswith("'") and is_formula(cell):
        cell = cell[1:]
    return _SPELLED.sub(_characters, cell)


def _characters(match: re.Match[str]) -> str:
    numbers = [int(code.removeprefix("U+"), 16) for code in match.group(1).split(" ")]
    if max(numbers) > _LAST:
        return match.group()
    return "".join(map(chr, numbers))


def csv_line(cells: Iterable[object], *, delimiter: str = ",", is_exact: bool = False) -> str:
    """Write one line of a table: texts in quotes, numbers bare, what is undefined empty.

    An exact line holds texts as they are, for whoever reads them again and knows.
    """
    return delimiter.join(_field(cell, is_exact=is_exact) for cell in cells) + "\n"


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Write a whole table."""
    return "".join(map(csv_line, rows))


def _field(cell: object, *, is_exact: bool) -> str:
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return repr(cell)
    if not is_exact:
        cell = cell_of(cell)
    doubled = cell.replace('"', '""')
    return f'"{doubled}"'
