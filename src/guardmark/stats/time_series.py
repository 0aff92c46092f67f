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

    from guardmark.stats.arguments import Flags, Floats, Ints

_FIRST_PAIRS: Final = 8
"""Pairs of lags that are computed one by one; most series need few."""
_MIDDLE: Final = 0.5
_LEVELS: Final = (_MIDDLE, 0.75, 0.9, 0.95, 0.98)
"""Quantiles at which slow calls are looked for: rare spells show at the high ones alone."""
_LEAST_BEYOND: Final = 10
"""Values beyond a level, from which on it shows whether values hang together; the median does."""
_STRETCH: Final = 2.5
"""Length of a stretch, in autocorrelation times: long enough for stretches to be independent."""
_REACH: Final = 1.5
"""The same in lags over which calls are alike, which are more where other noise hides it."""
_LEAST_STRETCHES: Final = 8
"""Fewer stretches do not show how much they differ."""
_CHANCE: Final = 3.0
"""Few values that do not hang together may look as if they did, up to this time."""
_LONG: Final = 1 << 16
"""Values from which on a series is looked at in eights, where eights lose nothing: a report over a
million calls would wait half a minute for transforms of all of them."""
_EIGHT: Final = 8
_WIDTHS: Final = 1024
"""Of a long series what calls are worth is computed at so many evenly spaced ranks: it hardly
differs between two neighbours, and each costs a pass over all calls."""


def autocorrelation_time(series: ArrayLike) -> float:
    """Return the integrated autocorrelation time of a series, at least 1.

    The variance of the mean of n values is that of n / tau independent ones. Autocovariances are
    summed in pairs of neighbouring lags while these are positive, each pair at most the one before:
    Geyer's initial monotone sequence, whose sum is right for reversible chains and a safe guide for
    others. Each autocovariance is too low by the variance of the mean, since the mean is that of
    the same values, so the sum over m lags is divided by 1 - m / n. From 65,536 values on, a sum
    that does not end within 16 lags is taken of the means of eight values each: their time, times
    eight, times the share of the variance that these means hold.

    Args:
        series: Values in the order in which they came, shape (n,), finite.

    Returns:
        The time, in values. It is 1 for what independent values may show (up to two standard errors
        of the sum above 1), for equal values, and for fewer than four.

    Raises:
        ValueError: If the values are not one-dimensional and finite.

    References:
        Geyer (1992), doi:10.1214/ss/1177011137; for quantiles of "at most this": Doss, Flegal,
        Jones & Neath (2014), doi:10.1214/14-EJS957.
    """
    return _time_and_reach(number_column(series, name="series"))[0]


def _time_and_reach(values: Floats) -> tuple[float, int]:
    """Return the autocorrelation time, and over how many lags it was summed; 1 and 0 for chance."""
    if len(values) < 4:
        return 1.0, 0
    centred = values - values.mean()
    variance = float(centred @ centred)
    if not variance > 0.0:
        return 1.0, 0
    first = list(_first_pairs(centred))
    if len(values) >= _LONG and min(first) > 0.0:
        tau, reach = _time_in_eights(centred, variance)
    else:
        total, pairs = _monotone_sum(centred, first)
        reach = 2 * pairs
        tau = (2.0 * total / variance - 1.0) / max(0.1, 1.0 - _both_sides(reach) / len(values))
    if tau <= 1.0 + 2.0 * math.sqrt(2.0 * _both_sides(reach) / len(values)):
        return 1.0, 0
    return tau, reach


def _both_sides(reach: int) -> int:
    """Return the lags to both sides of lag 0, that itself counted once."""
    return 2 * reach - 1


