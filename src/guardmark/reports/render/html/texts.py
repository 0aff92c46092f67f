"""Hostile texts made visible: what an attack hides from the eye is spelled out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

from guardmark.reports.document.safe_text import hidden_pieces

_SHARE: Final = re.compile(r"(?:&[lg]t; )?\d[\d.,]*\xa0%")
_CLAUSES: Final = re.compile(r"(?<=;) |(?<=,) (?=wrongly )")
_BRACKETS: Final = re.compile(r"\[[^\[\]]{1,40}\]")
_UNITS: Final = re.compile(r"(?<=\d) (?=(?:%|ms|µs|s|points)(?!\w))")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    """A text ready for a page."""

    markup: Markup
    characters: int


def show_text(text: str, *, most_bytes: int) -> ShownText:
    """Escape a text and spell out what it hides."""
    text = text.replace("\r\n", "\n")
    shown, markup = len(text), _spelled(text)
    size = len(markup.encode())
    while size > most_bytes:
        shown = min(shown - 1, shown * most_bytes // size)
        markup = _spelled(text[:shown])
        size = len(markup.encode())
    return ShownText(markup=markup, characters=shown)


def flowing(text: str) -> str:
    """Keep a figure and its unit on one line, and an interval too."""
    text = _BRACKETS.sub(lambda found: found.group().replace(" ", "\xa0"), text)
    return _UNITS.sub("\xa0", text)


def verdict_line(sentence: str) -> Markup:
    """Set a verdict in clauses, with the shares stressed."""
    clauses = [
        # The clause is escaped before the stress is put in.
        Markup(_SHARE.sub(r"<b>\g<0></b>", str(escape(clause))))  # noqa: S704
        for clause in _CLAUSES.split(flowing(sentence))
    ]
    return Markup(" ").join(Markup("<span>{}</span>").format(clause) for clause in clauses)


def _spelled(text: str) -> Markup:
    mark = Markup("<i>{}</i>")
    return Markup("").join(
        mark.format(piece) if is_hidden else escape(piece)
        for piece, is_hidden in hidden_pieces(text)
    )
