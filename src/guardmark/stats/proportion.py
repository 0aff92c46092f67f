"""Intervals for one rate whose trials are independent of each other.

Wilson is the default: near its nominal coverage for small samples and for rates near 0 or 1,
where good defenses live. Clopper-Pearson is for guarantees ("at most x"), since Wilson may dip
below its nominal coverage for rates very near 0 or 1. Where trials share an origin, use
`guardmark.stats.clustered` instead.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from guardmark.core.estimate import Estimate
from guardmark.stats.arguments import require_fraction, require_part
from guardmark.stats.distributions import beta_quantile
from guardmark.stats.normal import two_sided_z

_NO_TRIALS = "no trials"


class Limits(NamedTuple):
    """Lower and upper end of an interval.

    Attributes:
        low: Lower end.
        high: Upper end.
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
        The estimate. At 0 successes the lower bound is 0, at all successes the upper is 1;
        the other bound stays informative.

    Raises:
        ValueError: If a count is out of range, or `confidence` is not in (0, 1).

    References:
        Wilson (1927), doi:10.1080/01621459.1927.10502953.
    """
    return _estimate(successes, trials, confidence=confidence, method="wilson")


def wilson_cc(successes: int, trials: int, *, confidence: float = 0.95) -> Estimate:
    """Estimate a rate with the continuity-corrected Wilson interval.

    For comparison with other tools only: it is no better than Clopper-Pearson.

    Args:
        successes: Trials with the property. Between 0 and `trials`.
        trials: Eligible, independent trials. Zero gives an undefined estimate.
        confidence: Nominal coverage, strictly between 0 and 1.

    Raises:
        ValueError: If a count is out of range, or `confidence` is not in (0, 1).

    References:
        Newcombe (1998), Statistics in Medicine 17:857, method 4.
    """
    return _estimate(successes, trials, confidence=confidence, method="wilson_cc")


def clopper_pearson(successes: int, trials: int, *, confidence: float = 0.95) -> Estimate:
    """Estimate a rate with the Clopper-Pearson interval.

    Its coverage is never below the nominal one: the interval for guarantees.

    Args:
        successes: Trials with the property. Between 0 and `trials`.
        trials: Eligible, independent trials. Zero gives an undefined estimate.
        confidence: Least coverage, strictly between 0 and 1.

    Raises:
        ValueError: If a count is out of range, or `confidence` is not in (0, 1).

    References:
        Clopper & Pearson (1934), doi:10.1093/biomet/26.4.404.
    """
    return _estimate(successes, trials, confidence=confidence, method="clopper_pearson")


def clopper_pearson_upper(successes: int, trials: int, *, confidence: float = 0.95) -> Estimate:
    """Bound a rate from above, guaranteed: "the rate is at most x".

    The whole error probability lies above, so the lower bound of the returned estimate is 0.

    Args:
        successes: Trials with the property. Between 0 and `trials`.
        trials: Eligible, independent trials. Zero gives an undefined estimate.
        confidence: Least coverage, strictly between 0 and 1.

    Raises:
        ValueError: If a count is out of range, or `confidence` is not in (0, 1).

    References:
        Clopper & Pearson (1934); at 0 successes this is 1 - (1 - confidence)^(1/trials).
    """
    return _estimate(successes, trials, confidence=confidence, method="clopper_pearson_upper")


def clopper_pearson_lower(successes: int, trials: int, *, confidence: float = 0.95) -> Estimate:
    """Bound a rate from below, guaranteed: "the rate is at least x".

    The whole error probability lies below, so the upper bound of the returned estimate is 1.

    Args:
        successes: Trials with the property. Between 0 and `trials`.
        trials: Eligible, independent trials. Zero gives an undefined estimate.
        confidence: Least coverage, strictly between 0 and 1.

    Raises:
        ValueError: If a count is out of range, or `confidence` is not in (0, 1).

    References:
        Clopper & Pearson (1934).
    """
    return _estimate(successes, trials, confidence=confidence, method="clopper_pearson_lower")


def jeffreys(successes: int, trials: int, *, confidence: float = 0.95) -> Estimate:
    """Estimate a rate with the Jeffreys interval, its ends set to 0 and 1.

    Args:
        successes: Trials with the property. Between 0 and `trials`.
        trials: Eligible, independent trials. Zero gives an undefined estimate.
        confidence: Nominal coverage, strictly between 0 and 1.

    Raises:
        ValueError: If a count is out of range, or `confidence` is not in (0, 1).

    References:
        Brown, Cai & DasGupta (2001), doi:10.1214/ss/1009213286, which sets the lower end to 0
        without successes and the upper to 1 without failures.
    """
    return _estimate(successes, trials, confidence=confidence, method="jeffreys")


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


def _estimate(successes: int, trials: int, *, confidence: float, method: str) -> Estimate:
    part, whole = require_part(successes, trials)
    require_fraction("confidence", confidence)
    limits = _LIMITS[method](part, whole, confidence) if whole else None
    return Estimate(
        successes=part,
        trials=whole,
        low=limits.low if limits else None,
        high=limits.high if limits else None,
        confidence=confidence,
        method=method,
        effective_n=float(whole) if whole else None,
        design_effect=1.0 if whole else None,
        reason="" if whole else _NO_TRIALS,
    )


def _wilson(successes: int, trials: int, confidence: float) -> Limits:
    return wilson_limits(successes / trials, trials, z=two_sided_z(confidence))


def _wilson_cc(successes: int, trials: int, confidence: float) -> Limits:
    z, rate = two_sided_z(confidence), successes / trials
    mid, scale = 2.0 * trials * rate + z * z, 2.0 * (trials + z * z)
    down = z * z - 2.0 - 1.0 / trials + 4.0 * rate * (trials * (1.0 - rate) + 1.0)
    up = z * z + 2.0 - 1.0 / trials + 4.0 * rate * (trials * (1.0 - rate) - 1.0)
    low = 0.0 if successes == 0 else (mid - 1.0 - z * math.sqrt(max(0.0, down))) / scale
    high = 1.0 if successes == trials else (mid + 1.0 + z * math.sqrt(max(0.0, up))) / scale
    return Limits(max(0.0, min(low, rate)), min(1.0, max(high, rate)))


def _clopper_pearson(successes: int, trials: int, confidence: float) -> Limits:
    each_side = 0.5 + confidence / 2.0
    return Limits(
        _clopper_pearson_lower(successes, trials, each_side).low,
        _clopper_pearson_upper(successes, trials, each_side).high,
    )


def _clopper_pearson_upper(successes: int, trials: int, confidence: float) -> Limits:
    if successes == trials:
        return Limits(0.0, 1.0)
    if successes == 0:
        return Limits(0.0, -math.expm1(math.log1p(-confidence) / trials))
    return Limits(0.0, beta_quantile(confidence, successes + 1, trials - successes))


def _clopper_pearson_lower(successes: int, trials: int, confidence: float) -> Limits:
    mirrored = _clopper_pearson_upper(trials - successes, trials, confidence)
    return Limits(1.0 - mirrored.high, 1.0)


def _jeffreys(successes: int, trials: int, confidence: float) -> Limits:
    tail = (1.0 - confidence) / 2.0
    a, b = successes + 0.5, trials - successes + 0.5
    low = 0.0 if successes == 0 else beta_quantile(tail, a, b)
    high = 1.0 if successes == trials else 1.0 - beta_quantile(tail, b, a)
    return Limits(low, high)


_LIMITS = {
    "wilson": _wilson,
    "wilson_cc": _wilson_cc,
    "clopper_pearson": _clopper_pearson,
    "clopper_pearson_upper": _clopper_pearson_upper,
    "clopper_pearson_lower": _clopper_pearson_lower,
    "jeffreys": _jeffreys,
}
