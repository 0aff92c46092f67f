"""Token probabilities of a guard's answer, turned into a score."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isnan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.core.outcome import TokenChoice

_IBM_START = 1e-50  # the published notebooks start both sums here, so that no logarithm fails


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScore:
    """A score from token probabilities."""

    score: float
    label_mass: float | None
    is_bound: bool = False


def two_token_softmax(
    choices: Sequence[TokenChoice], *, risky: str, harmless: str
) -> TokenScore | None:
    """Score the decision position: the first token with a letter or digit in it."""
    at = next((c for c in choices if any(letter.isalnum() for letter in c.token)), None)
    if at is None:
        return None
    top = _probabilities(at)
    found = _label_mass(top, risky, harmless), _label_mass(top, harmless, risky)
    if found[0] is None and found[1] is None:
        return None
    masses = [mass for _, mass in top]
    at_most = min(*masses, max(0.0, 1 - sum(masses)))
    p, q = (at_most if mass is None else mass for mass in found)
    observed = sum(mass for mass in found if mass is not None)
    return TokenScore(score=p / (p + q), label_mass=min(1.0, observed), is_bound=None in found)


def _probabilities(at: TokenChoice) -> list[tuple[str, float]]:
    """Tokens with probabilities; servers round above 1 and send -9999 for never."""
    return [
        (token, exp(min(0.0, max(-700.0, value))))
        for token, value in at.alternatives
        if not isnan(value)
    ]


def _label_mass(top: Sequence[tuple[str, float]], label: str, other: str) -> float | None:
    """Probability of a label, or None when it is not shown."""
    exact = [mass for token, mass in top if _bare(token) == label]
    if not exact:
        exact = [mass for token, mass in top if _is_first_piece(_bare(token), label, other)]
    return sum(exact) if exact else None


def _bare(token: str) -> str:
    # Some servers show a tokenizer's own marks for a leading blank or line break.
    return token.strip(" \t\r\n\u0120\u2581\u010a*\"'`").lower()


def _is_first_piece(token: str, label: str, other: str) -> bool:
    return len(token) > 1 and label.startswith(token) and not other.startswith(token)


def ibm_sum(choices: Sequence[TokenChoice], *, risky: str, harmless: str) -> TokenScore | None:
    """Score as IBM's notebooks do: the mass of each label over all positions.

    Not the same number as `two_token_softmax` when a confidence tag follows the label. For
    comparison with published figures only.
    """
    sums = {risky: _IBM_START, harmless: _IBM_START}
    for choice in choices:
        for token, mass in _probabilities(choice):
            label = token.strip().lower()
            if label in sums:
                sums[label] += mass
    if max(sums.values()) <= _IBM_START:
        return None
    return TokenScore(score=sums[risky] / (sums[risky] + sums[harmless]), label_mass=None)
