"""Intervals for one rate whose trials are independent, and for the difference of two rates.

Wilson is the default: near its nominal coverage for small samples and for rates near 0 or 1, where
good defenses live. Clopper-Pearson is for guarantees ("at most x"), since Wilson may dip below its
nominal coverage for rates very near 0 or 1. Where trials share an origin, use
`guardmark.stats.rates.clustered` instead.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.core.estimate import Difference, Estimate
from guardmark.stats.arguments import require_fraction, require_part, require_rate
from guardmark.stats.distributions import beta_quantile, two_sided_p, two_sided_z

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_TRIALS: Final = 2_000_000
NO_TRIALS: Final = "no trials"
ONE_GROUP: Final = "one group only: nothing shows how groups differ"


class Limits(NamedTuple):
    """Lower and upper end of an interval.

    Attributes:
        low: The lower limit.
        high: The upper limit.
    """

    low: float
    high: float


def wilson(successes: int, trials: int, *, confidence: float = 0.95) -> Estimate:
    """Estimate a rate with the Wilson score interval.

    Args:
        successes: Trials with the property. Between 0 and `trials`.
        trials: Eligible, independent trials. Zero gives an undefined estimate.
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        The estimate. At 0 successes the lower bound is 0, at all successes the upper is 1; the
        other bound stays informative.

    Raises:
        ValueError: If a count is out of range, or `confidence` is not in (0, 1).

    Source: Wilson (1927), doi:10.1080/01621459.1927.10502953.
    """
    return estimate_rate(successes, trials, limits=_wilson, confidence=confidence, method="wilson")


def clopper_pearson(successes: int, trials: int, *, confidence: float = 0.95) -> Estimate:
    """Estimate a rate with the Clopper-Pearson interval.

    Its coverage is never below the nominal one: the interval for guarantees. Arguments and errors
    are those of `wilson`, as are the bounds at 0 and at all successes.
    Source: Clopper & Pearson (1934), doi:10.1093/biomet/26.4.404.
    """
    return estimate_rate(
        successes, trials, limits=_clopper_pearson, confidence=confidence, method="clopper_pearson"
    )


def estimate_rate(
    successes: int,
    trials: int,
    *,
    limits: Callable[[int, int, float], Limits],
    confidence: float,
    method: str,
) -> Estimate:
    """Estimate a rate of independent trials with an interval of one's own; see `wilson`.

    `limits` is a function from successes, trials (at least 1) and confidence to the interval.
    """
    part, whole = require_part(successes, trials)
    require_fraction("confidence", confidence)
    low, high = limits(part, whole, confidence) if whole else (None, None)
    return Estimate(
        successes=part,
        trials=whole,
        low=low,
        high=high,
        confidence=confidence,
        method=method,
        effective_n=float(whole) if whole else None,
        design_effect=1.0 if whole else None,
        reason="" if whole else NO_TRIALS,
    )


def wilson_limits(rate: float, trials: float, *, z: float) -> Limits:
    """Return the Wilson limits for a rate and a number of trials, whole or not.

    The form for effective sample sizes and for planning, where counts are not whole numbers.

    Args:
        rate: Observed rate, in [0, 1].
        trials: Trials, or what they are worth; above 0.
        z: Quantile that sets the confidence (normal, or t with few groups).
    """
    inflation = z * z / trials
    centre = rate + inflation / 2.0
    half = z * math.sqrt(rate * (1.0 - rate) / trials + inflation / (4.0 * trials))
    low = (centre - half) / (1.0 + inflation)
    high = (centre + half) / (1.0 + inflation)
    # Rounding may push an end past the rate itself; an interval holds its own estimate.
    return Limits(
        0.0 if rate == 0 else max(0.0, min(low, rate)),
        1.0 if rate == 1 else min(1.0, max(high, rate)),
    )


def exact_limits(rate: float, trials: float, *, confidence: float) -> Limits:
    """Return Clopper and Pearson's limits for a rate and what its trials are worth, above 0.

    Source: Korn & Graubard (1998), Survey Methodology 24, 193-201 (trials that are not whole).
    """
    tail = (1.0 - confidence) / 2.0
    hits, misses = rate * trials, (1.0 - rate) * trials
    low = beta_quantile(tail, hits, misses + 1.0) if hits else 0.0
    high = beta_quantile(1.0 - tail, hits + 1.0, misses) if misses else 1.0
    return Limits(low, high)


def mover(first: Estimate, second: Estimate) -> Difference:
    """Estimate the difference of two independent rates from the intervals they have already.

    For rates of different samples whose trials come in groups: each interval knows its own groups,
    and the method of variance estimates recovery puts them together. From two Wilson intervals it
    is Newcombe's. The weaker design: each side brings its own luck of the draw. Callers say so.
    First rate minus second with its interval, without a test; undefined when a side has no trials.

    Raises:
        ValueError: If the two have different confidences.

    Source: Zou & Donner (2008), doi:10.1002/sim.3095.
    """
    if first.confidence != second.confidence:
        raise ValueError(f"confidences differ: {first.confidence}, {second.confidence}")
    one, two = first.value, second.value
    if one is None or two is None:
        neither = one is None and two is None
        return undefined_difference(neither=neither, confidence=first.confidence, method="mover")
    gap, low, high, reason = one - two, None, None, "one side has no interval"
    if not (first.low is None or first.high is None or second.low is None or second.high is None):
        low = max(-1.0, gap - math.hypot(one - first.low, second.high - two))
        high = min(1.0, gap + math.hypot(first.high - one, two - second.low))
        reason = ""
    return Difference(
        value=gap,
        low=low,
        high=high,
        confidence=first.confidence,
        method="mover",
        pairs=min(first.trials, second.trials),
        reason=reason,
    )


class BoundedRate(NamedTuple):
    """A rate with the limits of its interval.

    Attributes:
        value: The rate.
        low: Lower limit.
        high: Upper limit.
    """

    value: float
    low: float
    high: float


def mover_p_value(
    first: BoundedRate, second: BoundedRate, *, confidence: float = 0.95
) -> float | None:
    """Return the two-sided p of "no difference" that goes with the limits of `mover`.

    For two rates on samples of their own, whose intervals have this `confidence`: the gap in units
    of the distance at which MOVER's limit meets zero, taken as normal. It is below 1 - confidence
    just where MOVER's interval excludes zero. None where the limits that face each other leave no
    distance, as at rates of 0 and 1.

    Source: Newcombe (1998), Statistics in Medicine 17:873; Zou & Donner (2008), 27:1693.
    """
    lower, upper = first, second
    if first.value > second.value:
        lower, upper = second, first
    distance = math.hypot(lower.high - lower.value, upper.value - upper.low)
    if not distance:
        return None
    return two_sided_p((upper.value - lower.value) / distance * two_sided_z(confidence))


def undefined_difference(*, neither: bool, confidence: float, method: str) -> Difference:
    """Return the difference of two rates of which one has, or neither has, trials."""
    reason = "neither side has trials" if neither else "one side has no trials"
    return Difference(
        value=None, low=None, high=None, confidence=confidence, method=method, reason=reason
    )


def _wilson(successes: int, trials: int, confidence: float) -> Limits:
    return wilson_limits(successes / trials, trials, z=two_sided_z(confidence))


def _clopper_pearson(successes: int, trials: int, confidence: float) -> Limits:
    each_side = 0.5 + confidence / 2.0
    return Limits(
        _lower(successes, trials, each_side).low, _upper(successes, trials, each_side).high
    )


def _upper(successes: int, trials: int, confidence: float) -> Limits:
    if successes == trials:
        return Limits(0.0, 1.0)
    if successes == 0:
        return Limits(0.0, -math.expm1(math.log1p(-confidence) / trials))
    return Limits(0.0, beta_quantile(confidence, successes + 1, trials - successes))


def _lower(successes: int, trials: int, confidence: float) -> Limits:
    return Limits(1.0 - _upper(trials - successes, trials, confidence).high, 1.0)


def wilson_half_width(rate: float, trials: float, *, confidence: float = 0.95) -> float:
    """Return half the width of the Wilson interval at an assumed rate.

    `trials`, above 0, are independent; rate * trials need not be whole.
    """
    require_rate("rate", rate)
    require_fraction("confidence", confidence)
    if not trials > 0:
        raise ValueError(f"trials must be above 0, got {trials}")
    limits = wilson_limits(rate, trials, z=two_sided_z(confidence))
    return (limits.high - limits.low) / 2.0


def trials_for_half_width(half_width: float, *, rate: float = 0.5, confidence: float = 0.95) -> int:
    """Return the least number of trials whose Wilson half-width, in (0, 0.5), meets a margin.

    The assumed rate 0.5 is the worst case; at another, the rate *seen* may be nearer to it, and the
    margin missed (`plan_margin` allows for that).
    """
    require_rate("rate", rate)
    require_fraction("confidence", confidence)
    if not 0.0 < half_width < 0.5:
        raise ValueError(f"half_width must be in (0, 0.5), got {half_width}")
    z = two_sided_z(confidence)

    def is_enough(trials: int) -> bool:
        limits = wilson_limits(rate, trials, z=z)
        return limits.high - limits.low <= 2 * half_width

    return least_enough(is_enough)


def least_enough(is_enough: Callable[[int], bool], *, least: int = 1, spread: float = 0.0) -> int:
    """Return the smallest number from `least` on that is enough, where more always are.

    With a `spread` it is one that is enough, above the smallest by at most that share.
    """
    low, high = least - 1, least
    while not is_enough(high):
        low, high = high, max(2 * high, 1)
        if high > _MOST_TRIALS:
            raise ValueError(f"more than {_MOST_TRIALS} samples must be asked")
    while high - low > 1 + spread * low:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
