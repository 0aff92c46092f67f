"""Means of bounded figures whose rows fall into groups, seeds or repeats.

Each seed meets every row, so figures of one seed share its luck, and figures of one group share
their origin. An interval has to cover both: the variance of the mean over K groups and S seeds is

    V = V_groups + max(0, V_seeds - V_rest),

V_groups from residuals summed by group over all seeds (CR1), V_seeds from those summed by seed, and
V_rest from what of a group at a seed neither explains, which both of the others hold already.
Student's t at Satterthwaite's degrees of freedom. A pigeonhole bootstrap (Owen 2007), which
resamples both, aims at the same variance; at five seeds its percentiles are too short where seeds
differ, since five draws from five show too little of the spread (tests/stats/rates/test_means.py).

`confidence` is the nominal coverage, in (0, 1); a bad shape or option raises `ValueError`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import numpy as np

from guardmark.core.estimate import Difference
from guardmark.core.values import dataclass
from guardmark.stats.arguments import (
    group_column,
    require_count,
    require_counts,
    require_equal_lengths,
    require_fraction,
)
from guardmark.stats.distributions import two_sided_t, two_sided_z
from guardmark.stats.drawing import draw_weights, percentile_limits
from guardmark.stats.figures import Ratio
from guardmark.stats.rates.clustered import group_freedom
from guardmark.stats.rates.proportion import Limits, wilson_limits

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Floats, Ints
    from guardmark.stats.drawing import DrawPlan

_EFFECTIVE = "wilson at effective rows"
_NO_VARIANCE = "no variance between groups to build an interval on"
_FEWEST_DRAWN: Final = 6  # groups below which a bootstrap of them has too few different draws
FEWEST_SEEDS: Final = 3
"""With two seeds a single difference would tell how seeds differ: limits came out too short."""


class MeanLimits(NamedTuple):
    """Limits of a mean, or None with the reason, and how they were built.

    The method is `t`, or `wilson at effective rows`.

    Attributes:
        low: Lower limit, or None where it is undefined.
        high: Upper limit, or None.
        method: Name of the method, as reports print it.
        reason: Why there are no limits, or empty.
    """

    low: float | None
    high: float | None
    method: str
    reason: str


NO_ROWS: Final = MeanLimits(None, None, "none", "no samples")


def share_limits(
    values: Floats,
    codes: Ints,
    *,
    confidence: float,
    weights: Floats | None = None,
    counts: Ints | None = None,
) -> MeanLimits:
    """Return limits for the mean of figures in [0, 1], at least one, with each row's group.

    Wilson's at the rows that the variance between groups (CR1) makes them worth, drawn towards that
    of whole groups the fewer groups show events (or non-events), as `wilson_default` is for marks;
    Student's t with the degrees of freedom of `group_freedom`. None with one group. `weights`, none
    below zero, make it a weighted mean: a group counts with the weight of its rows, and rows are
    worth at most Kish's number. `counts`, without weights, say for how many rows each row stands
    that are groups of their own. Source: Korn & Graubard (1998), Survey Methodology 24, 193-201.
    """
    weight = np.ones(len(values)) if weights is None else weights * len(values) / weights.sum()
    rows, counted = len(values) if counts is None else int(counts.sum()), weight > 0
    mean = float(np.average(values, weights=weights if counts is None else counts))
    members, of_row = np.unique(codes[counted], return_inverse=True)
    times = np.ones(len(members)) if counts is None else np.bincount(of_row, weights=counts)
    groups = float(times.sum())
    if groups < 2:
        return MeanLimits(None, None, _EFFECTIVE, "an interval needs two groups")
    values, weight = values[counted], weight[counted]
    sizes = np.bincount(of_row, weights=weight)
    sums = np.bincount(of_row, weights=weight * values)
    effect = most = float(times * sizes @ sizes) / rows
    marks, kish = bool(np.all((values == 0) | (values == 1))), float(weight @ weight) / len(weight)
    if 0.0 < mean < 1.0:
        residuals = sums - mean * sizes
        seen = float(times * residuals @ residuals) / rows / (mean * (1.0 - mean))
        seen = max(seen * groups / (groups - 1), kish if marks else 0.0)
        telling = min(float(times[sums > 0].sum()), float(times[sums < sizes].sum()))
        share = telling / (telling + 2.0)
        effect = share * seen + (1.0 - share) * max(most, seen)
    freedom = group_freedom(sizes) if counts is None else groups - 1.0
    quantile = two_sided_t(confidence, freedom)
    if marks and kish == 1.0 and groups == rows:
        effect, quantile = 1.0, two_sided_z(confidence)
    limits = wilson_limits(mean, rows / effect, z=quantile)
    return MeanLimits(limits.low, limits.high, _EFFECTIVE, "")


def share_mean(
    values: Floats,
    groups: ArrayLike | None,
    *,
    name: str,
    confidence: float,
    weights: Floats | None = None,
    counts: Ints | None = None,
) -> Ratio:
    """Estimate the mean of figures in [0, 1] as `name`, with the limits of `share_limits`.

    Args:
        values: Figures in [0, 1], shape (n,).
        groups: Group of each row, shape (n,); None: each is its own.
        name: What the figure is called, for the name of the method.
        confidence: Nominal coverage, strictly between 0 and 1.
        weights: Weights of rows, none below zero, shape (n,); None: all alike.
        counts: For how many rows that are groups of their own each row stands; None: for one.

    Returns:
        The mean, undefined without rows or weight.

    Raises:
        ValueError: If `confidence` is not in (0, 1), or the groups do not name each row.
    """
    require_fraction("confidence", confidence)
    codes = group_column(groups, len(values))
    rows = len(values)
    members = len(np.unique(codes))
    shares: Floats | Ints | None = weights
    if counts is not None:
        rows = members = int(counts.sum())
        shares = counts
    limits = NO_ROWS
    mean: float | None = None
    total = float(rows)
    if shares is not None:
        total = float(shares.sum())
    if total > 0:
        mean = float(np.average(values, weights=shares))
        limits = share_limits(values, codes, confidence=confidence, weights=weights, counts=counts)
    return Ratio(
        value=mean,
        low=limits.low,
        high=limits.high,
        confidence=confidence,
        method=f"{name}, {limits.method}",
        trials=rows,
        groups=None if groups is None else members,
        reason=limits.reason,
    )


def mean_half_width(deviation: float, count: int, *, confidence: float = 0.95) -> float:
    """Return half the width of the t interval of a mean of so many independent values.

    `deviation` is their standard deviation with count - 1 below it, in the values' unit. One value
    shows no spread: `count` must be at least 2.

    Source: Student (1908), Biometrika 6:1.
    """
    require_count("count", count, least=2)
    return two_sided_t(confidence, count - 1) * deviation / math.sqrt(count)


def drawn_mean(
    gaps: Floats, groups: ArrayLike, *, drawing: DrawPlan, confidence: float = 0.95
) -> Difference:
    """Estimate the mean of paired differences with no bounds, such as of tokens or money.

    Args:
        gaps: First minus second, one for each pair, in the unit of the mean. At least one.
        groups: The group of each pair; whole groups are drawn.
        drawing: Seed and number of replicates.
        confidence: Nominal coverage, in (0, 1).

    Returns:
        The mean with percentile limits of a bootstrap of whole groups; without limits, and with the
        reason, of fewer than 6 groups.

    Source: Efron (1979), Annals of Statistics 7:1, of the ratio of sums to sizes over groups.
    """
    _, codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    mean = Difference(
        value=float(gaps.mean()),
        low=None,
        high=None,
        confidence=confidence,
        method="mean of paired differences, group bootstrap",
        pairs=len(gaps),
        groups=len(sizes),
        reason=f"an interval for a mean needs {_FEWEST_DRAWN} groups, got {len(sizes)}",
    )
    if len(sizes) < _FEWEST_DRAWN:
        return mean
    sums = np.bincount(codes, weights=gaps)
    blocks = draw_weights(len(sizes), drawing=drawing, rows=len(sizes))
    means = np.concatenate([(weights @ sums) / (weights @ sizes) for weights in blocks])
    low, high = percentile_limits(means, confidence)
    return replace(mean, low=low, high=high, reason="")


def gap_limits(gaps: Floats, codes: Ints, *, confidence: float) -> MeanLimits:
    """Return limits for the mean of paired differences in [-1, 1], at least one.

    Student's t on residuals summed by group (CR1), cut to [-1, 1]; None with one group, or without
    variance. Source: Liang & Zeger (1986), doi:10.1093/biomet/73.1.13; Miller (2024),
    arXiv:2411.00640.
    """
    members, of_row = np.unique(codes, return_inverse=True)
    groups = len(members)
    if groups < 2:
        return MeanLimits(None, None, "t", "an interval needs two groups")
    mean = float(gaps.mean())
    residuals = np.bincount(of_row, weights=gaps - mean)
    variance = float(residuals @ residuals) / len(gaps) ** 2 * groups / (groups - 1)
    if variance < 1e-24:
        return MeanLimits(None, None, "t", _NO_VARIANCE)
    half = two_sided_t(confidence, group_freedom(np.bincount(of_row))) * math.sqrt(variance)
    return MeanLimits(max(-1.0, mean - half), min(1.0, mean + half), "t", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedMean:
    """A figure averaged over seeds, with an interval over groups and seeds.

    Attributes:
        value: Mean over seeds, or None without rows.
        low: Lower limit, or None without an interval.
        high: Upper limit, or None without an interval.
        confidence: Nominal coverage, in (0, 1).
        method: Name of the interval.
        trials: Rows, each of which was tried at every seed.
        groups: Groups they fall into.
        by_seed: The figure at each seed, in order.
        reason: Why something is undefined, or empty.
    """

    DERIVED: ClassVar = ("seeds", "spread", "least", "most")

    value: float | None
    low: float | None = None
    high: float | None = None
    confidence: float
    method: str
    trials: int
    groups: int
    by_seed: tuple[float, ...]
    reason: str = ""

    @property
    def seeds(self) -> int:
        """Seeds behind the figure."""
        return len(self.by_seed)

    @property
    def spread(self) -> float | None:
        """Standard deviation between seeds, or None with fewer than two."""
        return float(np.std(self.by_seed, ddof=1)) if self.seeds > 1 else None

    @property
    def least(self) -> float | None:
        """The figure of the seed that shows least, or None without any."""
        return min(self.by_seed, default=None)

    @property
    def most(self) -> float | None:
        """The figure of the seed that shows most, or None without any."""
        return max(self.by_seed, default=None)


def share_over_seeds(
    values: ArrayLike, groups: ArrayLike | None = None, *, confidence: float = 0.95
) -> SeedMean:
    """Estimate the mean of figures in [0, 1], such as marks, over groups and seeds.

    Args:
        values: One figure a row and seed, in [0, 1], shape (rows, seeds).
        groups: Group of each row, shape (rows,); None: every row alone.
        confidence: Nominal coverage.

    Returns:
        The mean with Wilson's limits at the rows that the variance makes it worth, drawn towards
        those of whole groups the fewer groups show events (or non-events), as the default interval
        of rates is: where all agree, no seed counts as further evidence. No limits with fewer than
        three seeds or one group; undefined without rows.

    Source: Owen (2007), doi:10.1214/07-AOAS122; Cameron, Gelbach & Miller (2011),
    doi:10.1198/jbes.2010.07136; Satterthwaite (1946), doi:10.2307/3002019.
    """
    table, codes = _seed_table(values, groups, confidence=confidence)
    if table.size and (table.min() < 0 or table.max() > 1):
        raise ValueError("values must be in [0, 1]")
    bare = _seed_mean(table, codes, confidence=confidence, method="wilson, groups and seeds")
    if bare.reason:
        return bare
    limits = _wilson_over_seeds(table, codes, confidence)
    return replace(bare, low=limits.low, high=limits.high)


def mean_over_seeds(
    values: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    least: float,
    most: float,
    confidence: float = 0.95,
) -> SeedMean:
    """Estimate the mean of bounded figures, such as differences, over groups and seeds.

    As `share_over_seeds`, but for figures between `least` and `most`: Student's t limits, cut to
    what is possible, and none without variance.
    """
    table, codes = _seed_table(values, groups, confidence=confidence)
    bare = _seed_mean(table, codes, confidence=confidence, method="t, groups and seeds")
    if bare.reason or bare.value is None:
        return bare
    return _around(bare, bare.value, _variance(table, codes, bare.value), least=least, most=most)


def figure_over_seeds(
    by_seed: ArrayLike, without: ArrayLike, *, trials: int, most: float, confidence: float = 0.95
) -> SeedMean:
    """Estimate the mean over seeds of a figure that is no mean of rows.

    Args:
        by_seed: The figure at each seed, shape (seeds,), not below 0.
        without: The figure with each group left out once, NaN where that is undefined, shape
            (groups, seeds).
        trials: Rows behind it.
        most: What the figure cannot exceed.
        confidence: Nominal coverage.

    Returns:
        The mean with Student's t limits; the jackknife's pseudo-values stand for the groups. No
        limits with fewer than three seeds, one group or without variance; undefined without groups.

    Source: Tukey (1958), Annals of Mathematical Statistics 29:614.
    """
    require_fraction("confidence", confidence)
    figures, left = np.asarray(by_seed, dtype=float), np.asarray(without, dtype=float)
    if left.ndim != 2 or left.shape[1] != len(figures):
        raise ValueError(f"without must have shape (groups, {len(figures)}), got {left.shape}")
    count = len(left)
    pseudo, codes = count * figures - (count - 1) * left, np.arange(count)
    bare = SeedMean(
        value=float(figures.mean()) if count and len(figures) else None,
        confidence=confidence,
        method="jackknife, groups and seeds, t",
        trials=trials,
        groups=count,
        by_seed=tuple(figures.tolist()) if count else (),
        reason=_seeds_reason(pseudo, codes),
    )
    if bare.reason or bare.value is None:
        return bare
    if not bool(np.isfinite(left).all()):
        return replace(bare, reason="undefined without one of the groups")
    variance = _variance(pseudo, codes, float(pseudo.mean()))
    return _around(bare, bare.value, variance, least=0.0, most=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatVariance:
    """Variance within and between samples that were each asked equally often.

    Attributes:
        mean: Mean rate, or None without samples.
        standard_error: Of the mean; it covers both parts, and groups of samples. None with fewer
            than two.
        within: Variance of one answer around its sample's own rate, or None with one repeat.
        between: Variance of the samples' true rates, floored at 0, or None when undefined.
        icc: Share of `between` in the total, or None when undefined or when nothing varies.
        flip_rate: Share of samples whose answers were not all alike, or None with one repeat.
        disagreement: Chance that two answers to one sample differ, or None with one repeat.
        samples: Samples.
        repeats: Answers per sample.
        reason: Why something is undefined, or empty.
    """

    mean: float | None
    standard_error: float | None
    within: float | None
    between: float | None
    icc: float | None
    flip_rate: float | None
    disagreement: float | None
    samples: int
    repeats: int
    reason: str = ""


def decompose_repeats(
    successes: ArrayLike, *, repeats: int, groups: ArrayLike | None = None
) -> RepeatVariance:
    """Split the variance of repeated answers into that within and between samples.

    Args:
        successes: Answers with the property, per sample, shape (k,), each in 0..`repeats`.
        repeats: Answers per sample, at least 1, the same for all.
        groups: Group of each sample, shape (k,), by which the standard error is summed (CR1);
            None: each sample is its own.

    Returns:
        The parts of a one-way random effects model. Within and flips need two repeats, between
        needs two samples too; what is undefined is None, with the reason.

    Source: Miller (2024), arXiv:2411.00640.
    """
    counts = require_counts("successes", successes)
    times = require_count("repeats", repeats)
    if times < 1:
        raise ValueError(f"repeats must be at least 1, got {times}")
    if counts.size and counts.max() > times:
        raise ValueError(f"successes must be in 0..{times}, got {counts.max()}")
    samples = len(counts)
    rates = counts / times
    mean: float | None = None
    if samples:
        mean = float(rates.mean())
    spread: float | None = None
    if samples >= 2:
        spread = float(np.var(rates, ddof=1))
    within: float | None = None
    flips: float | None = None
    disagreement: float | None = None
    if samples and times >= 2:
        within = float(np.mean(rates * (1 - rates))) * times / (times - 1)
        flips = float(np.mean((counts > 0) & (counts < times)))
        disagreement = 2 * within
    between: float | None = None
    icc: float | None = None
    if within is not None and spread is not None:
        between = max(0.0, spread - within / times)
        if between + within:
            icc = between / (between + within)
    return RepeatVariance(
        mean=mean,
        standard_error=_error_of_mean(rates, groups, spread),
        within=within,
        between=between,
        icc=icc,
        flip_rate=flips,
        disagreement=disagreement,
        samples=samples,
        repeats=times,
        reason=_repeats_reason(samples, times),
    )


def _error_of_mean(rates: Floats, groups: ArrayLike | None, spread: float | None) -> float | None:
    """Return the standard error of the mean rate: by groups (CR1), or by their `spread` alone."""
    samples = len(rates)
    if groups is None or not samples:
        if spread is None:
            return None
        return math.sqrt(spread / samples)
    sums = np.bincount(group_column(groups, samples), weights=rates - rates.mean())
    members = len(sums)
    if members < 2:
        return None
    return math.sqrt(float(sums @ sums) * members / (members - 1)) / samples


class _Variance(NamedTuple):
    """Variance of a mean over groups and seeds, and what it is worth."""

    value: float
    freedom: float


def _seed_table(
    values: ArrayLike, groups: ArrayLike | None, *, confidence: float
) -> tuple[Floats, Ints]:
    require_fraction("confidence", confidence)
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not table.shape[1]:
        raise ValueError(f"values must have shape (rows, seeds), got {table.shape}")
    codes = group_column(groups, len(table))
    require_equal_lengths(values=len(table), groups=len(codes))
    return table, np.unique(codes, return_inverse=True)[1].astype(np.int64)


def _seeds_reason(table: Floats, codes: Ints) -> str:
    if not table.size:
        return "no rows"
    if table.shape[1] < FEWEST_SEEDS:
        return f"an interval over seeds needs {FEWEST_SEEDS} seeds"
    return "" if codes.max() > 0 else "an interval needs two groups"


def _variance(table: Floats, codes: Ints, centre: float) -> _Variance:
    """Return the variance of the mean of a table, by the formula of this module."""
    rows, seeds = table.shape
    residuals = table - centre
    cells = np.stack([np.bincount(codes, weights=column) for column in residuals.T], axis=1)
    groups, sizes = len(cells), np.bincount(codes)
    by_group, by_seed = cells.sum(axis=1), cells.sum(axis=0)
    rest = cells - by_group[:, None] / seeds - np.outer(sizes / rows, by_seed)
    scale = float(rows * seeds) ** 2
    of_groups = float(by_group @ by_group) * groups / (groups - 1) / scale
    of_seeds = float(by_seed @ by_seed) * seeds / (seeds - 1) / scale
    free = (groups - 1) * (seeds - 1)
    of_rest = float((rest**2).sum()) * groups * seeds / free / scale
    between = max(0.0, of_seeds - of_rest)
    value = of_groups + between
    # Satterthwaite's sum, cautious: what of the seeds' part is doubtful still weighs in it.
    of_sizes = group_freedom(sizes)
    parts = of_groups**2 / of_sizes + between * of_seeds / (seeds - 1)
    return _Variance(value, value**2 / parts if parts else of_sizes)


def _around(
    bare: SeedMean, mean: float, variance: _Variance, *, least: float, most: float
) -> SeedMean:
    """Return the mean with Student's t limits, cut to what is possible."""
    if variance.value < 1e-24:
        reason = "no variance between groups or seeds to build an interval on"
        return replace(bare, reason=reason)
    half = two_sided_t(bare.confidence, variance.freedom) * math.sqrt(variance.value)
    return replace(bare, low=max(least, mean - half), high=min(most, mean + half))


