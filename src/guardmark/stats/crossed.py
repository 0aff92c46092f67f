"""Means over rows that fall into groups and over seeds that all rows were tried with.

Each seed meets every row, so figures of one seed share its luck, and figures of one group share
their origin. An interval has to cover both: the variance of the mean over K groups and S seeds is

    V = V_groups + max(0, V_seeds - V_rest),

V_groups from residuals summed by group over all seeds (CR1), V_seeds from those summed by seed, and
V_rest from what of a group at a seed neither explains, which both of the others hold already.
Student's t at Satterthwaite's degrees of freedom. A pigeonhole bootstrap (Owen 2007), which
resamples both, aims at the same variance; at five seeds its percentiles are too short where seeds
differ, since five draws from five show too little of the spread (tests/stats/test_crossed.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.stats.arguments import require_equal_lengths, require_fraction
from guardmark.stats.columns import group_column
from guardmark.stats.distributions import two_sided_t
from guardmark.stats.normal import two_sided_z
from guardmark.stats.proportion import wilson_limits

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

FEWEST_SEEDS: Final = 3
"""With two seeds a single difference would tell how seeds differ: limits came out too short."""
_NOTHING: Final = 1e-24


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

    value: float | None
    low: float | None
    high: float | None
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


@dataclass(frozen=True, slots=True)
class _Variance:
    """Variance of a mean over groups and seeds, and what it is worth."""

    value: float
    freedom: float


def share_over_seeds(
    values: ArrayLike, groups: ArrayLike | None = None, *, confidence: float = 0.95
) -> SeedMean:
    """Estimate the mean of figures in [0, 1], such as marks, over groups and seeds.

    Args:
        values: One figure a row and seed, in [0, 1], shape (rows, seeds).
        groups: Group of each row, shape (rows,); None: every row alone.
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        The mean with Wilson's limits at the rows that the variance makes it worth, drawn towards
        those of whole groups the fewer groups show events (or non-events), as the default
        interval of rates is: where all agree, no seed counts as further evidence. No limits
        with fewer than three seeds or one group; undefined without rows.

    Raises:
        ValueError: On a bad shape, or a figure outside [0, 1].

    References:
        Owen (2007), doi:10.1214/07-AOAS122; Cameron, Gelbach & Miller (2011),
        doi:10.1198/jbes.2010.07136; Satterthwaite (1946), doi:10.2307/3002019.
    """
    table, codes = _table(values, groups, confidence=confidence)
    if table.size and (table.min() < 0 or table.max() > 1):
        raise ValueError("values must be in [0, 1]")
    reason = _reason(table, codes)
    limits = None if reason else _wilson(table, codes, confidence)
    return _found(table, codes, limits, confidence=confidence, method="wilson", reason=reason)


def mean_over_seeds(
    values: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    least: float,
    most: float,
    confidence: float = 0.95,
) -> SeedMean:
    """Estimate the mean of bounded figures, such as differences, over groups and seeds.

    Args:
        values: One figure a row and seed, shape (rows, seeds).
        groups: Group of each row, shape (rows,); None: every row alone.
        least: What no figure is below.
        most: What no figure is above.
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        The mean with Student's t limits, cut to what is possible. No limits with fewer than three
        seeds, one group or without variance; undefined without rows.

    Raises:
        ValueError: On a bad shape.
    """
    table, codes = _table(values, groups, confidence=confidence)
    reason, limits = _reason(table, codes), None
    if not reason:
        variance = _variance(table, codes, float(table.mean()))
        if variance.value < _NOTHING:
            reason = "no variance between groups or seeds to build an interval on"
        else:
            mean, half = float(table.mean()), _half_width(variance, confidence)
            limits = max(least, mean - half), min(most, mean + half)
    return _found(table, codes, limits, confidence=confidence, method="t", reason=reason)


def figure_over_seeds(
    by_seed: ArrayLike,
    without: ArrayLike,
    *,
    trials: int,
    most: float,
    confidence: float = 0.95,
) -> SeedMean:
    """Estimate the mean over seeds of a figure that is no mean of rows.

    Args:
        by_seed: The figure at each seed, shape (seeds,), not below 0.
        without: The figure with each group left out once, NaN where that is undefined, shape
            (groups, seeds).
        trials: Rows behind it.
        most: What the figure cannot exceed.
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        The mean with Student's t limits; the jackknife's pseudo-values stand for the groups. No
        limits with fewer than three seeds, one group or without variance; undefined without groups.

    Raises:
        ValueError: On unequal numbers of seeds.

    References:
        Tukey (1958), Annals of Mathematical Statistics 29:614.
    """
    require_fraction("confidence", confidence)
    figures, left = np.asarray(by_seed, dtype=float), np.asarray(without, dtype=float)
    if left.ndim != 2 or left.shape[1] != len(figures):
        raise ValueError(f"without must have shape (groups, {len(figures)}), got {left.shape}")
    count = len(left)
    pseudo, codes = count * figures - (count - 1) * left, np.arange(count)
    reason, limits = _reason(pseudo, codes), None
    if not reason and not bool(np.isfinite(left).all()):
        reason = "undefined without one of the groups"
    if not reason:
        variance = _variance(pseudo, codes, float(pseudo.mean()))
        if variance.value < _NOTHING:
            reason = "no variance between groups or seeds to build an interval on"
        else:
            mean, half = float(figures.mean()), _half_width(variance, confidence)
            limits = max(0.0, mean - half), min(most, mean + half)
    return SeedMean(
        value=float(figures.mean()) if count and len(figures) else None,
        low=limits[0] if limits else None,
        high=limits[1] if limits else None,
        confidence=confidence,
        method="jackknife, groups and seeds, t",
        trials=trials,
        groups=count,
        by_seed=tuple(figures.tolist()) if count else (),
        reason=reason,
    )


def _table(
    values: ArrayLike, groups: ArrayLike | None, *, confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    require_fraction("confidence", confidence)
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not table.shape[1]:
        raise ValueError(f"values must have shape (rows, seeds), got {table.shape}")
    codes = group_column(groups, len(table))
    require_equal_lengths(values=len(table), groups=len(codes))
    return table, np.unique(codes, return_inverse=True)[1].astype(np.int64)


def _reason(table: NDArray[np.float64], codes: NDArray[np.int64]) -> str:
    if not table.size:
        return "no rows"
    if table.shape[1] < FEWEST_SEEDS:
        return f"an interval over seeds needs {FEWEST_SEEDS} seeds"
    return "" if codes.max() > 0 else "an interval needs two groups"


def _variance(table: NDArray[np.float64], codes: NDArray[np.int64], centre: float) -> _Variance:
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
    parts = of_groups**2 / (groups - 1) + between * of_seeds / (seeds - 1)
    return _Variance(value, value**2 / parts if parts else groups - 1)


def _half_width(variance: _Variance, confidence: float) -> float:
    return two_sided_t(confidence, variance.freedom) * math.sqrt(variance.value)


def _wilson(
    table: NDArray[np.float64], codes: NDArray[np.int64], confidence: float
) -> tuple[float, float]:
    """Return Wilson's limits at the effective number of rows."""
    rows, seeds = table.shape
    mean, sizes = float(table.mean()), np.bincount(codes)
    most = float(sizes @ sizes) / rows
    quantile = two_sided_t(confidence, len(sizes) - 1)
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
    limits = wilson_limits(mean, rows / effect, z=quantile)
    return limits.low, limits.high


def _found(
    table: NDArray[np.float64],
    codes: NDArray[np.int64],
    limits: tuple[float, float] | None,
    *,
    confidence: float,
    method: str,
    reason: str,
) -> SeedMean:
    return SeedMean(
        value=float(table.mean()) if table.size else None,
        low=limits[0] if limits else None,
        high=limits[1] if limits else None,
        confidence=confidence,
        method=f"{method}, groups and seeds",
        trials=len(table),
        groups=int(codes.max()) + 1 if len(codes) else 0,
        by_seed=tuple(table.mean(axis=0).tolist()) if table.size else (),
        reason=reason,
    )
