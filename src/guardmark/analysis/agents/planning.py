"""How many injections a suite needs for a width, beside so many tasks: simulated and analysed."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.rates.crossed import crossed_rate

_RUNS: Final = 60
_MOST: Final = 600
_SPREADS: Final = (1.0, 1.5)
"""Effects of tasks and of injections on the scale of logits, as agents show them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossedPlan:
    """What a size promises.

    Attributes:
        tasks: Tasks that are crossed with the injections.
        injections: Injections that are needed, or None where no number is enough.
        margin: Half-width that is wanted.
        rate: True rate that is assumed.
        half_width: Median half-width at that size, or at the largest that was tried.
        runs: Runs that were simulated for each size.
    """

    tasks: int
    injections: int | None
    margin: float
    rate: float
    half_width: float
    runs: int = _RUNS


def plan_injections(
    tasks: int, margin: float, *, rate: float = 0.5, confidence: float = 0.95, seed: int = 7
) -> CrossedPlan:
    """Return the fewest injections with which half of all runs know attack success to a margin."""
    sizes = []
    size = 4
    while size <= _MOST:
        sizes.append(size)
        size = max(size + 1, math.ceil(size * 1.25))
    width = 1.0
    for size in sizes:
        width = _half_width(tasks, size, rate=rate, confidence=confidence, seed=seed)
        if width <= margin:
            return CrossedPlan(
                tasks=tasks, injections=size, margin=margin, rate=rate, half_width=width
            )
    return CrossedPlan(tasks=tasks, injections=None, margin=margin, rate=rate, half_width=width)


def _half_width(tasks: int, injections: int, *, rate: float, confidence: float, seed: int) -> float:
    """Return the median half-width of the interval over simulated runs of a size."""
    random = np.random.default_rng([seed, tasks, injections])
    first = np.repeat(np.arange(tasks), injections)
    second = np.tile(np.arange(injections), tasks)
    # The mean over effects is drawn towards one half: the middle is set so that it is the rate.
    spread = math.hypot(*_SPREADS)
    middle = math.log(rate / (1.0 - rate)) * math.sqrt(1.0 + (0.588 * spread) ** 2)
    widths = []
    for _ in range(_RUNS):
        of_task = random.normal(0.0, _SPREADS[0], tasks)
        of_injection = random.normal(0.0, _SPREADS[1], injections)
        logits = middle + of_task[first] + of_injection[second]
        successes = random.random(len(logits)) < 1.0 / (1.0 + np.exp(-logits))
        estimate = crossed_rate(successes, first=first, second=second, confidence=confidence)
        if estimate.low is not None and estimate.high is not None:
            widths.append((estimate.high - estimate.low) / 2.0)
    if widths:
        return float(np.median(widths))
    return 1.0
