"""Intervals for the difference of two rates on different samples.

The weaker design: each side brings its own luck of the draw. Callers say so where they show it.
"""

from __future__ import annotations

import math

from guardmark.core.estimate import Difference, Estimate
from guardmark.stats.arguments import Counts, require_fraction, require_part
from guardmark.stats.distributions import as_p_value
from guardmark.stats.normal import two_sided_p, two_sided_z
from guardmark.stats.proportion import Limits, wilson_limits
from guardmark.stats.score_statistics import bisect_falling, miettinen_nurminen_score

_NO_INTERVAL = "one side has no interval"


def newcombe(first: Counts, second: Counts, *, confidence: float = 0.95) -> Difference:
    """Estimate the difference of two independent rates from two Wilson intervals.

    Args:
        first: Events and trials of the first.
        second: Events and trials of the second.
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        First rate minus second with its interval and the score test's p; undefined when a side
        has no trials.

    Raises:
        ValueError: If a count is out of range, or `confidence` is not in (0, 1).

    References:
        Newcombe (1998), Statistics in Medicine 17:873, method 10.
    """
    one, two = _checked(first, second, confidence)
    if not (one.trials and two.trials):
        return _undefined(one, two, confidence=confidence, method="newcombe_independent")
    z = two_sided_z(confidence)
    p1, p2 = one.successes / one.trials, two.successes / two.trials
    around1, around2 = wilson_limits(p1, one.trials, z=z), wilson_limits(p2, two.trials, z=z)
    limits = Limits(
        p1 - p2 - math.hypot(p1 - around1.low, around2.high - p2),
        p1 - p2 + math.hypot(around1.high - p1, p2 - around2.low),
    )
    return _difference(
        one, two, limits=limits, confidence=confidence, method="newcombe_independent"
    )


def miettinen_nurminen(first: Counts, second: Counts, *, confidence: float = 0.95) -> Difference:
    """Estimate the difference of two independent rates by inverting a score test.

    Args:
        first: Events and trials of the first.
        second: Events and trials of the second.
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        First rate minus second with its interval and the score test's p; undefined when a side
        has no trials.

    Raises:
        ValueError: If a count is out of range, or `confidence` is not in (0, 1).

    References:
        Miettinen & Nurminen (1985), doi:10.1002/sim.4780040211.
    """
    one, two = _checked(first, second, confidence)
    if not (one.trials and two.trials):
        return _undefined(one, two, confidence=confidence, method="miettinen_nurminen")
    z = two_sided_z(confidence)
    value = one.successes / one.trials - two.successes / two.trials

    def score(margin: float) -> float:
        return miettinen_nurminen_score(one, two, margin=margin)

    limits = Limits(
        bisect_falling(score, target=z, low=-1.0, high=value),
        bisect_falling(score, target=-z, low=value, high=1.0),
    )
    return _difference(one, two, limits=limits, confidence=confidence, method="miettinen_nurminen")


def mover(first: Estimate, second: Estimate) -> Difference:
    """Estimate the difference of two independent rates from the intervals they have already.

    For rates whose trials come in groups: each interval knows its own groups, and the method of
    variance estimates recovery puts them together. From two Wilson intervals it is Newcombe's.

    Args:
        first: A rate with its interval.
        second: Another one, of other samples, at the same confidence.

    Returns:
        First rate minus second with its interval, without a test; undefined when a side has no
        trials.

    Raises:
        ValueError: If the two have different confidences.

    References:
        Zou & Donner (2008), doi:10.1002/sim.3095.
    """
    if first.confidence != second.confidence:
        raise ValueError(f"confidences differ: {first.confidence}, {second.confidence}")
    one, two = first.value, second.value
    if one is None or two is None:
        return _undefined(
            Counts(first.successes, first.trials),
            Counts(second.successes, second.trials),
            confidence=first.confidence,
            method="mover",
        )
    gap, low, high, reason = one - two, None, None, _NO_INTERVAL
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


def _checked(first: Counts, second: Counts, confidence: float) -> tuple[Counts, Counts]:
    require_fraction("confidence", confidence)
    return require_part(*first), require_part(*second)


def _undefined(first: Counts, second: Counts, *, confidence: float, method: str) -> Difference:
    neither = not (first.trials or second.trials)
    return Difference(
        value=None,
        low=None,
        high=None,
        confidence=confidence,
        method=method,
        reason="neither side has trials" if neither else "one side has no trials",
    )


def _difference(
    first: Counts, second: Counts, *, limits: Limits, confidence: float, method: str
) -> Difference:
    statistic = miettinen_nurminen_score(first, second, margin=0.0)
    return Difference(
        value=first.successes / first.trials - second.successes / second.trials,
        low=max(-1.0, limits.low),
        high=min(1.0, limits.high),
        confidence=confidence,
        method=method,
        p_value=as_p_value(two_sided_p(statistic)),
        test="miettinen_nurminen_score",
        pairs=min(first.trials, second.trials),
    )
