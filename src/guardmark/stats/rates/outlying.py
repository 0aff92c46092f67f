"""A slice against the rest of the data: is its rate higher beyond chance?

Where many slices are searched, the confidence is that of one of so many (Bonferroni), which makes
limits that hold for all of them at once. At such confidences a score interval claims too much of
rare events: 1 of 20 against 0 of 1,000 lies apart by Wilson's limits at one in ten thousand, while
chance puts it there once in fifty. So limits are exact, at what the rows of each side are worth.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.estimate import Difference
from guardmark.stats.arguments import require_fraction
from guardmark.stats.rates.proportion import exact_limits

if TYPE_CHECKING:
    from guardmark.stats.arguments import Floats, Ints
    from guardmark.stats.rates.clustered import EffectiveCounts

_SCREEN = 1.5  # standard errors


def excess_over_rest(
    part: EffectiveCounts, rest: EffectiveCounts, *, searched: int = 1, confidence: float = 0.95
) -> Difference:
    """Estimate by how much the rate of a slice lies above that of all other rows.

    Clopper and Pearson's limits at effective counts on each side, put together by MOVER. A group
    with rows on both sides makes the two alike, so limits are then wider than they need to be.

    Args:
        part: Counts of the slice.
        rest: Counts of all rows outside of it.
        searched: How many slices were looked at, this one included; at least 1. The interval is
            one of so many that all hold together.
        confidence: Nominal coverage of all of them together, in (0, 1).

    Returns:
        Rate of the slice minus that of the rest; without limits where either side has no effective
        count, since nothing then shows how groups differ.

    Raises:
        ValueError: If `searched` is below 1 or `confidence` is not in (0, 1).

    Source: Zou & Donner (2008), doi:10.1002/sim.3095; Korn & Graubard (1998), Survey Methodology
    24:193; family error by simulation, docs/decisions/0091.
    """
    require_fraction("confidence", confidence)
    if searched < 1:
        raise ValueError(f"searched must be at least 1, got {searched}")
    one_of_all = 1.0 - (1.0 - confidence) / searched
    gap = part.rate - rest.rate
    low = high = None
    reason = part.reason or rest.reason
    if part.n_eff and rest.n_eff:
        mine, others = (
            exact_limits(side.rate, side.worth(one_of_all), confidence=one_of_all)
            for side in (part, rest)
        )
        low = max(-1.0, gap - math.hypot(part.rate - mine.low, others.high - rest.rate))
        high = min(1.0, gap + math.hypot(mine.high - part.rate, rest.rate - others.low))
        reason = ""
    return Difference(
        value=gap if part.trials and rest.trials else None,
        low=low,
        high=high,
        confidence=confidence,
        method=f"mover of exact limits, one of {searched:,}",
        pairs=min(part.trials, rest.trials),
        reason=reason,
    )


def standing_out(hits: Ints, trials: Ints, *, all_hits: int, all_trials: int) -> Floats:
    """Return how far slices lie above all other rows, in standard errors of independent rows.

    Where that is 1.5 or less it is 0: groups only widen limits, so what is not even this far above
    the rest is never shown to be, and needs no close look.
    """
    others = all_trials - trials
    with np.errstate(divide="ignore", invalid="ignore"):
        pooled = all_hits / all_trials if all_trials else 0.0
        error = np.sqrt(pooled * (1.0 - pooled) * (1.0 / trials + 1.0 / others))
        far = (hits / trials - (all_hits - hits) / others) / error
    return np.where(np.isfinite(far) & (far > _SCREEN), far, 0.0)
