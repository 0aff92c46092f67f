"""Edits of single words: what a word may become, and the proof of a text with several of them.

Every word is edited at most once, so a text is compared with the original word by word: each is
the same, has the same letters (V1), has one typo in at most 30 % of the words (V2), or is another
form from the reviewed lists (V3-table).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from guardmark.attacks.application import (
    LEAST_MISTYPED,
    LEAST_SHORTENED,
    MOST_WORDS_EDITED,
    is_typo,
    keeps,
    protected_spans,
)
from guardmark.attacks.contract import Tier, weakest
from guardmark.attacks.operators.lexical import cased_like, plurals, synonyms
from guardmark.canon.steps import skeleton

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class EditKind(IntEnum):
    """How far a word is changed."""

    LETTERS = 0
    TYPO = 1
    LISTED = 2


_TIERS: Final = {EditKind.LETTERS: Tier.V1, EditKind.TYPO: Tier.V2, EditKind.LISTED: Tier.V3_TABLE}
_WORD: Final = re.compile(r"(?<![\w./@\\=:-])[A-Za-z]+(?![\w@/\\=-]|[.:]\w)")
_SPLIT_FROM: Final = 4  # letters of a word that is read in two halves
_MOST_LISTED: Final = 4
EDITED: Final = "words"  # name of edited words in the chain of a try
_RECIPE: Final = re.compile(rf"{EDITED} \[(?P<edits>[^\]]*)\](?: \+ (?P<chain>.+))?", re.DOTALL)
_EDIT: Final = re.compile(r"(\d+):(\d+)>([^;]*)")


@dataclass(frozen=True, slots=True)
class WordEdit:
    """A word of a text, and what it becomes.

    Attributes:
        start: Where the word begins, in characters of the text.
        end: Where it ends.
        text: What it becomes.
        kind: How far it is changed.
        word: The word in small letters.
        form: What it becomes, in small letters.
    """

    start: int
    end: int
    text: str
    kind: EditKind
    word: str = ""
    form: str = ""


@lru_cache(maxsize=1024)
def edits_of(text: str, must_keep: tuple[str, ...] = ()) -> tuple[tuple[WordEdit, ...], ...]:
    """Return what each word of a text may become; words without a choice are left out."""
    words = []
    for match in _WORD.finditer(text):
        word = match[0]
        if any(word in span or span in word for span in protected_spans(text, must_keep)):
            continue
        kinds = {form: kind for kind, form in _forms(word) if form != word}
        edits = []
        for form, kind in kinds.items():
            edits.append(WordEdit(*match.span(), form, kind, word.lower(), form.lower()))
        if edits:
            words.append(tuple(edits))
    return tuple(words)


def _forms(word: str) -> list[tuple[EditKind, str]]:
    """List what a word may become, each with its kind: listed words, typos, other letters."""
    lower = word.lower()
    listed = list(synonyms().get(lower, ())[:_MOST_LISTED])
    if plurals().get(lower):
        listed.append(plurals()[lower])
    forms = [(EditKind.LISTED, cased_like(form, word)) for form in listed]
    half = len(word) // 2
    before, after = word[:half], word[half:]
    if len(word) >= LEAST_MISTYPED:
        forms.append((EditKind.TYPO, before[:-1] + after[0] + before[-1] + after[1:]))
        forms.append((EditKind.TYPO, before + before[-1] + after))
    if len(word) >= LEAST_SHORTENED:
        forms.append((EditKind.TYPO, before + after[1:]))
    if len(word) >= _SPLIT_FROM:
        forms.append((EditKind.LETTERS, f"{before} {after}"))
        forms.append((EditKind.LETTERS, f"{before}-{after}"))
    other_case = word.upper()
    if word == other_case:
        other_case = lower
    forms.append((EditKind.LETTERS, other_case))
    return forms


def edited(text: str, edits: Iterable[WordEdit]) -> str:
    """Put edits into a text."""
    pieces = []
    at = 0
    for edit in sorted(edits, key=attrgetter("start")):
        pieces.append(text[at : edit.start])
        pieces.append(edit.text)
        at = edit.end
    pieces.append(text[at:])
    return "".join(pieces)


def edited_tier(text: str, edits: Sequence[WordEdit], must_keep: tuple[str, ...]) -> Tier:
    """Prove a text with edits against the original; V4 where a protected span is lost."""
    typos = [edit for edit in edits if edit.kind is EditKind.TYPO]
    if len(typos) > MOST_WORDS_EDITED * len(text.split()):
        return Tier.V4
    if not keeps(text, edited(text, edits), protected_spans(text, must_keep)):
        return Tier.V4
    for edit in edits:
        if not _holds(text[edit.start : edit.end].lower(), edit.text.lower(), edit.kind):
            return Tier.V4
    return weakest(_TIERS[edit.kind] for edit in edits)


@lru_cache(maxsize=4096)
def _holds(before: str, after: str, kind: EditKind) -> bool:
    """Say whether one edit is what its kind says."""
    if kind is EditKind.LETTERS:
        return skeleton(before) == skeleton(after) != ""
    if kind is EditKind.TYPO:
        return is_typo(before, after)
    return after in synonyms().get(before, ()) or after == plurals().get(before)


def recipe(edits: Iterable[WordEdit], chain: str = "") -> str:
    """Write down how a text was made: edits, then the chain around them."""
    listed = ";".join(f"{edit.start}:{edit.end}>{edit.text}" for edit in edits)
    written = f"{EDITED} [{listed}]"
    if chain:
        written += f" + {chain}"
    return written


def read_recipe(written: str, text: str) -> tuple[str, str] | None:
    """Return the text with the edits that a recipe lists, and the chain around it."""
    match = _RECIPE.fullmatch(written)
    if match is None:
        return None
    edits = []
    for start, end, form in _EDIT.findall(match["edits"]):
        edits.append(WordEdit(int(start), int(end), form, EditKind.LETTERS))
    return edited(text, edits), match["chain"] or ""
