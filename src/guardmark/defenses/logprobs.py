"""Token probabilities of a guard's answer, turned into a score."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isnan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guardmark.core.outcome import TokenChoice

Words = str | Sequence[str]

_IBM_START = 1e-50  # the published notebooks start both sums here, so that no logarithm fails


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScore:
    """A score from token probabilities."""

    score: float
    label_mass: float | None
    is_bound: bool = False


def two_token_softmax(
    choices: Sequence[TokenChoice], *, risky: Words, harmless: Words, after: str = ""
) -> TokenScore | None:
    """Score the first token with a letter or digit, behind the last match of `after`."""
    at = _decision(choices, after)
    if at is None:
        return None
    top = _probabilities(at)
    words = _listed(risky), _listed(harmless)
    label_masses = _label_mass(top, *words), _label_mass(top, *reversed(words))
    if label_masses[0] is None and label_masses[1] is None:
        return None
    masses = [mass for _, mass in top]
    at_most = min(*masses, max(0.0, 1 - sum(masses)))
    p, q = (at_most if mass is None else mass for mass in label_masses)
    observed = sum(mass for mass in label_masses if mass is not None)
    return TokenScore(
        score=p / (p + q), label_mass=min(1.0, observed), is_bound=None in label_masses
    )


def _listed(words: Words) -> Sequence[str]:
    return [words] if isinstance(words, str) else words


def _decision(choices: Sequence[TokenChoice], after: str) -> TokenChoice | None:
    """The token that decides: the first word, or the first one that goes past a match."""
    texts = [_shown(choice.token) for choice in choices]
    matches = list(re.finditer(after, "".join(texts), re.IGNORECASE)) if after else []
    if after and not matches:
        return None
    start, end = matches[-1].end() if matches else 0, 0
    for choice, text in zip(choices, texts, strict=True):
        end += len(text)
        if end > start and any(letter.isalnum() for letter in text):
            return choice
    return None


def _shown(token: str) -> str:
    # Some servers show a tokenizer's own marks for a leading blank or line break.
    return token.translate({0x120: " ", 0x2581: " ", 0x10A: "\n"})


def _probabilities(at: TokenChoice) -> list[tuple[str, float]]:
    """Tokens with probabilities; servers round above 1 and send -9999 for never."""
    return [
        (token, exp(min(0.0, max(-700.0, value))))
        for token, value in at.alternatives
        if not isnan(value)
    ]


def _label_mass(
    top: Sequence[tuple[str, float]], labels: Sequence[str], others: Sequence[str]
) -> float | None:
    """Probability of the labels, or None when none of them is shown."""
    masses = []
    for label in labels:
        exact = [mass for token, mass in top if _bare(token) == label]
        if not exact:
            rest = [each for each in (*labels, *others) if each != label]
            exact = [mass for token, mass in top if _is_first_piece(_bare(token), label, rest)]
        masses.extend(exact)
    return sum(masses) if masses else None


def _bare(token: str) -> str:
    return _shown(token).strip(" \t\r\n*\"'`").lower()


def _is_first_piece(token: str, label: str, others: Sequence[str]) -> bool:
    shared = any(other.startswith(token) for other in others)
    return len(token) > 1 and label.startswith(token) and not shared


def ibm_sum(choices: Sequence[TokenChoice], *, risky: Words, harmless: Words) -> TokenScore | None:
    """Score as IBM's notebooks do, by the mass of each label over all positions."""
    words = set(_listed(risky)), set(_listed(harmless))
    sums = [_IBM_START, _IBM_START]
    for choice in choices:
        for token, mass in _probabilities(choice):
            for side in (0, 1):
                sums[side] += mass if token.strip().lower() in words[side] else 0.0
    if max(sums) <= _IBM_START:
        return None
    return TokenScore(score=sums[0] / sum(sums), label_mass=None)
