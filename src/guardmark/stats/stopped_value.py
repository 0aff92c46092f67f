"""The value of a rate at which a rule ended the run: the one that is as often too high as too low.

A rule waits until the rate seen lies far enough from its limit, so the share that was seen leans
away from it: at a true rate of .20, and a rule that asks whether it is below .10, it is .25 on
average. The median-unbiased value asks at which rate a run would as often have ended lower as
higher than this one did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.arguments import require_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.stats.arguments import Floats

_HALVINGS = 50


class LookBounds(NamedTuple):
    """What a look decides, of so many trials.

    Attributes:
        trials: Trials that all looks up to this one cover.
        low: Most successes with which the rate is shown to be below the limit; -1: none are.
        high: Fewest successes with which it is shown not to be; above `trials`: none are.
    """

    trials: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    """Chances of ending at a look, by successes, at the rate they were computed with.

    Attributes:
        low: By a rate shown to be below the limit.
        high: By one shown not to be.
    """

    trials: int
    low: Floats
    high: Floats


def median_unbiased(
    looks: Sequence[LookBounds],
    successes: int,
    *,
    between: tuple[float, float],
    first: int = 0,
) -> float:
    """Return the rate at which the run would as often have ended lower as higher.

    Endings are ordered by stage: shown to be below the limit at the first look is lowest, then at
    the next, and so on; open at the last look lies between; shown not to be below it at the first
    look is highest. Within a stage fewer successes are lower; the ending seen counts half.

    Args:
        looks: Every look up to the last, at which the run ended, decided or not.
        successes: Successes among the trials of the last look.
        between: Where to look for the rate: its limits.
        first: The look before which the run could not end (another rule was still open). What is
            decided before ends there.

    Source: Whitehead (1986), doi:10.1093/biomet/73.3.573; Fan, DeMets & Lan (2004),
    doi:10.1081/BIP-120037195 (ordering by stage).
    """
    last = looks[-1]
    seen = require_part(successes, last.trials).successes
    lowest, highest = max(1e-9, between[0]), min(1.0 - 1e-9, between[1])
    guess = min(max(seen / max(1, last.trials), lowest), highest)
    endings, still_open = _endings(looks, guess, first=first)

    def at_rate(chances: Floats, trials: int, rate: float) -> Floats:
        """Bring chances from the rate they were computed with to another."""
        held = np.flatnonzero(chances)
        shift = held * np.log(rate / guess)
        shift += (trials - held) * np.log((1.0 - rate) / (1.0 - guess))
        moved = np.zeros_like(chances)
        moved[held] = np.exp(np.minimum(0.0, np.log(chances[held]) + shift))
        return moved

    def below(rate: float) -> float:
        """Return the chance of a lower ending, and half of that of this one."""
        lower = higher = 0.0  # of the looks before the last
        for ending in endings[:-1]:
            lower += float(at_rate(ending.low, ending.trials, rate).sum())
            higher += float(at_rate(ending.high, ending.trials, rate).sum())
        ending = endings[-1]
        low = at_rate(ending.low, ending.trials, rate)
        high = at_rate(ending.high, ending.trials, rate)
        if seen <= last.low or low[seen] > 0.0:
            return lower + _half_below(low, seen)
        if seen >= last.high or high[seen] > 0.0:
            return 1.0 - higher - _half_below(high[::-1], len(high) - 1 - seen)
        rest = at_rate(still_open, last.trials, rate)
        return lower + float(low.sum()) + _half_below(rest, seen)

    low, high = lowest, highest
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if below(middle) > 0.5:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _half_below(chances: Floats, at: int) -> float:
    return float(chances[:at].sum() + chances[at] / 2.0)


def _endings(
    looks: Sequence[LookBounds], rate: float, *, first: int
) -> tuple[list[_Ending], Floats]:
    """Return the chances of ending at each look, and of being open after the last."""
    still_open, low, high = np.ones(1), np.zeros(1), np.zeros(1)
    endings, before = [], 0
    for number, look in enumerate(looks):
        step = _binomial(look.trials - before, rate)
        before = look.trials
        still_open = np.convolve(still_open, step)
        low = np.convolve(low, step)
        high = np.convolve(high, step)
        count = np.arange(look.trials + 1)
        is_low, is_high = count <= look.low, count >= look.high
        low = low + np.where(is_low, still_open, 0.0)
        high = high + np.where(is_high, still_open, 0.0)
        still_open = np.where(is_low | is_high, 0.0, still_open)
        if number < first:
            continue
        endings.append(_Ending(trials=look.trials, low=low, high=high))
        low, high = np.zeros_like(low), np.zeros_like(high)
    return endings, still_open


def _binomial(trials: int, rate: float) -> Floats:
    """Return the chances of 0 to all successes."""
    steps = np.arange(1, trials + 1, dtype=np.float64)
    logs = np.concatenate(([0.0], np.cumsum(np.log((trials - steps + 1.0) / steps))))
    count = np.arange(trials + 1)
    chances: Floats = np.exp(logs + count * np.log(rate) + (trials - count) * np.log1p(-rate))
    return chances
