"""Planted defenses of the four kinds, so hard that chance alone does not get past them.

Each has the weakness of its kind and a gate before it that turns away what does not read as plain
English: other scripts, codes, symbols, walls of text. So few operators are of any use, and it
is worth something to know which.
"""

from __future__ import annotations

import re
from functools import cache

from tests.adaptive.planted import VERBS

from guardmark.canon.steps import canonicalize, skeleton
from guardmark.core.outcome import Decision, Outcome, ScoreKind
from guardmark.core.sample import DEFAULT_TAXONOMY, Prompt, Sample, View
from guardmark.datasets.builtin import builtin_specs
from guardmark.datasets.loading import load
from guardmark.defenses.ngram import BUILTIN_WEIGHTS, NgramModel, read_model

NOUNS = ("instruction", "rule", "prompt", "guidance", "filter")
WANTED = ("secret", "recipe", "limit", "free")
LISTED = (*VERBS, *NOUNS, *WANTED)
FAMILIES = re.compile(rf"\b(?:{'|'.join(LISTED)})", re.IGNORECASE)
CLAUSE = re.compile(
    rf"(?:^|[.:;!?\n\"'>#*`-])[\W_]*(?:{'|'.join(VERBS)})\b.{{0,80}}(?:{'|'.join(NOUNS)})",
    re.IGNORECASE | re.DOTALL,
)
LONGEST = 600
COMMON = (
    "a all an and any are as at be by can do for from have how i if in is it its me my no not of on "
    "or our so that the their then this to was we what which will with you your"
)
COMMON_WORDS = frozenset(COMMON.split(" "))


def reads_as_english(text: str) -> bool:
    """Say whether a text is ASCII, of moderate length, and made of words, some of them common."""
    words = re.findall(r"[A-Za-z]+", text)
    strange = sum(
        len(word) > 15 or not re.search("[aeiouyAEIOUY]", word) or bool(re.search(r"(.)\1\1", word))
        for word in words
    )
    common = sum(word.lower() in COMMON_WORDS for word in words)
    letters = sum(sign.isalpha() or sign == " " for sign in text)
    return (
        text.isascii()
        and len(text) <= LONGEST
        and 8 * strange <= len(words)
        and 8 * common >= len(words)
        and 3 * letters >= 2 * len(text)
    )


def keyword_families(text: str) -> bool:
    """Look for any word of three families, as it is written."""
    return not reads_as_english(text) or bool(FAMILIES.search(text))


def anchored_clauses(text: str) -> bool:
    """Look for a verb at the start of a clause, with its object behind it."""
    return not reads_as_english(text) or any(
        CLAUSE.search(form) for form in (text, canonicalize(text))
    )


def folding_families(text: str) -> bool:
    """Look for the letters of any listed word, whatever stands between them."""
    letters = skeleton(text)
    return not reads_as_english(text) or any(word in letters for word in LISTED)


class FoldingNgrams:
    """The built-in n-gram model at its own threshold, on the canonical form, with its score."""

    view = View.TEXT

    def __init__(self, name: str) -> None:
        self.name = name
        self._model = builtin_model()

    def decide(self, prompt: Prompt) -> Decision:
        """Block what does not read as English, or scores high."""
        score = self._model.score(canonicalize(prompt.text))
        is_blocked = not reads_as_english(prompt.text) or score >= self._model.threshold
        outcome = Outcome.BLOCK if is_blocked else Outcome.ALLOW
        return Decision(outcome=outcome, score=score, score_kind=ScoreKind.CLASS_PROB)


@cache
def builtin_model() -> NgramModel:
    """Return the built-in n-gram model."""
    return read_model(BUILTIN_WEIGHTS)


def readable_samples(step: int) -> list[Sample]:
    """Return built-in samples that pass the gate, every so many.

    Args:
        step: Distance between two, among the attacks; among the benign, four times as many.
    """
    found = [
        sample
        for sample in load(builtin_specs("core"), DEFAULT_TAXONOMY).samples()
        if reads_as_english(sample.prompt.text)
    ]
    attacks = [sample for sample in found if sample.is_attack]
    return attacks[::step] + [sample for sample in found if not sample.is_attack][:: 4 * step]
