"""Token probabilities of a guard's answer, turned into a score."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_IBM_START = 1e-50  # the published notebooks start both sums here, so that no logarithm fails


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenChoice:
    """One generated token with what could have stood there.

    Attributes:
        token: What was generated.
        top: Likely tokens with natural logarithms of their probabilities, likeliest first.
    """

    token: str
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScore:
    """A score from token probabilities.

    Attributes:
        score: Share of the risky label in the mass on both labels, in [0, 1].
        label_mass: Probability on both labels at the decision position, in [0, 1]; a low
            one says that the template does not fit the model. None for sums over positions.
        is_bound: Whether one label was not among the likely tokens, so that the score only
            says how near to 0 or 1 it is at least.
    """

    score: float
    label_mass: float | None
    is_bound: bool = False


def read_choices(logprobs: object) -> tuple[TokenChoice, ...]:
    """Read the `logprobs` member of an OpenAI-style chat choice.

    Args:
        logprobs: Whatever the server sent, or None.

    Returns:
        One entry a generated token; empty when the server gave none, or none of this form.
    """
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list):
        return ()
    return tuple(_choice(entry) for entry in content if isinstance(entry, dict))


def _choice(entry: Mapping[str, object]) -> TokenChoice:
    listed = entry.get("top_logprobs")
    shown = [one for one in (listed if isinstance(listed, list) else []) if isinstance(one, dict)]
    token = str(entry.get("token", ""))
    if token not in {one.get("token") for one in shown}:
        shown.append(dict(entry))  # the generated token counts even when it was an unlikely one
    top = [
        (str(one["token"]), _logarithm(one["logprob"]))
        for one in shown
        if "token" in one and _is_number(one.get("logprob"))
    ]
    return TokenChoice(token=token, top=tuple(sorted(top, key=lambda one: -one[1])))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value  # noqa: PLR0124 - not-a-number differs from itself


def _logarithm(value: float) -> float:
    """Within what a probability can be: servers round above 0 and send -9999 for never."""
    return min(0.0, max(-700.0, float(value)))


def two_token_softmax(
    choices: Sequence[TokenChoice], *, risky: str, harmless: str
) -> TokenScore | None:
    """Score the decision position: the first token with a letter or digit in it.

    Args:
        choices: Generated tokens in order.
        risky: Label that means block, lower case.
        harmless: Label that means allow, lower case.

    Returns:
        P(risky) / (P(risky) + P(harmless)), where all spellings of a label (`Yes`, ` yes`)
        are summed; a label split by the tokenizer counts by its first piece. A label that is
        not among the likely tokens counts with the most it can have: the probability of the
        least likely one shown, or what is left of 1. None without a decision position, or
        when neither label is among the likely tokens.
    """
    at = next((c for c in choices if any(letter.isalnum() for letter in c.token)), None)
    if at is None:
        return None
    found = _label_mass(at, risky, harmless), _label_mass(at, harmless, risky)
    if found[0] is None and found[1] is None:
        return None
    masses = [exp(value) for _, value in at.top]
    at_most = min(masses[-1], max(0.0, 1 - sum(masses)))
    p, q = (at_most if mass is None else mass for mass in found)
    observed = sum(mass for mass in found if mass is not None)
    return TokenScore(score=p / (p + q), label_mass=min(1.0, observed), is_bound=None in found)


def _label_mass(at: TokenChoice, label: str, other: str) -> float | None:
    """Probability of a label, or None when it is not shown."""
    exact = [value for token, value in at.top if _bare(token) == label]
    if not exact:
        exact = [value for token, value in at.top if _is_first_piece(_bare(token), label, other)]
    return sum(exp(value) for value in exact) if exact else None


def _bare(token: str) -> str:
    # Some servers show a tokenizer's own marks for a leading blank or line break.
    return token.strip(" \t\r\n\u0120\u2581\u010a*\"'`").lower()


def _is_first_piece(token: str, label: str, other: str) -> bool:
    return len(token) > 1 and label.startswith(token) and not other.startswith(token)


def ibm_sum(choices: Sequence[TokenChoice], *, risky: str, harmless: str) -> TokenScore | None:
    """Score as IBM's notebooks do: the mass of each label over all positions.

    Not the same number as `two_token_softmax` when a confidence tag follows the label. For
    comparison with published figures only.

    Args:
        choices: Generated tokens in order.
        risky: Label that means block, lower case.
        harmless: Label that means allow, lower case.

    Returns:
        The share of the risky label; None when no position shows either label.
    """
    sums = {risky: _IBM_START, harmless: _IBM_START}
    for choice in choices:
        for token, value in choice.top:
            label = token.strip().lower()
            if label in sums:
                sums[label] += exp(value)
    if max(sums.values()) <= _IBM_START:
        return None
    return TokenScore(score=sums[risky] / (sums[risky] + sums[harmless]), label_mass=None)
