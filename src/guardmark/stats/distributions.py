"""Quantiles and tails of the few distributions the estimators stand on.

They are computed here, in plain Python: every rate of every report needs some of them, and
importing a numerical library for a few functions would cost more than the whole report (ADR 0104).
The same functions over arrays are in `special_functions`. `tests/oracles` holds both against scipy.
"""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from statistics import NormalDist

from guardmark.stats.arguments import require_fraction

_TINY = 1e-300
_LARGE_DF = 1000
_LARGE_GAMMA = 16.0
_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)
_MOST_TERMS = 200_000
_MOST_STEPS = 200


@lru_cache(maxsize=256)
def normal_quantile(probability: float) -> float:
    """Return the standard normal quantile of a probability in (0, 1)."""
    return NormalDist().inv_cdf(probability)


def normal_upper_tail(z: float) -> float:
    """Return P(Z > z) of a standard normal, right also far out in the tail."""
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def two_sided_t(confidence: float, degrees_of_freedom: float) -> float:
    """Return Student's t quantile of a two-sided interval at this confidence."""
    return t_quantile(0.5 + confidence / 2.0, degrees_of_freedom)


@lru_cache(maxsize=4096)
def t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Return the quantile of Student's t for degrees of freedom above 0.

    Source: Abramowitz & Stegun (1964), 26.7.5 for many degrees of freedom; below that Newton steps
    on the tail, which is convex there, so they rise to the root and never pass it.
    """
    require_fraction("probability", probability)
    if not degrees_of_freedom > 0:
        raise ValueError(f"degrees_of_freedom must be above 0, got {degrees_of_freedom}")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, degrees_of_freedom)
    z = normal_quantile(probability)
    if probability == 0.5:
        return 0.0
    if degrees_of_freedom > _LARGE_DF:
        return _t_from_normal(z, degrees_of_freedom)
    tail = 1.0 - probability
    if degrees_of_freedom == 1:
        return 1.0 / math.tan(math.pi * tail)
    if degrees_of_freedom == 2:
        return (1.0 - 2.0 * tail) / math.sqrt(2.0 * tail * (1.0 - tail))
    t = step = z
    # Steps square the error, so after one this small nothing is left to gain.
    while step > 1e-8 * t:
        step = (t_upper_tail(t, degrees_of_freedom) - tail) / _t_density(t, degrees_of_freedom)
        t += step
    return t


def t_upper_tail(t: float, degrees_of_freedom: float) -> float:
    """Return P(T > t) of Student's t."""
    if t < 0:
        return 1.0 - t_upper_tail(-t, degrees_of_freedom)
    if math.isinf(t):
        return 0.0
    if t < 1.0:  # from the other end: for small t the share below rounds to 1
        rest = t * t / (degrees_of_freedom + t * t)
        return 0.5 - 0.5 * incomplete_beta(rest, 0.5, degrees_of_freedom / 2.0)
    share = degrees_of_freedom / (degrees_of_freedom + t * t)
    return 0.5 * incomplete_beta(share, degrees_of_freedom / 2.0, 0.5)


