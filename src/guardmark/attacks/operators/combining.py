"""F6: marks set over and under the letters."""

from __future__ import annotations

from guardmark.attacks.contract import LegitUse, Operator, Parameter, Slot, Tier, Use

_ACCENTS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308"
_MARKS = _ACCENTS + "\u030a\u030b\u030c\u0311\u0316\u0317\u0323\u0324\u0325\u032d\u0330\u0331"


def _decorate(text: str, use: Use, marks: str, count: int) -> str:
    """Set `count` drawn marks on every letter."""
    draws = use.draws(count * len(text))
    size = len(marks)
    if count == 1:
        return "".join(
            [
                char + marks[draw % size] if char.isalpha() else char
                for char, draw in zip(text, draws, strict=True)
            ]
        )
    return "".join(
        [
            char + "".join([marks[d % size] for d in draws[count * i : count * (i + 1)]])
            if char.isalpha()
            else char
            for i, char in enumerate(text)
        ]
    )


def _accent(text: str, use: Use) -> str:
    return _decorate(text, use, _ACCENTS, 1)


def _zalgo(text: str, use: Use) -> str:
    return _decorate(text, use, _MARKS, use.count("marks"))


def _drop(text: str, use: Use) -> str:  # noqa: ARG001 - one signature for every operator
    for mark in _MARKS:  # twenty passes in C are quicker than one table look-up a character
        text = text.replace(mark, "")
    return text


def _holds_none(text: str) -> bool:
    return text.isascii() or not any(mark in text for mark in _MARKS)


OPERATORS = (
    Operator(
        name="accent",
        version=1,
        family="F6",
        slot=Slot.SURFACE,
        tier=Tier.V0,
        legit_use=LegitUse.NONE,
        seeded=True,
        summary="One accent on every letter.",
        rewrite=_accent,
        restore=_drop,
        domain=_holds_none,
        domain_words="text without these combining marks (V1 otherwise)",
    ),
    Operator(
        name="zalgo",
        version=1,
        family="F6",
        slot=Slot.SURFACE,
        tier=Tier.V0,
        legit_use=LegitUse.NONE,
        seeded=True,
        parameters=(Parameter(name="marks", values=(1, 3)),),
        summary="A pile of marks on every letter.",
        rewrite=_zalgo,
        restore=_drop,
        domain=_holds_none,
        domain_words="text without these combining marks (V1 otherwise)",
    ),
)
"""The operators of F6."""
