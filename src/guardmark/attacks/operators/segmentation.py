"""F8: words taken apart or run together."""

from __future__ import annotations

import re

from guardmark.attacks.contract import LegitUse, Operator, Slot, Tier, Use

_WORD = re.compile(r"([A-Za-z]{4,})")
_HYPHEN = re.compile(r"(?<=[A-Za-z])-(?=[A-Za-z])")
_BREAK = re.compile(r"(?<=[A-Za-z])\n(?=[A-Za-z])")


def _in_middle(text: str, mark: str) -> str:
    """Put a mark into the middle of every longer word."""
    pieces = _WORD.split(text)
    pieces[1::2] = [
        f"{word[: len(word) // 2]}{mark}{word[len(word) // 2 :]}" for word in pieces[1::2]
    ]
    return "".join(pieces)


def _space_letters(text: str, use: Use) -> str:  # noqa: ARG001 - one signature for every operator
    return " ".join(text)


def _unspace(text: str, use: Use) -> str:  # noqa: ARG001 - as above
    return text[::2]


def _hyphenate(text: str, use: Use) -> str:  # noqa: ARG001 - as above
    return _in_middle(text, "-")


def _unhyphenate(text: str, use: Use) -> str:  # noqa: ARG001 - as above
    return _HYPHEN.sub("", text)


def _break_lines(text: str, use: Use) -> str:  # noqa: ARG001 - as above
    return _in_middle(text, "\n")


def _unbreak(text: str, use: Use) -> str:  # noqa: ARG001 - as above
    return _BREAK.sub("", text)


def _dot(text: str, use: Use) -> str:  # noqa: ARG001 - as above
    return text.replace(" ", ".")


def _undot(text: str, use: Use) -> str:  # noqa: ARG001 - as above
    return text.replace(".", " ")


OPERATORS = (
    Operator(
        name="letters_spaced",
        version=1,
        family="F8",
        slot=Slot.SURFACE,
        tier=Tier.V0,
        legit_use=LegitUse.NICHE,
        summary="A blank between all characters.",
        rewrite=_space_letters,
        restore=_unspace,
    ),
    Operator(
        name="hyphen_split",
        version=1,
        family="F8",
        slot=Slot.SURFACE,
        tier=Tier.V0,
        legit_use=LegitUse.NICHE,
        summary="A hyphen in the middle of every word of four letters or more.",
        rewrite=_hyphenate,
        restore=_unhyphenate,
        domain=lambda text: not _HYPHEN.search(text),
        domain_words="text without hyphens inside words (V1 otherwise)",
    ),
    Operator(
        name="line_split",
        version=1,
        family="F8",
        slot=Slot.SURFACE,
        tier=Tier.V0,
        legit_use=LegitUse.NICHE,
        summary="A line break in the middle of every word of four letters or more.",
        rewrite=_break_lines,
        restore=_unbreak,
        domain=lambda text: not _BREAK.search(text),
        domain_words="text without a line break between two letters (V1 otherwise)",
    ),
    Operator(
        name="dot_join",
        version=1,
        family="F8",
        slot=Slot.SURFACE,
        tier=Tier.V0,
        legit_use=LegitUse.NICHE,
        summary="Dots in place of blanks.",
        rewrite=_dot,
        restore=_undot,
        domain=lambda text: "." not in text,
        domain_words="text without dots (V1 otherwise)",
    ),
)
"""The operators of F8."""
