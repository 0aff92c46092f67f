"""Quantiles of measured times, with intervals that assume no shape, and timeouts kept in."""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.core.estimate import Difference
from guardmark.core.values import dataclass
from guardmark.stats.arguments import (
    group_column,
    label_column,
    number_column,
    require_count,
    require_counts,
    require_equal_lengths,
    require_fraction,
)
from guardmark.stats.drawing import DrawPlan, draw_weights, percentile_limits
from guardmark.stats.figures import Quantile
from guardmark.stats.rates.clustered import effective_counts, summarise
from guardmark.stats.time_series import CallSeries, calls_worth_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Flags, Floats, Ints
    from guardmark.stats.rates.clustered import EffectiveCounts

# A binomial probability is compared with a tail as if it were exact; this keeps a tie that
# rounding has moved by a hair where exact arithmetic would put it.
_FUZZ = 64 * np.finfo(np.float64).eps
_ALIKE_WITHIN: Final = 1.5
"""Rows that are worth fewer than this part of them are alike within their groups."""
_LEAST_GROUPS: Final = 6
"""With fewer groups the limits of a median are the extremes of what was drawn."""
_BY_RANKS: Final = "median of paired differences, order statistics"
_BY_GROUPS: Final = "median of paired differences, group bootstrap"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInterval:
    """Which of the sorted observations bound a quantile.

    Attributes:
        lower: Rank of the lower limit, 1 for the smallest; None when no observation bounds it.
        upper: Rank of the upper limit, or None in the same case.
        trials: Observations.
        needed: Observations from which both limits exist.
        reason: Why there are no limits, where not for want of observations; or empty.
    """

    lower: int | None
    upper: int | None
    trials: int
    needed: int
    reason: str = ""


def quantile_ranks(trials: int, quantile: float, *, confidence: float = 0.95) -> RankInterval:
    """Find the ranks whose observations bound a quantile.

    They are the binomial quantile at the lower tail, and that at the upper tail plus 1.

    Args:
        trials: How many independent observations there are, at least 0.
        quantile: Which quantile, strictly between 0 and 1.
        confidence: Nominal coverage of the interval, strictly between 0 and 1.

    Returns:
        The ranks; a limit is None where so few observations have none.

    Raises:
        ValueError: If the count is negative, or a share is not in (0, 1).

    References:
        Conover (1999), Practical Nonparametric Statistics, section 3.2.
    """
    require_fraction("quantile", quantile)
    require_fraction("confidence", confidence)
    return _ranks(require_count("trials", trials), quantile, confidence)


@lru_cache(maxsize=4096)  # a report asks for slices of the same sizes again and again
def _ranks(count: int, quantile: float, confidence: float) -> RankInterval:
    tail = (1 - confidence) / 2
    lower = _binomial_quantile(tail, count, quantile)
    upper = _binomial_quantile(1 - tail, count, quantile) + 1
    return RankInterval(
        lower=lower or None,
        upper=upper if upper <= count else None,
        trials=count,
        needed=_needed(quantile, tail),
    )