def _time_in_eights(centred: Floats, variance: float) -> tuple[float, int]:
    """Return time and reach of a long series that is alike over 16 lags or more."""
    eights = centred[: len(centred) // _EIGHT * _EIGHT].reshape(-1, _EIGHT).mean(axis=1)
    apart = eights - eights.mean()
    held = float(apart @ apart) * _EIGHT / variance
    tau, reach = _time_and_reach(eights)
    return _EIGHT * held * tau, max(2 * _FIRST_PAIRS, _EIGHT * reach)


class CallSeries:
    """Times in the order of their calls, and what they are worth for each limit of a quantile.

    Slow calls that come together carry less than as many that come one by one. Whether they come
    together is looked for at several levels, since rare spells show at the high ones alone. If they
    do, the series is cut into stretches two and a half times as long as the longest autocorrelation
    time, and at each level the variance between the means of stretches tells what calls are worth
    (overlapping batch means). It is known from a few stretches, so Student's t stands for the
    normal quantile.

    Attributes:
        longest: Longest autocorrelation time over all levels, in calls; 1 where calls stand alone.
        stretch: Calls in a stretch; 1 where calls stand alone.

    References:
        Meketon & Schmeiser (1984), doi:10.1145/800022.808336; Flegal & Jones (2010),
        doi:10.1214/09-AOS735.
    """

    def __init__(self, times: ArrayLike, *, confidence: float = 0.95) -> None:
        """Look for calls that hang together.

        Args:
            times: Times in the order of their calls, shape (n,), finite.
            confidence: Nominal coverage of the limits that will be read, in (0, 1).

        Raises:
            ValueError: If the times are not one-dimensional and finite.
        """
        self._times = number_column(times, name="times")
        self._rising = np.sort(self._times)
        self._worth_of_one: dict[int, float] = {}
        self.longest, reach = self._longest_time()
        self.stretch = 1
        self._raised = 1.0
        if self.longest > 1.0:
            count = len(self._times)
            wanted = round(max(_STRETCH * self.longest, _REACH * reach))
            self.stretch = max(1, min(wanted, count // _LEAST_STRETCHES))
            freedom = count // self.stretch - 1
            self._raised = (two_sided_t(confidence, freedom) / two_sided_z(confidence)) ** 2

    def __len__(self) -> int:
        """Return how many calls there are."""
        return len(self._times)

    @property
    def hangs_together(self) -> bool:
        """Whether calls that follow each other are shown to be alike."""
        return self.longest > 1.0

    @property
    def is_too_short(self) -> bool:
        """Whether the calls hold fewer stretches than show how much these differ."""
        enough = len(self._times) / (_STRETCH * _LEAST_STRETCHES)
        return self.longest > max(_CHANCE, enough)

    def time_at(self, rank: int) -> float:
        """Return how many calls one independent call is, for "at most the time of this rank".

        A level that fewer than ten calls lie beyond shows nothing of its own: the nearest one
        that ten lie beyond stands for it. From 65,536 calls on the nearest thousandth of all ranks
        stands for a rank.

        Args:
            rank: Rank of a time, 1 for the fastest call.

        Returns:
            Calls that are worth one, at least 1.
        """
        if not self.hangs_together:
            return 1.0
        count = len(self._times)
        beyond = min(_LEAST_BEYOND, count // 2)
        inner = min(max(rank, beyond), count - beyond)
        if count >= _LONG:
            width = count // _WIDTHS
            inner = min(max(round(inner / width) * width, beyond), count - beyond)
        if inner not in self._worth_of_one:
            spread = self._spread_of_stretches(float(self._rising[inner - 1]))
            self._worth_of_one[inner] = max(1.0, spread) * self._raised
        return self._worth_of_one[inner]

    def _longest_time(self) -> tuple[float, int]:
        """Return the longest autocorrelation time over all levels, and how far one reaches."""
        count = len(self._times)
        longest, furthest = 1.0, 0
        if not count:
            return longest, furthest
        levels = [
            level for level in _LEVELS if level == _MIDDLE or count * (1.0 - level) >= _LEAST_BEYOND
        ]
        for cut in np.quantile(self._rising, levels).tolist():
            is_below = self._is_below(cut)
            time, reach = _time_and_reach(is_below.astype(np.float64))
            longest, furthest = max(longest, time), max(furthest, reach)
        return longest, furthest

    def _is_below(self, cut: float) -> Flags:
        """Mark times at or below a cut; below it, where it is the longest of many equal times."""
        is_below: Flags = self._times <= cut
        if is_below.all():
            return self._times < cut
        return is_below

    def _spread_of_stretches(self, cut: float) -> float:
        """Return the variance of a stretch's share at or below a cut, by that of separate calls."""
        count, length = len(self._times), self.stretch
        is_below = self._is_below(cut)
        share = float(is_below.mean())
        if share in {0.0, 1.0}:
            return 1.0
        if count >= _LONG and length >= _EIGHT * _EIGHT:
            # Stretches that begin at every eighth call tell nearly all that those at every call do.
            steps = length // _EIGHT
            length = steps * _EIGHT
            running = np.cumsum(_counts_in_eights(is_below), dtype=np.int64)
        else:
            steps = length
            running = np.cumsum(is_below)
        summed = np.concatenate([[0], running])
        means = (summed[steps:] - summed[:-steps]) / length - share
        variance = float(means @ means) / len(means) * count / (count - length)
        # Neighbouring stretches still hang together at their ends: a third of a correlation time.
        seen = 1.0 - 1.0 / (3.0 * _STRETCH)
        return length * variance / (share * (1.0 - share)) / seen


def _counts_in_eights(is_marked: Flags) -> Ints:
    """Count the marks in each eight of a series; what is left over at its end is left out."""
    whole = is_marked[: len(is_marked) // _EIGHT * _EIGHT]
    counts: Ints = np.bitwise_count(np.packbits(whole))
    return counts


def calls_worth_one(series: tuple[CallSeries, ...], rank: int) -> float:
    """Return how many differences one independent difference is, for "at most that of this rank".

    Args:
        series: The same differences in the order of the calls of either side.
        rank: Rank of a difference, 1 for the lowest.

    Returns:
        Differences that are worth one, at least 1: what each order adds to the variance counts.
    """
    return 1.0 + sum(times.time_at(rank) - 1.0 for times in series)


def _monotone_sum(centred: Floats, first: list[float]) -> tuple[float, int]:
    """Return the sum of Geyer's initial monotone sequence, times n, and how many pairs it has."""
    total, last, pairs = 0.0, math.inf, 0
    for pair in first:
        if pair <= 0.0:
            return total, pairs
        last = min(last, pair)
        pairs += 1
        total += last
    further = _further_pairs(centred)
    ends: Ints = np.flatnonzero(further <= 0.0)
    if ends.size:
        further = further[: ends[0]]
    total += float(np.minimum.accumulate(np.minimum(further, last)).sum())
    return total, pairs + further.size


def _first_pairs(centred: Floats) -> Iterator[float]:
    """Yield sums of the autocovariances of two neighbouring lags, times n, up to one below 0."""
    count = len(centred)
    for lag in range(0, 2 * min(_FIRST_PAIRS, count // 2), 2):
        even = float(centred[: count - lag] @ centred[lag:])
        pair = even + float(centred[: count - lag - 1] @ centred[lag + 1 :])
        yield pair
        if pair <= 0.0:
            return


def _further_pairs(centred: Floats) -> Floats:
    """Return all further pairs at once, by Fourier transform."""
    count = len(centred)
    padded = 1 << (2 * count - 1).bit_length()  # so that the ends do not meet
    power = np.abs(np.fft.rfft(centred, padded))
    power *= power  # in place: a long series takes several such columns as it is
    lags = np.fft.irfft(power, padded)[2 * _FIRST_PAIRS : count]
    pairs: Floats = lags[: lags.size // 2 * 2].reshape(-1, 2).sum(axis=1)
    return pairs
