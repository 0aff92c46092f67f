"""The steps of the canonical form, each of which can be switched on alone.

Two forms come out of them: `canonicalize` keeps words apart and is fit to be shown to a defense
(a repair), `skeleton` keeps letters and digits only and is what two texts are compared by.
"""

from __future__ import annotations

import json
import re
import unicodedata
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING

from guardmark.canon.characters import IGNORABLE_RANGES, MARK_RANGES, char_class, is_within
from guardmark.canon.confusables import FOLDED
from guardmark.canon.decoding import (
    decode_encodings,
    reveal_selectors,
    reveal_tags,
    undo_direction,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CANON_VERSION = "1"
"""Changes whenever any text's canonical form changes."""


class Step(StrEnum):
    """One step, in the order in which steps are run."""

    ENCODINGS = "encodings"
    TAGS = "tags"
    SELECTORS = "selectors"
    DIRECTION = "direction"
    NFKD = "nfkd"
    IGNORABLES = "ignorables"
    MARKS = "marks"
    CONFUSABLES = "confusables"
    CASE = "case"
    SPACING = "spacing"
    PUNCTUATION = "punctuation"
    SPACE = "space"


CANON_STEPS = (
    Step.NFKD,
    Step.IGNORABLES,
    Step.MARKS,
    Step.CONFUSABLES,
    Step.CASE,
    Step.PUNCTUATION,
    Step.SPACE,
)
"""The steps of the canonical form."""

REPAIR_STEPS = (
    Step.CASE,
    Step.NFKD,
    Step.IGNORABLES,
    Step.MARKS,
    Step.CONFUSABLES,
    Step.SPACE,
    Step.PUNCTUATION,
    Step.SPACING,
    Step.DIRECTION,
    Step.TAGS,
    Step.SELECTORS,
    Step.ENCODINGS,
)
"""Every step, in the order in which a counterfactual repair tries them one by one."""

_IGNORABLES = re.compile(f"[{char_class(IGNORABLE_RANGES)}]+")
_MARKS = re.compile(f"[{char_class(MARK_RANGES)}]+")
_CONFUSABLES = str.maketrans(FOLDED)
_SPACE = re.compile(r"\s+")
_SPELLED = re.compile(r"(?<!\w)\w(?:[ .*_-]\w(?!\w)){2,}")
_BROKEN = re.compile(r"(?<=[^\W\d_])[-\n](?=[a-z])")
_DOTTED = re.compile(r"(?<=\w)\.(?=\w)")


def _join_spelled(text: str) -> str:
    """Join letters that stand apart and words broken by a hyphen, line or dot."""
    joined = _SPELLED.sub(lambda run: run[0][::2], text)
    return _DOTTED.sub(" ", _BROKEN.sub("", joined))


class _Gaps(dict[int, int]):
    """Code point to itself, or to a blank where it is neither letter, digit nor mark."""

    def __missing__(self, code: int) -> int:
        char = chr(code)
        self[code] = code if char.isspace() or _carries_meaning(char) else ord(" ")
        return self[code]


def _carries_meaning(char: str) -> bool:
    """Say whether a character is a letter, a digit, or a mark that spells."""
    return char.isalnum() or unicodedata.category(char)[0] == "M"


_GAPS = _Gaps()

_RUN: dict[Step, Callable[[str], str]] = {
    Step.ENCODINGS: decode_encodings,
    Step.TAGS: reveal_tags,
    Step.SELECTORS: reveal_selectors,
    Step.DIRECTION: undo_direction,
    Step.NFKD: lambda text: unicodedata.normalize("NFKD", text),
    Step.IGNORABLES: lambda text: _IGNORABLES.sub("", text),
    Step.MARKS: lambda text: _MARKS.sub("", text),
    Step.CONFUSABLES: lambda text: text.translate(_CONFUSABLES),
    Step.CASE: str.casefold,
    Step.SPACING: _join_spelled,
    Step.PUNCTUATION: lambda text: text.translate(_GAPS),
    Step.SPACE: lambda text: _SPACE.sub(" ", text).strip(),
}


def apply_steps(text: str, steps: Iterable[Step]) -> str:
    """Run the given steps over a text, in the fixed order of `Step`."""
    wanted = frozenset(steps)
    for step, run in _RUN.items():
        if step in wanted:
            text = run(text)
    return text


def canonicalize(text: str) -> str:
    """Return the canonical form of a text, words kept apart."""
    return apply_steps(text, CANON_STEPS)


def skeleton(text: str) -> str:
    """Return the letters and digits of a text's canonical form.

    Two texts with the same skeleton differ only in what a reader passes over. Where words
    begin is lost, so it is meant for comparing a text with its own rewriting, not for search.
    """
    if text.isascii():
        return text.encode("ascii").translate(_LOWER, _NO_LETTERS).decode("ascii")
    return text.translate(_FOLD)


class _Fold(dict[int, int | str]):
    """Code point to its skeleton, worked out when first met.

    A skeleton of one character is kept as a code point, which `str.translate` writes faster.

    Character by character equals the steps over the whole text: normalisation forms only
    differ by the order of marks, and marks are dropped.
    """

    def __missing__(self, code: int) -> int | str:
        before, folded = "", chr(code)
        while folded != before:  # a folded character may itself fold on
            before, folded = folded, "".join(map(_fold_once, folded))
        self[code] = ord(folded) if len(folded) == 1 else folded
        return self[code]


def _fold_once(char: str) -> str:
    kept = []
    for part in unicodedata.normalize("NFKD", char):
        code = ord(part)
        if is_within(code, IGNORABLE_RANGES) or is_within(code, MARK_RANGES):
            continue
        kept.append(FOLDED.get(part, part).casefold())
    return "".join(filter(_carries_meaning, "".join(kept)))


_FOLD = _Fold()
_LOWER = bytes(range(256)).lower()
_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalnum())


def tables_digest() -> str:
    """Return the SHA-256 of every table behind the canonical form, in hex."""
    tables = {
        "confusables": FOLDED,
        "ignorable": IGNORABLE_RANGES,
        "marks": MARK_RANGES,
        "steps": [step.value for step in CANON_STEPS],
    }
    return sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()