def estimate_quantile(
    values: ArrayLike,
    quantile: float,
    *,
    censored: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Quantile:
    """Estimate a quantile with its order-statistic interval.

    Args:
        values: Measured times (any unit), shape (n,); for a timeout, the time waited.
        quantile: Which quantile, strictly between 0 and 1.
        censored: True where the true value is only known to be at least as large (a timeout), shape
            (n,); None when all were measured to the end.
        confidence: Nominal coverage of the interval, strictly between 0 and 1.

    Returns:
        The quantile, linear between two neighbours (type 7, the default of numpy and R). With too
        few observations for a two-sided interval the value is None, with the number needed; a limit
        that exists alone is still given. Where a timeout stands at or below what the value rests
        on, `at_least` is set: it is then a lower limit. An upper limit that a timeout stands at or
        below is None.

    Raises:
        ValueError: If a value is not finite, lengths differ, or a share is not in (0, 1).

    References:
        Hyndman & Fan (1996), doi:10.1080/00031305.1996.10473566.
    """
    return estimate_quantiles(values, [quantile], censored=censored, confidence=confidence)[0]


def estimate_quantiles(
    values: ArrayLike,
    quantiles: Sequence[float],
    *,
    censored: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    is_in_time_order: bool = False,
    confidence: float = 0.95,
) -> list[Quantile]:
    """Estimate several quantiles of the same times; see `estimate_quantile`.

    The times are put in order once, and only as far as the quantiles call for. Ranks are those of
    the times that "at most this quantile" makes them worth, brought to the scale of all times:
    Woodruff's interval with the effective counts of a rate.

    Args:
        values: Measured times (any unit), shape (n,).
        quantiles: Which quantiles, each strictly between 0 and 1.
        censored: True where a time is only known to be at least as large; None: nowhere.
        groups: Number of the group of each time, such as the sample that was asked several times,
            shape (n,); None: each time stands alone.
        is_in_time_order: Whether the times stand in the order of their calls. Where slow calls come
            together they are then worth fewer (`ranks_of`).
        confidence: Nominal coverage of each interval, strictly between 0 and 1.

    Returns:
        One estimate a quantile, in their order.

    Raises:
        ValueError: If a value is not finite, lengths differ, or a share is not in (0, 1).

    References:
        Woodruff (1952), doi:10.1080/01621459.1952.10483443; Francisco & Fuller (1991),
        doi:10.1214/aos/1176347993.
    """
    numbers = number_column(values, name="values")
    late = None if censored is None else label_column(censored, name="censored")
    require_equal_lengths(values=len(numbers), censored=len(numbers) if late is None else len(late))
    intervals = [
        quantile_ranks(len(numbers), quantile, confidence=confidence) for quantile in quantiles
    ]
    if (groups is not None or is_in_time_order) and numbers.size:
        intervals = _dependent_ranks(
            numbers,
            quantiles,
            groups=groups,
            is_in_time_order=is_in_time_order,
            confidence=confidence,
        )
    times = RisingTimes(numbers, late)  # read by place once they are in order
    if numbers.size:
        places: set[int] = set()
        for ranks, quantile in zip(intervals, quantiles, strict=True):
            places |= _places(ranks, quantile)
        numbers.partition(sorted(places))
    return [
        sorted_quantile(times, quantile, ranks=ranks, confidence=confidence)
        for ranks, quantile in zip(intervals, quantiles, strict=True)
    ]


def _dependent_ranks(
    numbers: Floats,
    quantiles: Sequence[float],
    *,
    groups: ArrayLike | None,
    is_in_time_order: bool,
    confidence: float,
) -> list[RankInterval]:
    """Find the ranks of times that share groups, or hang together in time."""
    codes: Ints = np.arange(len(numbers))
    if groups is not None:
        codes = require_counts("groups", groups)
        require_equal_lengths(values=len(numbers), groups=len(codes))
    series: tuple[CallSeries, ...] = ()
    if is_in_time_order:
        series = (CallSeries(numbers, confidence=confidence),)
    intervals = []
    for cut, quantile in zip(np.quantile(numbers, list(quantiles)), quantiles, strict=True):
        below = _counts_below(numbers <= cut, codes)
        intervals.append(ranks_of(below, quantile, series=series, confidence=confidence))
    return intervals


def median_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    orders: Sequence[ArrayLike] = (),
    confidence: float = 0.95,
    drawing: DrawPlan | None = None,
) -> Difference:
    """Estimate how much longer the first takes, over the same samples in the same unit.

    The value is the median of the paired differences. Where differences hang together in the order
    of the calls, its limits are their ranks at what they are worth in time and by group
    (`ranks_of`); else a bootstrap of whole groups gives them, or their ranks without groups.

    Args:
        first: Times of the first, shape (n,), finite; leave samples out where either timed out.
        second: Times of the second on the same samples.
        groups: Number of the group of each pair, shape (n,); None: every pair stands alone.
        orders: When each pair was asked for, as ranks of shape (n,): one where both sides were
            asked in the same order, one for each side where not, none where it is unknown.
        confidence: Nominal coverage, strictly between 0 and 1.
        drawing: Seed and number of draws of a bootstrap; None: seed 0, 2,000 draws.

    Returns:
        The difference, undefined without pairs. It has no interval with fewer than six groups,
        where the limits would be the extremes, and where calls are worth too few; the value stands.

    Raises:
        ValueError: If a time is not finite, lengths differ, or `confidence` is not in (0, 1).
    """
    require_fraction("confidence", confidence)
    a, b = number_column(first, name="first"), number_column(second, name="second")
    require_equal_lengths(first=len(a), second=len(b))
    gaps = a - b
    codes = group_column(groups, len(a))
    members = 0
    if codes.size:
        members = int(codes.max()) + 1
    series = []
    for order in orders:
        ranks = number_column(order, name="orders")
        require_equal_lengths(first=len(a), orders=len(ranks))
        series.append(CallSeries(gaps[np.argsort(ranks, kind="stable")], confidence=confidence))
    method, reason = _BY_GROUPS, ""
    low: float | None = None
    high: float | None = None
    if not gaps.size:
        reason = "no pairs"
    elif members < _LEAST_GROUPS:
        unit = "pairs" if groups is None else "groups"
        reason = f"an interval for a median needs {_LEAST_GROUPS} {unit}, got {members}"
    elif groups is None or any(each.hangs_together for each in series):
        method = _BY_RANKS
        below = _counts_below(gaps <= np.median(gaps), codes)
        ranks_of_gaps = ranks_of(below, 0.5, series=series, confidence=confidence)
        middle = sorted_quantile(
            RisingTimes(np.sort(gaps), None), 0.5, ranks=ranks_of_gaps, confidence=confidence
        )
        reason = middle.reason
        if not reason:
            low, high = middle.low, middle.high
    else:
        low, high = _drawn_limits(gaps, codes, confidence=confidence, drawing=drawing or DrawPlan())
    return Difference(
        value=float(np.median(gaps)) if gaps.size else None,
        low=low,
        high=high,
        confidence=confidence,
        method=method,
        pairs=len(gaps),
        groups=None if groups is None else members,
        reason=reason,
    )


