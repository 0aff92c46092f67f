"""Quantiles of measured times, with intervals that assume no shape, and timeouts kept in.

`confidence` is the nominal coverage and `quantile` which quantile, both strictly between 0 and 1. A
NaN, unequal lengths or a bad option raise `ValueError`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.core.estimate import Difference
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
from guardmark.stats.time_series import autocorrelation_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Flags, Floats, Ints
    from guardmark.stats.rates.clustered import EffectiveCounts

# A binomial probability is compared with a tail as if it were exact; this keeps a tie that
# rounding has moved by a hair where exact arithmetic would put it.
_FUZZ = 64 * np.finfo(np.float64).eps
_LEAST_SPELLS: Final = 30
"""Times that hang together need to be worth at least so many."""
_NOISE: Final = 3.0
"""Few times that do not hang together may look as if they did, up to this tau."""
_ALIKE_WITHIN: Final = 1.5
"""Rows that are worth fewer than this part of them are alike within their groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInterval:
    """Which of the sorted observations bound a quantile."""

    # Rank of the lower limit, 1 for the smallest; None when no observation bounds it.
    lower: int | None
    upper: int | None  # Rank of the upper limit, or None in the same case.
    trials: int  # Observations.
    needed: int  # Observations from which both limits exist.
    reason: str = ""  # Why there are no limits, where not for want of observations; or empty.


