"""Planted defenses with a score that the search was not tuned on."""

from __future__ import annotations

from functools import cache
from math import sqrt

from tests.adaptive.fortified import readable_samples, reads_as_english
from tests.planted.defenses import Planted, Rule, bag_score, letter_trigrams, ngram_score

from guardmark.canon.steps import canonicalize
from guardmark.core.sample import Sample


def other_samples() -> list[Sample]:
    """Return built-in samples, most of them others than the search was tuned on."""
    return readable_samples(9)


@cache
def _shown() -> tuple[frozenset[str], ...]:
    attacks = [sample for sample in other_samples() if sample.is_attack]
    return tuple(letter_trigrams(sample.prompt.text) for sample in attacks[::2])


@cache
def _cosine(text: str) -> float:
    own = letter_trigrams(text)
    return max((len(own & each) / sqrt(1 + len(own) * len(each)) for each in _shown()), default=0.0)


def _coarse(text: str) -> float:
    return round(10 * ngram_score(text)) / 10


def _either(text: str) -> float:
    return max(bag_score(text), _cosine(text))


def _folded(text: str) -> float:
    return bag_score(canonicalize(text))


def _pair(name: str, score: object, threshold: float, *, is_gated: bool) -> tuple[Planted, Planted]:
    """Plant a defense twice: with its score, and with the score kept back."""

    def rule(text: str) -> tuple[bool, float | None]:
        value = score(text)  # type: ignore[operator]
        return value >= threshold or (is_gated and not reads_as_english(text)), value

    def mute(text: str) -> tuple[bool, float | None]:
        return rule(text)[0], None

    def started(each: Rule) -> Planted:
        title = name if each is rule else f"{name}, mute"
        return Planted(
            name=title,
            weakness="a score, held out",
            start=lambda: each,
            data=other_samples,
            is_scored=each is rule,
            is_gated=is_gated,
        )

    return started(rule), started(mute)


HELD_OUT = (
    _pair("cosine gated", _cosine, 0.5, is_gated=True),
    _pair("coarse n-grams gated", _coarse, 0.5, is_gated=True),
    _pair("either gated", _either, 0.55, is_gated=True),
    _pair("folded bag", _folded, 0.5, is_gated=False),
)