def _drawn_limits(
    gaps: Floats, codes: Ints, *, confidence: float, drawing: DrawPlan
) -> tuple[float, float]:
    """Return the percentile limits of a median over draws of whole groups."""
    order = np.argsort(gaps, kind="stable")
    rising, of_group = gaps[order], codes[order]
    blocks = draw_weights(int(codes.max()) + 1, drawing=drawing, rows=len(gaps))
    medians = [_weighted_medians(rising, weights[:, of_group]) for weights in blocks]
    return percentile_limits(np.concatenate(medians), confidence)


def sorted_quantile(
    times: RisingTimes, quantile: float, *, ranks: RankInterval, confidence: float
) -> Quantile:
    """Estimate a quantile of rising times with given ranks; see `estimate_quantile`.

    Args:
        times: Times in order.
        quantile: Which quantile, strictly between 0 and 1.
        ranks: Which of them bound it.
        confidence: Nominal coverage that the ranks have.

    Returns:
        The quantile; its value is None, with the reason, where a limit is missing.
    """
    reason = _too_few(ranks, quantile, confidence)
    value: float | None = None
    rests_on = 0
    if not reason:
        value, rests_on = times.point(quantile)
    low: float | None = None
    if ranks.lower is not None:
        low = times[ranks.lower - 1]
    high: float | None = None
    if ranks.upper is not None and ranks.upper > times.measured:
        reason = reason or "the upper limit lies among the timeouts"
    elif ranks.upper is not None:
        high = times[ranks.upper - 1]
    return Quantile(
        quantile=quantile,
        value=value,
        low=low,
        high=high,
        trials=len(times),
        censored=times.censored,
        confidence=confidence,
        method="type7, order statistics",
        at_least=rests_on > times.measured,
        reason=reason,
    )


