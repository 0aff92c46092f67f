"""Quantiles and tails of the few distributions the estimators stand on.

The normal and Student's t are computed here, in plain Python: every rate of every report needs
them, and importing a numerical library for two functions would cost more than the whole report. The
beta and chi-square distributions come from `scipy.special`, imported on use.
"""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from statistics import NormalDist

from guardmark.stats.arguments import require_fraction

_TINY = 1e-300
_LARGE_DF = 1000


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
        return 0.5 - 0.5 * _incomplete_beta(rest, 0.5, degrees_of_freedom / 2.0)
    share = degrees_of_freedom / (degrees_of_freedom + t * t)
    return 0.5 * _incomplete_beta(share, degrees_of_freedom / 2.0, 0.5)


def chi_square_upper_tail(statistic: float, degrees_of_freedom: int) -> float:
    """Return P(X > statistic) of a chi-square distribution."""
    if degrees_of_freedom == 1:
        return math.erfc(math.sqrt(statistic / 2.0))
    from scipy.special import chdtrc

    return float(chdtrc(degrees_of_freedom, statistic))


def beta_quantile(probability: float, a: float, b: float) -> float:
    """Return the quantile of a beta distribution with shapes a and b, above 0."""
    from scipy.special import betaincinv

    return float(betaincinv(a, b, probability))


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
    return normal_quantile(0.5 + require_fraction("confidence", confidence) / 2)


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


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b) for 0 <= x <= 1."""
    if x >= 1.0 or x <= 0.0:
        return float(x >= 1.0)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(x, a, b) / a
    return 1.0 - front * _beta_fraction(1.0 - x, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    value, m = d, 0
    while m < 2000 and (m == 0 or abs(c * d - 1.0) > 1e-15):
        m += 1
        even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d)
            c = _away_from_zero(1.0 + term / c)
            value *= c * d
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
