"""F3: characters that show nothing, between the letters of a word."""

from __future__ import annotations

import re
from functools import cache

from guardmark.attacks.contract import LegitUse, Operator, Parameter, Slot, Tier, Use

_CODES = ("200B", "200C", "200D", "2060", "00AD", "034F")


def _char(use: Use) -> str:
    return chr(int(use.word("char"), 16))


_WORD = re.compile(r"([^\W_]{2,})")


@cache
def _stretch(every: int) -> re.Pattern[str]:
    """Return what finds so many letters of a word that goes on behind them."""
    return re.compile(rf"([^\W_]{{{every}}})(?=[^\W_])")


def _insert(text: str, use: Use) -> str:
    char, every = _char(use), use.count("every")
    pieces = (_WORD if every == 1 else _stretch(every)).split(text)
    if every == 1:
        pieces[1::2] = map(char.join, pieces[1::2])
    else:
        pieces[1::2] = [stretch + char for stretch in pieces[1::2]]
    return "".join(pieces)


def _remove(text: str, use: Use) -> str:
    return text.replace(_char(use), "")


def _holds_none(text: str) -> bool:
    return text.isascii() or not any(chr(int(code, 16)) in text for code in _CODES)


OPERATORS = (
    Operator(
        name="invisible",
        version=1,
        family="F3",
        slot=Slot.SURFACE,
        tier=Tier.V0,
        legit_use=LegitUse.NONE,
        parameters=(
            Parameter(name="char", values=_CODES),
            Parameter(name="every", values=(1, 3)),
        ),
        summary="An invisible character after every letter, or every third, inside words.",
        rewrite=_insert,
        restore=_remove,
        domain=_holds_none,
        domain_words="text without the invisible characters themselves",
    ),
)
"""The operator of F3."""