class RisingTimes:
    """Times in order, read by place.

    Attributes:
        values: The times, rising.
        censored: How many of them are timeouts.
        measured: How many of the smallest were measured to the end.
        first_late: The smallest timeout; infinite without one.
    """

    def __init__(
        self, values: Floats | Ints, late: Flags | None, counts: Ints | None = None
    ) -> None:
        """Take rising times.

        Args:
            values: The times, rising, shape (n,).
            late: True for a timeout, shape (n,); None: there is none.
            counts: How often each time was measured, shape (n,); None: once.
        """
        self.values = values
        self._ends: Ints | None = None
        often = np.ones(len(values), dtype=np.int64)
        if counts is not None:
            often = counts
            self._ends = np.cumsum(counts)
        self.censored = 0
        self.measured = int(often.sum())
        self.first_late = math.inf
        if late is not None and late.any():
            # At equal times the measured one comes first: the timed out would have taken longer.
            self.first_late = float(values[late].min())
            to_end = ~late & (values <= self.first_late)
            self.censored = int(often[late].sum())
            self.measured = int(often[to_end].sum())

    def __len__(self) -> int:
        """Return how many there are."""
        if self._ends is None:
            return len(self.values)
        return int(self._ends[-1:].sum())

    def __getitem__(self, place: int) -> float:
        """Return the time at a place, 0 for the smallest."""
        if self._ends is None:
            return float(self.values[place])
        return float(self.values[np.searchsorted(self._ends, place, side="right")])

    def count_below(self, value: int) -> int:
        """Return how many times stand before the first `value` of those that differ in count."""
        if self._ends is None or not value:
            return value
        return int(self._ends[value - 1])

    def point(self, quantile: float) -> tuple[float, int]:
        """Return a quantile (type 7), and the highest rank it rests on."""
        position = (len(self) - 1) * quantile
        below = math.floor(position)
        share = position - below
        if not share:
            return self[below], below + 1
        return self[below] + share * (self[below + 1] - self[below]), below + 2


def _counts_below(below: Flags, codes: Ints) -> EffectiveCounts:
    """Count the times at or below a quantile, with what they are worth by group."""
    sizes = np.bincount(codes)
    return effective_counts(summarise(np.bincount(codes[below], minlength=len(sizes)), sizes))


def ranks_of(
    below: EffectiveCounts,
    quantile: float,
    *,
    series: Sequence[CallSeries] = (),
    confidence: float = 0.95,
) -> RankInterval:
    """Find the ranks that bound a quantile of rows of which `below` lie at or below it.

    Woodruff's interval, as `estimate_quantiles` has it for one set of rows; for many slices at once
    count each slice's rows first. Rows are worth the fewer of what their groups and what the order
    of their calls makes them worth. A limit is the outermost time of which "at most this" is not
    ruled out, each time at what the calls are worth there: at p95 twenty slow calls of one spell
    are one observation, among the slowest of them they are several.

    There are no limits where calls hang together so long that they hold fewer than eight stretches,
    nor where rows share fewer groups than the limits of so many rows need and groups are of one
    kind within: those that come out are the lucky ones (coverage .86 for p95 of 60 groups).

    Args:
        below: Rows at or below the quantile, with what they are worth by group.
        quantile: Which quantile, strictly between 0 and 1.
        series: The rows in the order of their calls; two orders of differences whose sides were
            asked in orders of their own; none where the order is unknown.
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        The ranks, with the reason where there are none.

    Raises:
        ValueError: If a share is not in (0, 1).
    """
    trials = below.trials
    dependent = tuple(each for each in series if each.hangs_together)
    by_group = min(float(trials), below.worth(confidence))
    middle = math.floor((trials - 1) * quantile) + 1

    def ranks_at(rank: int) -> RankInterval:
        worth = min(by_group, trials / calls_worth_one(dependent, rank))
        return _scaled_ranks(trials, worth, quantile, confidence=confidence)

    at_middle = ranks_at(middle)
    alone = quantile_ranks(trials, quantile, confidence=confidence)
    is_alike_within = trials > _ALIKE_WITHIN * below.n_eff > 0
    if any(each.is_too_short for each in dependent):
        longest = sum(each.longest for each in dependent)
        return _refused(alone, _hang_together(trials, trials / longest))
    if below.groups < min(alone.needed, trials) and is_alike_within:
        return _refused(
            alone,
            f"not estimable: the {quantile:g} quantile of calls that are alike within groups needs "
            f"{alone.needed} groups, got {below.groups}",
        )
    if not dependent:
        return at_middle

    def is_below_limit(rank: int) -> bool:
        lower = ranks_at(rank).lower
        return lower is not None and rank <= lower

    def is_above_limit(rank: int) -> bool:
        upper = ranks_at(rank).upper
        return upper is not None and rank >= upper

    up_to_middle = range(1, middle + 1)
    from_middle = range(middle, trials + 1)
    lower = bisect_left(up_to_middle, x=True, key=lambda rank: not is_below_limit(rank))
    upper = middle + bisect_left(from_middle, x=True, key=is_above_limit)
    if not lower or upper > trials:
        return RankInterval(
            lower=lower or None,
            upper=upper if upper <= trials else None,
            trials=trials,
            needed=at_middle.needed,
            reason=_hang_together(trials, trials / calls_worth_one(dependent, middle)),
        )
    return RankInterval(lower=lower, upper=upper, trials=trials, needed=at_middle.needed)


