"""Hostile texts made visible: what an attack hides from the eye is spelled out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

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
_SHARE: Final = re.compile(r"(?:&[lg]t; )?\d[\d.,]*\xa0%")
_CLAUSES: Final = re.compile(r"(?<=;) |(?<=,) (?=wrongly )")
_BRACKETS: Final = re.compile(r"\[[^\[\]]{1,40}\]")
_UNITS: Final = re.compile(r"(?<=\d) (?=(?:%|ms|µs|s|points)(?!\w))")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    """A text ready for a page.

    Attributes:
        markup: The text, escaped, with hidden characters spelled out.
        characters: How many characters of the text it shows.
    """

    markup: Markup
    characters: int


def show_text(text: str, *, most_bytes: int) -> ShownText:
    """Escape a text and spell out what it hides.

    Args:
        text: As it stands in the data; hostile.
        most_bytes: Bound of the result in UTF-8. A text that would need more is cut, so that
            a page of many texts keeps its size whatever they hold.

    Returns:
        The longest start that was found to fit.
    """
    text = text.replace("\r\n", "\n")
    shown, markup = len(text), _spelled(text)
    size = len(markup.encode())
    while size > most_bytes:
        shown = min(shown - 1, shown * most_bytes // size)
        markup = _spelled(text[:shown])
        size = len(markup.encode())
    return ShownText(markup=markup, characters=shown)


def flowing(text: str) -> str:
    """Keep a figure and its unit on one line, and an interval too.

    Args:
        text: Words of a report.
    """
    text = _BRACKETS.sub(lambda found: found.group().replace(" ", "\xa0"), text)
    return _UNITS.sub("\xa0", text)


def verdict_line(sentence: str) -> Markup:
    """Set a verdict in clauses, with the shares stressed.

    Args:
        sentence: Such as `blocks 91.2 % [88.4, 93.4] of 500 attacks, wrongly blocks ...`.
    """
    clauses = [
        # The clause is escaped before the stress is put in.
        Markup(_SHARE.sub(r"<b>\g<0></b>", str(escape(clause))))  # noqa: S704
        for clause in _CLAUSES.split(flowing(sentence))
    ]
    return Markup(" ").join(Markup("<span>{}</span>").format(clause) for clause in clauses)


def _spelled(text: str) -> Markup:
    parts: list[Markup] = []
    done = 0
    for found in _HIDDEN.finditer(text):
        parts.append(escape(text[done : found.start()]))
        parts.append(Markup("<i>{}</i>").format(_name(found)))
        done = found.end()
    parts.append(escape(text[done:]))
    return Markup("").join(parts)


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
