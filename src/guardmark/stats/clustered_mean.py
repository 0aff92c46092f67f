"""Limits for the mean of a bounded figure whose rows fall into groups."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from guardmark.stats.distributions import two_sided_t
from guardmark.stats.normal import two_sided_z
from guardmark.stats.proportion import wilson_limits

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NO_VARIANCE = "no variance between groups to build an interval on"


class MeanLimits(NamedTuple):
    """Limits of a mean.

    Attributes:
        low: Lower limit, or None without an interval.
        high: Upper limit, or None in the same cases.
        method: How they were found: `t`, or `wilson over groups`.
        reason: Why there is no interval, or empty.
    """

    low: float | None
    high: float | None
    method: str
    reason: str


def share_limits(
    values: NDArray[np.float64], codes: NDArray[np.int64], *, confidence: float
) -> MeanLimits:
    """Return limits for the mean of figures in [0, 1].

    Args:
        values: One a row, in [0, 1], shape (n,); at least one.
        codes: Group of each row, shape (n,).
        confidence: Nominal coverage, in (0, 1).

    Returns:
        Student's t on residuals summed by group, cut to [0, 1]. Where every row is its own group
        and 0 or 1, and where all rows are 0 or all are 1, Wilson's limits over groups. None with
        one group, or without variance.
    """
    groups, mean = len(np.unique(codes)), float(values.mean())
    if groups < 2:
        return MeanLimits(None, None, "t", "an interval needs two groups")
    alone = groups == len(values) and bool(np.all((values == 0) | (values == 1)))
    if alone or mean in {0.0, 1.0}:
        limits = wilson_limits(round(mean * groups) / groups, groups, z=two_sided_z(confidence))
        return MeanLimits(limits.low, limits.high, "wilson over groups", "")
    half = clustered_half_width(values, codes, confidence=confidence)
    if half is None:
        return MeanLimits(None, None, "t", _NO_VARIANCE)
    return MeanLimits(max(0.0, mean - half), min(1.0, mean + half), "t", "")


def gap_limits(
    gaps: NDArray[np.float64], codes: NDArray[np.int64], *, confidence: float
) -> MeanLimits:
    """Return limits for the mean of paired differences of figures in [0, 1].

    Args:
        gaps: One a row, in [-1, 1], shape (n,); at least one.
        codes: Group of each row, shape (n,).
        confidence: Nominal coverage, in (0, 1).

    Returns:
        Student's t on residuals summed by group, cut to [-1, 1]; None with one group, or without
        variance.
    """
    if len(np.unique(codes)) < 2:
        return MeanLimits(None, None, "t", "an interval needs two groups")
    half = clustered_half_width(gaps, codes, confidence=confidence)
    if half is None:
        return MeanLimits(None, None, "t", _NO_VARIANCE)
    mean = float(gaps.mean())
    return MeanLimits(max(-1.0, mean - half), min(1.0, mean + half), "t", "")


def clustered_half_width(
    values: NDArray[np.float64], codes: NDArray[np.int64], *, confidence: float
) -> float | None:
    """Return half the width of an interval for a mean over grouped rows.

    Args:
        values: One a row, shape (n,).
        codes: Group of each row, shape (n,); at least two groups.
        confidence: Nominal coverage, in (0, 1).

    Returns:
        Student's t at K - 1 degrees of freedom times the CR1 standard error (residuals summed
        by group, K / (K - 1) for K groups), or None without variance.

    References:
        Liang & Zeger (1986), doi:10.1093/biomet/73.1.13; Miller (2024), arXiv 2411.00640.
    """
    members, of_row = np.unique(codes, return_inverse=True)
    groups = len(members)
    residuals = np.bincount(of_row, weights=values - values.mean())
    variance = float(residuals @ residuals) / len(values) ** 2 * groups / (groups - 1)
    if variance < 1e-24:
        return None
    return two_sided_t(confidence, groups - 1) * math.sqrt(variance)