def _scaled_ranks(trials: int, worth: float, quantile: float, *, confidence: float) -> RankInterval:
    """Return the ranks of so many rows that are worth fewer."""
    alone = quantile_ranks(math.floor(worth + 1e-9), quantile, confidence=confidence)
    if not worth:
        return RankInterval(lower=None, upper=None, trials=trials, needed=alone.needed * trials)
    scale = trials / worth
    lower: int | None = None
    if alone.lower is not None:
        lower = max(1, math.floor(alone.lower * scale))
    upper: int | None = None
    if alone.upper is not None:
        upper = min(trials, math.ceil(alone.upper * scale))
    return RankInterval(
        lower=lower, upper=upper, trials=trials, needed=math.ceil(alone.needed * scale)
    )


def _refused(alone: RankInterval, reason: str) -> RankInterval:
    return RankInterval(
        lower=None,
        upper=None,
        trials=alone.trials,
        needed=alone.needed * alone.trials,
        reason=reason,
    )


def _hang_together(trials: int, worth: float) -> str:
    return f"calls hang together in time: {trials:,} are worth about {worth:.0f}"


def _places(ranks: RankInterval, quantile: float) -> set[int]:
    """Return the places, in sorted order, of the values that an estimate reads."""
    below = math.floor((ranks.trials - 1) * quantile)
    wanted = {below, min(below + 1, ranks.trials - 1)}
    for rank in (ranks.lower, ranks.upper):
        if rank is not None:
            wanted.add(rank - 1)
    return wanted


def _binomial_quantile(probability: float, trials: int, rate: float) -> int:
    """Return the smallest k with P(X <= k) >= probability.

    The probabilities are built up from the most likely k by their ratios, so no special function is
    needed: every report with latencies comes through here.
    """
    spread = 40.0 * math.sqrt(trials * rate * (1 - rate)) + 40.0
    mode = min(trials, math.floor((trials + 1) * rate))
    first, last = max(0, math.floor(mode - spread)), min(trials, math.ceil(mode + spread))
    odds = rate / (1 - rate)
    up = np.arange(mode, last, dtype=np.float64)
    down = np.arange(mode, first, -1, dtype=np.float64)
    above = np.cumprod((trials - up) / (up + 1) * odds)
    below = np.cumprod(down / (trials - down + 1) / odds)
    chances = np.concatenate([below[::-1], [1.0], above])
    summed = np.cumsum(chances) / chances.sum()
    return first + int(np.searchsorted(summed, probability * (1 - _FUZZ), side="left"))


def _needed(quantile: float, tail: float) -> int:
    """Return the fewest observations of which the extremes bound the quantile on both sides."""
    beyond = math.log(tail) / math.log(max(quantile, 1 - quantile))
    return max(1, math.ceil(beyond))


def _too_few(ranks: RankInterval, quantile: float, confidence: float) -> str:
    if not ranks.trials:
        return "no measurements"
    if ranks.reason:
        return ranks.reason
    if ranks.lower is not None and ranks.upper is not None:
        return ""
    return (
        f"not estimable: a {confidence:.0%} interval of the {quantile:g} quantile "
        f"needs {ranks.needed} measurements, got {ranks.trials}"
    )


def _weighted_medians(gaps: Floats, weights: Floats) -> Floats:
    """Return the median of each draw; `gaps` rise, weights have shape (b, n)."""
    summed = np.cumsum(weights, axis=1)
    half = summed[:, -1:] / 2
    at = np.argmax(summed >= half, axis=1)
    after = np.argmax(summed > half, axis=1)
    medians: Floats = (gaps[at] + gaps[after]) / 2
    return medians
