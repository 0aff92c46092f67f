"""How many independent observations a series is worth whose values hang together in time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.stats.arguments import number_column
from guardmark.stats.distributions import two_sided_t, two_sided_z

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Floats

_FIRST_PAIRS: Final = 8  # pairs of lags that are computed one by one; most series need few


def autocorrelation_time(series: ArrayLike) -> float:
    """Return the integrated autocorrelation time of a series, at least 1.

    The variance of the mean of n values is that of n / tau independent ones. Autocovariances are
    summed in pairs of neighbouring lags while these are positive, each pair at most the one before:
    Geyer's initial monotone sequence, whose sum is right for reversible chains and a safe guide for
    others. Each autocovariance is too low by the variance of the mean, since the mean is that of
    the same values, so the sum over m lags is divided by 1 - m / n. A sum over m lags of n values
    is known about as well as a variance from n / m, so tau is also raised by the square of
    Student's t over the normal quantile. What independent values may show (two standard errors of
    the sum above 1) is 1, as are series of equal values, or of fewer than four.

    Args:
        series: Values in the order in which they came, shape (n,), finite.

    Source: Geyer (1992), doi:10.1214/ss/1177011137; for quantiles of "at most this": Doss, Flegal,
    Jones & Neath (2014), doi:10.1214/14-EJS957.
    """
    values = number_column(series, name="series")
    centred = values - values.mean() if values.size else values
    variance = float(centred @ centred)
    if len(values) < 4 or not variance > 0.0:
        return 1.0
    total, pairs = _monotone_sum(centred)
    lags = 4 * pairs - 1  # to both sides of lag 0
    tau = (2.0 * total / variance - 1.0) / max(0.1, 1.0 - lags / len(values))
    if tau <= 1.0 + 2.0 * math.sqrt(2.0 * lags / len(values)):
        return 1.0
    known = max(1.0, len(values) / lags)
    return tau * (two_sided_t(0.95, known) / two_sided_z(0.95)) ** 2


def _monotone_sum(centred: Floats) -> tuple[float, int]:
    """Return the sum of Geyer's initial monotone sequence, times n, and how many pairs it has."""
    total, last, pairs = 0.0, math.inf, 0
    for pair in _first_pairs(centred):
        if pair <= 0.0:
            return total, pairs
        last = min(last, pair)
        pairs += 1
        total += last
    further = _further_pairs(centred)
    ends = np.flatnonzero(further <= 0.0)
    if ends.size:
        further = further[: ends[0]]
    total += float(np.minimum.accumulate(np.minimum(further, last)).sum())
    return total, pairs + further.size


def _first_pairs(centred: Floats) -> Iterator[float]:
    """Yield sums of the autocovariances of two neighbouring lags, times n, from lag 0 on."""
    count = len(centred)
    for lag in range(0, 2 * min(_FIRST_PAIRS, count // 2), 2):
        even = float(centred[: count - lag] @ centred[lag:])
        yield even + float(centred[: count - lag - 1] @ centred[lag + 1 :])


def _further_pairs(centred: Floats) -> Floats:
    """Return all further pairs at once, by Fourier transform."""
    count = len(centred)
    padded = 1 << (2 * count - 1).bit_length()  # so that the ends do not meet
    power = np.abs(np.fft.rfft(centred, padded)) ** 2
    lags = np.fft.irfft(power, padded)[2 * _FIRST_PAIRS : count]
    pairs: Floats = lags[: lags.size // 2 * 2].reshape(-1, 2).sum(axis=1)
    return pairs