def _wilson_over_seeds(table: Floats, codes: Ints, confidence: float) -> Limits:
    """Return Wilson's limits at the effective number of rows."""
    rows, seeds = table.shape
    mean, sizes = float(table.mean()), np.bincount(codes)
    most = float(sizes @ sizes) / rows
    quantile = two_sided_t(confidence, group_freedom(sizes))
    effect = most
    if 0.0 < mean < 1.0:
        variance = _variance(table, codes, mean)
        effect = max(variance.value / (mean * (1.0 - mean) / rows), 1.0 / seeds)
        # What seeds add has no ceiling, so the one of groups only ever draws upwards.
        by_group = np.bincount(codes, weights=table.sum(axis=1))
        telling = min(int((by_group > 0).sum()), int((by_group < sizes * seeds).sum()))
        weight = telling / (telling + 2.0)
        effect = weight * effect + (1.0 - weight) * max(most, effect)
        quantile = two_sided_t(confidence, variance.freedom)
    elif len(sizes) == rows:
        quantile = two_sided_z(confidence)
    return wilson_limits(mean, rows / effect, z=quantile)


def _seed_mean(table: Floats, codes: Ints, *, confidence: float, method: str) -> SeedMean:
    return SeedMean(
        value=float(table.mean()) if table.size else None,
        confidence=confidence,
        method=method,
        trials=len(table),
        groups=int(codes.max()) + 1 if len(codes) else 0,
        by_seed=tuple(table.mean(axis=0).tolist()) if table.size else (),
        reason=_seeds_reason(table, codes),
    )


def _repeats_reason(samples: int, repeats: int) -> str:
    if not samples:
        return "no samples"
    if repeats < 2:
        return "one answer per sample shows no spread within samples"
    return "one sample shows no spread between samples" if samples < 2 else ""