def quantile_ranks(trials: int, quantile: float, *, confidence: float = 0.95) -> RankInterval:
    """Find the ranks whose observations bound a quantile.

    They are the binomial quantile at the lower tail, and that at the upper tail plus 1.
    Source: Conover (1999), Practical Nonparametric Statistics, section 3.2.
    """
    require_fraction("quantile", quantile)
    require_fraction("confidence", confidence)
    count = require_count("trials", trials)
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
        quantile: Which quantile.
        censored: True where the true value is only known to be at least as large (a timeout), shape
            (n,); None when all were measured to the end.
        confidence: Nominal coverage of the interval.

    Returns:
        The quantile, linear between two neighbours (type 7, the default of numpy and R). With too
        few observations for a two-sided interval the value is None, with the number needed; a limit
        that exists alone is still given. Where a timeout stands at or below what the value rests
        on, `at_least` is set: it is then a lower limit. An upper limit that a timeout stands at or
        below is None.

    Source: Hyndman & Fan (1996), doi:10.1080/00031305.1996.10473566.
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

    The times are put in order once, and only as far as the quantiles call for. `groups` number the
    group of each time, such as the sample that was asked several times; None: each stands alone.
    `is_in_time_order` says that the times stand in the order of their calls: where slow calls come
    together they are worth fewer (`ranks_of`). Ranks are then those of the times that "at most this
    quantile" makes them worth, brought to the scale of all times: Woodruff's interval with the
    effective counts of a rate.
    Source: Woodruff (1952), doi:10.1080/01621459.1952.10483443; Francisco & Fuller (1991),
    doi:10.1214/aos/1176347993.
    """
    numbers = number_column(values, name="values")
    late = None if censored is None else label_column(censored, name="censored")
    require_equal_lengths(values=len(numbers), censored=len(numbers) if late is None else len(late))
    intervals = [quantile_ranks(len(numbers), each, confidence=confidence) for each in quantiles]
    if (groups is not None or is_in_time_order) and numbers.size:
        codes = np.arange(len(numbers)) if groups is None else require_counts("groups", groups)
        require_equal_lengths(values=len(numbers), groups=len(codes))
        intervals = [
            ranks_of(
                _counts_below(numbers <= cut, codes),
                at,
                tau=autocorrelation_time(numbers <= cut) if is_in_time_order else 1.0,
                confidence=confidence,
            )
            for cut, at in zip(np.quantile(numbers, list(quantiles)), quantiles, strict=True)
        ]
    times = RisingTimes(numbers, late)  # read by place once they are in order
    if numbers.size:
        places = (_places(each, at) for each, at in zip(intervals, quantiles, strict=True))
        numbers.partition(sorted(set().union(*places)))
    return [
        sorted_quantile(times, at, ranks=ranks, confidence=confidence)
        for ranks, at in zip(intervals, quantiles, strict=True)
    ]


def median_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
    drawing: DrawPlan | None = None,
) -> Difference:
    """Estimate how much longer the first takes, over the same samples in the same unit.

    The median of the paired differences, with percentile limits of a bootstrap of whole groups
    (`groups` None: every sample alone; `drawing` None: seed 0, 2,000 draws). Undefined without
    pairs; no interval with fewer than six groups, where the limits would be the extremes. Leave
    samples out where either timed out.
    """
    require_fraction("confidence", confidence)
    a, b = number_column(first, name="first"), number_column(second, name="second")
    require_equal_lengths(first=len(a), second=len(b))
    codes = group_column(groups, len(a))
    order = np.argsort(a - b, kind="stable")
    gaps, codes = (a - b)[order], codes[order]
    members = int(codes.max()) + 1 if codes.size else 0
    limits: tuple[float, float] | None = None
    reason = "" if gaps.size else "no pairs"
    if 0 < members < 6:
        reason = f"an interval for a median needs 6 groups, got {members}"
    if not reason:
        blocks = draw_weights(members, drawing=drawing or DrawPlan(), rows=len(gaps))
        drawn = np.concatenate([_weighted_medians(gaps, each[:, codes]) for each in blocks])
        limits = percentile_limits(drawn, confidence)
    return Difference(
        value=float(np.median(gaps)) if gaps.size else None,
        low=limits[0] if limits else None,
        high=limits[1] if limits else None,
        confidence=confidence,
        method="median of paired differences, group bootstrap",
        pairs=len(gaps),
        groups=members if groups is not None else None,
        reason=reason,
    )


def sorted_quantile(
    times: RisingTimes, quantile: float, *, ranks: RankInterval, confidence: float
) -> Quantile:
    """Estimate a quantile of rising times with given ranks; see `estimate_quantile`."""
    measured = times.measured
    value, rests_on, reason = None, 0, _too_few(ranks, quantile, confidence)
    if not reason:
        value, rests_on = times.point(quantile)
    high = None if ranks.upper is None else times[ranks.upper - 1]
    if high is not None and ranks.upper is not None and ranks.upper > measured:
        high, reason = None, reason or "the upper limit lies among the timeouts"
    return Quantile(
        quantile=quantile,
        value=value,
        low=None if ranks.lower is None else times[ranks.lower - 1],
        high=high,
        trials=len(times),
        censored=times.censored,
        confidence=confidence,
        method="type7, order statistics",
        at_least=rests_on > measured,
        reason=reason,
    )


class RisingTimes:
    """Times in order, read by place, each measured as often as `counts` say; None: once.

    `late` marks timeouts: `censored` is how many there are, `measured` how many of the smallest
    were measured to the end.
    """

    def __init__(
        self, values: Floats | Ints, late: Flags | None, counts: Ints | None = None
    ) -> None:
        self.values, self._ends = values, None if counts is None else np.cumsum(counts)
        often = np.ones(len(values), dtype=np.int64) if counts is None else counts
        self.censored, self.measured, self.first_late = 0, int(often.sum()), math.inf
        if late is not None and late.any():
            # At equal times the measured one comes first: the timed out would have taken longer.
            self.first_late = float(values[late].min())
            to_end = ~late & (values <= self.first_late)
            self.censored, self.measured = int(often[late].sum()), int(often[to_end].sum())

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.values) if self._ends is None else int(self._ends[-1:].sum())

    def __getitem__(self, place: int) -> float:
        """Return the time at a place, 0 for the smallest."""
        at = place if self._ends is None else np.searchsorted(self._ends, place, side="right")
        return float(self.values[at])

    def count_below(self, value: int) -> int:
        """Return how many times stand before the first `value` of those that differ in count."""
        return value if self._ends is None else int(self._ends[value - 1]) if value else 0

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
    below: EffectiveCounts, quantile: float, *, tau: float = 1.0, confidence: float = 0.95
) -> RankInterval:
    """Find the ranks that bound a quantile of rows of which `below` lie at or below it.

    Woodruff's interval, as `estimate_quantiles` has it for one set of rows; for many slices at once
    count each slice's rows first. `tau` is how many rows one is worth because calls that follow
    each other are alike (`autocorrelation_time` of "at or below" in the order of the calls): the
    rows are worth the fewer of both. No limits where they are worth fewer than thirty, nor
    where rows share fewer groups than the limits of so many rows need and groups are of one kind
    within: those that come out are the lucky ones (coverage .86 for p95 of 60 groups).
    """
    trials = below.trials
    worth = min(float(trials), below.worth(confidence), trials / tau)
    alone = quantile_ranks(math.floor(worth + 1e-9), quantile, confidence=confidence)
    scale = trials / worth if worth else math.inf
    reason = ""
    if trials and tau > max(_NOISE, trials / _LEAST_SPELLS):
        reason = f"calls hang together in time: {trials:,} are worth about {trials / tau:.0f}"
    elif below.groups < min(alone.needed, trials) and trials > _ALIKE_WITHIN * below.n_eff > 0:
        reason = (
            f"not estimable: the {quantile:g} quantile of calls that are alike within groups needs "
            f"{alone.needed} groups, got {below.groups}"
        )
    if reason:
        return RankInterval(
            lower=None, upper=None, trials=trials, needed=alone.needed * trials, reason=reason
        )
    return RankInterval(
        lower=None if alone.lower is None else max(1, math.floor(alone.lower * scale)),
        upper=None if alone.upper is None else min(trials, math.ceil(alone.upper * scale)),
        trials=trials,
        needed=math.ceil(alone.needed * scale) if worth else alone.needed * trials,
    )


def _places(ranks: RankInterval, quantile: float) -> set[int]:
    """Return the places, in sorted order, of the values that an estimate reads."""
    below = math.floor((ranks.trials - 1) * quantile)
    wanted = {below, min(below + 1, ranks.trials - 1)}
    return wanted | {rank - 1 for rank in (ranks.lower, ranks.upper) if rank is not None}


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
