"""Special functions over arrays: logarithms of the gamma and beta functions, and its share.

The same as in `distributions`, for code that asks for thousands of values at once. `tests/oracles`
holds them against scipy, tails included; why scipy itself is not used: ADR 0104.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Floats

_SHIFT = 8
_HALF_LOG_2_PI = 0.5 * float(np.log(2.0 * np.pi))
_SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360_360, 1 / 156)
_TINY = 1e-300
_CLOSE = 1e-15
_MOST_TERMS = 200_000


def log_gamma(z: ArrayLike) -> Floats:
    """Return the logarithm of the gamma function of numbers above 0.

    References:
        Abramowitz & Stegun (1964), 6.1.41, behind a shift by 8 for small arguments.
    """
    z = np.asarray(z, float)
    value: Floats = (z - 0.5) * np.log(z) - z + _HALF_LOG_2_PI + _stirling_remainder(z)
    return value


def log_beta(a: ArrayLike, b: ArrayLike) -> Floats:
    """Return the logarithm of the beta function of shapes above 0, which may be large."""
    a, b = np.broadcast_arrays(np.asarray(a, float), np.asarray(b, float))
    n = a + b
    # log1p: the logarithm of a share near 1 would lose what the large shape multiplies.
    value: Floats = (
        _HALF_LOG_2_PI
        + (a - 0.5) * _log_share(a, b, n)
        + (b - 0.5) * _log_share(b, a, n)
        - 0.5 * np.log(n)
        + _stirling_remainder(a)
        + _stirling_remainder(b)
        - _stirling_remainder(n)
    )
    return value


def incomplete_beta(x: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """Return the regularised incomplete beta function I_x(a, b) for 0 <= x <= 1.

    References:
        Abramowitz & Stegun (1964), 26.5.8, by Lentz's method.
    """
    x, a, b = np.broadcast_arrays(np.asarray(x, float), np.asarray(a, float), np.asarray(b, float))
    result = np.where(x >= 1.0, 1.0, 0.0)
    inside = (x > 0.0) & (x < 1.0)
    x, a, b = x[inside], a[inside], b[inside]
    front = np.exp(a * np.log(x) + b * np.log1p(-x) - log_beta(a, b))
    is_low = x < (a + 1.0) / (a + b + 2.0)
    near, far = np.where(is_low, a, b), np.where(is_low, b, a)
    share = front * _beta_fraction(np.where(is_low, x, 1.0 - x), near, far) / near
    result[inside] = np.where(is_low, share, 1.0 - share)
    clipped: Floats = np.clip(result, 0.0, 1.0)
    return clipped


def logistic(x: ArrayLike) -> Floats:
    """Return 1 / (1 + exp(-x)) without overflow."""
    x = np.asarray(x, float)
    small = np.exp(-np.abs(x))
    value: Floats = np.where(x >= 0.0, 1.0, small) / (1.0 + small)
    return value


def _log_share(part: Floats, rest: Floats, whole: Floats) -> Floats:
    value: Floats = np.where(part > rest, np.log1p(-rest / whole), np.log(part / whole))
    return value


def _stirling_remainder(z: Floats) -> Floats:
    """Return log Gamma(z) less Stirling's formula."""
    is_small = z < _SHIFT
    shifted = np.where(is_small, z + _SHIFT, z)
    square = 1.0 / (shifted * shifted)
    remainder = np.zeros_like(shifted)
    for coefficient in reversed(_SERIES):
        remainder = remainder * square + coefficient
    remainder = np.asarray(remainder / shifted)
    if is_small.any():
        few, more = z[is_small], shifted[is_small]
        product = np.ones_like(few)
        for step in range(_SHIFT):
            product *= few + step
        stirling_of_more = (more - 0.5) * np.log(more) - more
        stirling_of_few = (few - 0.5) * np.log(few) - few
        remainder[is_small] += stirling_of_more - np.log(product) - stirling_of_few
    value: Floats = remainder
    return value


def _beta_fraction(x: Floats, a: Floats, b: Floats) -> Floats:
    """Return the continued fraction of the incomplete beta function, by Lentz's method.

    Large shapes need hundreds of terms and others ten, so those that have settled are put aside.
    """
    settled = np.empty_like(x)
    at = np.arange(x.size)
    c = np.ones_like(x)
    d = 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d.copy()
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d)
            c = _away_from_zero(1.0 + term / c)
            value *= c * d
        is_open = np.abs(c * d - 1.0) > _CLOSE
        if not is_open.any():
            break
        if 2 * np.count_nonzero(is_open) <= at.size:
            settled[at[~is_open]] = value[~is_open]
            at = at[is_open]
            x, a, b, c, d, value = (each[is_open] for each in (x, a, b, c, d, value))
    settled[at] = value
    return settled


def _away_from_zero(value: Floats) -> Floats:
    away: Floats = np.where(np.abs(value) > _TINY, value, _TINY)
    return away
