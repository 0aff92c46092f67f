"""Characters that the eye passes over, spelled out: an attack may hide what a model reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def spell_hidden(text: str) -> str:
    """Write a text for a terminal, with what it hides spelled out in brackets."""
    return "".join(piece for piece, _ in pieces(text.replace("\r\n", "\n")))


def pieces(text: str) -> Iterator[tuple[str, bool]]:
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