def chi_square_upper_tail(statistic: float, degrees_of_freedom: int) -> float:
    """Return P(X > statistic) of a chi-square distribution.

    Source: Abramowitz & Stegun (1964), 26.4.4 and 26.4.5: finite sums of positive terms.
    """
    if statistic <= 0.0:
        return 1.0
    half = statistic / 2.0
    if math.isinf(half):
        return 0.0
    if degrees_of_freedom % 2 == 0:
        tail, power = 0.0, 0.0
    else:
        tail, power = math.erfc(math.sqrt(half)), 0.5
    while power < degrees_of_freedom / 2.0:
        tail += math.exp(power * math.log(half) - half - math.lgamma(power + 1.0))
        power += 1.0
    return min(1.0, tail)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b): P(X <= x) of a beta distribution.

    Args:
        x: Where the distribution is cut; below 0 counts as 0 and above 1 as 1.
        a: First shape, above 0.
        b: Second shape, above 0.

    Returns:
        A probability in [0, 1], with small relative error also where it is tiny.

    References:
        Abramowitz & Stegun (1964), 26.5.8 (continued fraction); Loader (2000), "Fast and accurate
        computation of binomial probabilities" (the factor before it, without cancellation).
    """
    if x >= 1.0 or x <= 0.0:
        return float(x >= 1.0)
    front = _beta_front(x, a, b)
    if x < (a + 1.0) / (a + b + 2.0):
        return min(1.0, front * _beta_fraction(x, a, b) / a)
    return max(0.0, 1.0 - front * _beta_fraction(1.0 - x, b, a) / b)


def beta_quantile(probability: float, a: float, b: float) -> float:
    """Return the quantile of a beta distribution with shapes a and b, above 0.

    Newton steps on the logarithms of both sides: the logarithm of the distribution function is
    concave in the logarithm of x, so after the first step they rise to the root and never pass it.
    """
    if not 0.0 < probability < 1.0:
        return float(probability >= 1.0)
    mean = a / (a + b)
    if incomplete_beta(mean, a, b) < probability:
        return 1.0 - _lower_beta_quantile(1.0 - probability, b, a)
    return _lower_beta_quantile(probability, a, b)


def _lower_beta_quantile(probability: float, a: float, b: float) -> float:
    """Return a quantile of a beta distribution that lies at or below its mean."""
    log_x = math.log(a / (a + b))
    for _ in range(_MOST_STEPS):
        x = math.exp(log_x)
        below = incomplete_beta(x, a, b)
        if below <= 0.0:
            return x
        slope = _beta_front(x, a, b) / (1.0 - x)  # x times the density
        step = (math.log(probability) - math.log(below)) * below / slope
        log_x = min(log_x + step, 0.0)
        if abs(step) <= 1e-15 * max(1.0, abs(log_x)):
            break
    return math.exp(log_x)


def binomial_at_most(successes: int, trials: int, rate: float) -> float:
    """Return P(X <= successes) of a binomial distribution."""
    if successes >= trials:
        return 1.0
    if successes < 0:
        return 0.0
    return incomplete_beta(1.0 - rate, trials - successes, successes + 1.0)


def binomial_at_least(successes: int, trials: int, rate: float) -> float:
    """Return P(X >= successes) of a binomial distribution, right also far out in the tail."""
    if successes <= 0:
        return 1.0
    if successes > trials:
        return 0.0
    return incomplete_beta(rate, successes, trials - successes + 1.0)


def log_binomial(trials: int, successes: int) -> float:
    """Return the logarithm of the binomial coefficient."""
    return (
        math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(trials - successes + 1)
    )


def as_p_value(probability: float) -> float:
    """Return a probability as a p value in (0, 1].

    Rounding may carry a sum of probabilities a hair past 1, and a tail too small for a float to 0;
    neither is a p value.
    """
    return min(1.0, max(sys.float_info.min, probability))


def two_sided_z(confidence: float) -> float:
    """Return the exact normal quantile of a two-sided interval.

    The z with `confidence`, in (0, 1), of the mass between -z and z (1.95996... at 0.95, never
    1.96).
    """
    # Asked for every interval, so the check stands here rather than in a call.
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    return normal_quantile(0.5 + confidence / 2)


def two_sided_p(z: float) -> float:
    """Return P(|Z| >= |z|) of a standard normal statistic, in (0, 1].

    The smallest normal float where the tail underflows, never 0.
    """
    return max(math.erfc(abs(z) / math.sqrt(2)), sys.float_info.min)


def _t_density(t: float, df: float) -> float:
    log_scale = math.lgamma((df + 1.0) / 2.0) - math.lgamma(df / 2.0)
    log_scale -= 0.5 * math.log(df * math.pi)
    return math.exp(log_scale - (df + 1.0) / 2.0 * math.log1p(t * t / df))


def _t_from_normal(z: float, df: float) -> float:
    z2 = z * z
    g1 = (z2 + 1.0) * z / 4.0
    g2 = ((5.0 * z2 + 16.0) * z2 + 3.0) * z / 96.0
    g3 = (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) * z / 384.0
    g4 = ((((79.0 * z2 + 776.0) * z2 + 1482.0) * z2 - 1920.0) * z2 - 945.0) * z / 92160.0
    return z + (g1 + (g2 + (g3 + g4 / df) / df) / df) / df


def _beta_front(x: float, a: float, b: float) -> float:
    """Return x^a (1 - x)^b / B(a, b) from deviances, which do not cancel for large shapes."""
    n = a + b
    exponent = _stirling_remainder(n) - _stirling_remainder(a) - _stirling_remainder(b)
    exponent -= _deviance(a, n * x) + _deviance(b, n * (1.0 - x))
    return math.sqrt(a / n * b / (2.0 * math.pi)) * math.exp(exponent)


def _stirling_remainder(z: float) -> float:
    """Return log Gamma(z) less Stirling's formula."""
    if z < _LARGE_GAMMA:
        return math.lgamma(z) - (z - 0.5) * math.log(z) + z - _HALF_LOG_2_PI
    r = 1.0 / (z * z)
    return (
        1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r * (1.0 / 1680.0 - r / 1188.0)))
    ) / z


def _deviance(seen: float, expected: float) -> float:
    """Return seen log(seen / expected) + expected - seen, by its series where the two are close."""
    if expected <= 0.0:
        return math.inf
    difference = seen - expected
    if abs(difference) >= 0.1 * (seen + expected):
        return seen * math.log(seen / expected) - difference
    v = difference / (seen + expected)
    total, power, at = difference * v, 2.0 * seen * v, 0
    while True:
        power *= v * v
        at += 1
        following = total + power / (2.0 * at + 1.0)
        if following == total:
            return total
        total = following


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    first = 1.0 - (a + b) * x / (a + 1.0)
    c, d = 1.0, 1.0 / (_TINY if -_TINY <= first <= _TINY else first)
    value, m = d, 0
    while m < _MOST_TERMS and (m == 0 or abs(c * d - 1.0) > 1e-15):
        m += 1
        even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        for term in (even, odd):
            # Ten million of these make a plan with groups: kept away from zero without a call.
            below = 1.0 + term * d
            d = 1.0 / (_TINY if -_TINY <= below <= _TINY else below)
            c = 1.0 + term / c
            if -_TINY <= c <= _TINY:
                c = _TINY
            value *= c * d
    return value
