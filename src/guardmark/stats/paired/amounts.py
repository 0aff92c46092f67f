"""Differences of what two arms spend on the same rows: calls, tokens, money, time.

Amounts have no upper end, and their means are skewed: most cases take little and few take much, or
most pairs are alike and few are not. Student's limits cover .55 to .90 there. Three things are
added to them. Limits reach further to the side of the tail (Cornish and Fisher's expansion of a
studentized mean, four times its first term, since few rows show too little of a tail). To each
side they are at least what four levels more would do that take nothing, or twice as much, in the
arm that spends more: what happens in one of ten tasks is often in none of twenty. And a factor of
which few levels lie on both sides of the mean is drawn to its safe end, as in
`stats.rates.crossed`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.arguments import (
    number_column,
    require_counts,
    require_equal_lengths,
    require_fraction,
)
from guardmark.stats.distributions import two_sided_t
from guardmark.stats.rates.clustered import group_freedom
from guardmark.stats.rates.crossed import crossed_variance

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Floats, Ints

FEWEST_GROUPS: Final = 10
"""With fewer groups, or fewer levels of both crossed factors, no limits were tried."""
_TAIL: Final = 4.0
_UNSEEN: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountDifference:
    """How much more one arm spends on a row than another, on average over the same rows.

    Attributes:
        value: Mean of the first less that of the second, or None without pairs.
        low: Lower limit, or None without an interval.
        high: Upper limit, or None without an interval.
        first: Mean of the first, or None without pairs.
        second: Mean of the second, or None without pairs.
        confidence: Nominal coverage, in (0, 1).
        method: Name of the interval.
        pairs: Rows of which both amounts are known.
        groups: Groups they fall into, or levels of the factor with fewer of them.
        reason: Why something is undefined, or empty.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    first: float | None
    second: float | None
    confidence: float
    method: str
    pairs: int
    groups: int
    reason: str = ""


class _Spread(NamedTuple):
    """How far the mean of the differences may lie off, and to which side."""

    variance: float
    third_moment: float  # Of the mean.
    freedom: float
    unseen: float  # Share of the rows that one level more may be.


def crossed_amounts(
    first_amounts: ArrayLike,
    second_amounts: ArrayLike,
    *,
    first: ArrayLike,
    second: ArrayLike,
    strata: ArrayLike | None = None,
    autocorrelation: float = 1.0,
    confidence: float = 0.95,
) -> AmountDifference:
    """Estimate how much more the first arm spends, over levels like these of both factors.

    Args:
        first_amounts: What the first arm spent on each row, not below 0, shape (n,).
        second_amounts: What the second spent on the same rows.
        first: Level of the first factor of each row, such as its task.
        second: Level of the second factor of each row, such as its injection.
        strata: Suite of each row, where several share no levels; None: one.
        autocorrelation: Rows in a row that tell as much as one, at least 1, where amounts hang
            together in time (`stats.time_series`).
        confidence: Nominal coverage of the interval.

    Returns:
        The difference. Without limits, and with the reason, where both factors have fewer than ten
        levels over all suites, or one has a single level in a suite; undefined without rows.

    Raises:
        ValueError: If lengths differ, an amount is below 0 or not finite, or `confidence` is not
            in (0, 1).

    Source: this project's construction, docs/explanation/statistics.md. Hall (1992), The Bootstrap
    and Edgeworth Expansion, section 2.6 (studentized means); those of `crossed_rate`.
    """
    ours, theirs = _amounts(first_amounts, second_amounts, confidence)
    tasks, others = require_counts("first", first), require_counts("second", second)
    suites = np.zeros(len(ours), dtype=np.int64)
    if strata is not None:
        suites = require_counts("strata", strata)
    require_equal_lengths(rows=len(ours), first=len(tasks), second=len(others), strata=len(suites))
    gaps = ours - theirs
    above = np.zeros(len(gaps), dtype=bool)
    if len(gaps):
        above = gaps > gaps.mean()
    worth = crossed_variance(gaps, above, first=tasks, second=others, strata=suites)
    reason = worth.reason
    most = max(worth.first_levels, worth.second_levels)
    if not reason and most < FEWEST_GROUPS:
        reason = _too_few(most)
    spread = None
    if not reason:
        third, unseen = 0.0, 0.0
        for suite in np.unique(suites):
            rows = suites == suite
            share = float(rows.mean())
            residuals = gaps[rows] - gaps[rows].mean()
            third += share**3 * _third_of_crossed(residuals, tasks[rows], others[rows])
            levels = min(len(np.unique(tasks[rows])), len(np.unique(others[rows])))
            unseen = math.hypot(unseen, share / levels)
        spread = _Spread(worth.variance, third, worth.degrees_of_freedom, unseen)
    return _estimate(
        (ours, theirs),
        spread,
        confidence=confidence,
        method="skewed t, crossed",
        groups=worth.fewer_levels,
        reason=reason,
        autocorrelation=autocorrelation,
    )


def amounts_over_these(
    first_amounts: ArrayLike,
    second_amounts: ArrayLike,
    *,
    groups: ArrayLike,
    autocorrelation: float = 1.0,
    confidence: float = 0.95,
) -> AmountDifference:
    """Estimate how much more the first arm spends, over groups like these, such as tasks.

    Of crossed rows it says nothing of other levels of the other factor, such as other injections.

    Args:
        first_amounts: What the first arm spent on each row, not below 0, shape (n,).
        second_amounts: What the second spent on the same rows.
        groups: Group of each row.
        autocorrelation: As in `crossed_amounts`.
        confidence: Nominal coverage of the interval.

    Returns:
        The difference; without limits, and with the reason, with fewer than ten groups.

    Raises:
        ValueError: As `crossed_amounts`.
    """
    ours, theirs = _amounts(first_amounts, second_amounts, confidence)
    codes = require_counts("groups", groups)
    require_equal_lengths(rows=len(ours), groups=len(codes))
    count = len(np.unique(codes))
    reason, spread = "", None
    if not len(ours):
        reason = "no pairs"
    elif count < FEWEST_GROUPS:
        reason = _too_few(count)
    else:
        gaps = ours - theirs
        sums, sizes = _sums(gaps - gaps.mean(), codes)
        rows = len(gaps)
        spread = _Spread(
            variance=float(sums @ sums) / rows**2 * count / (count - 1),
            third_moment=_third_of_levels(sums, rows),
            freedom=group_freedom(sizes),
            unseen=float(sizes.astype(float) @ sizes) / rows**2,
        )
    return _estimate(
        (ours, theirs),
        spread,
        confidence=confidence,
        method="skewed t, grouped",
        groups=count,
        reason=reason,
        autocorrelation=autocorrelation,
    )


def _too_few(count: int) -> str:
    return f"limits of amounts need {FEWEST_GROUPS} groups, and these are {count}"


def _amounts(first: ArrayLike, second: ArrayLike, confidence: float) -> tuple[Floats, Floats]:
    require_fraction("confidence", confidence)
    ours = number_column(first, name="first_amounts")
    theirs = number_column(second, name="second_amounts")
    require_equal_lengths(first_amounts=len(ours), second_amounts=len(theirs))
    if len(ours) and min(ours.min(), theirs.min()) < 0.0:
        raise ValueError("amounts must not be below 0")
    return ours, theirs


def _estimate(
    amounts: tuple[Floats, Floats],
    spread: _Spread | None,
    *,
    confidence: float,
    method: str,
    groups: int,
    reason: str,
    autocorrelation: float,
) -> AmountDifference:
    """Put the limits around the mean difference, where there is what they stand on."""
    ours, theirs = amounts
    if not len(ours):
        return AmountDifference(
            value=None,
            first=None,
            second=None,
            confidence=confidence,
            method=method,
            pairs=0,
            groups=0,
            reason=reason,
        )
    gaps = ours - theirs
    first, second, value = float(ours.mean()), float(theirs.mean()), float(gaps.mean())
    low, high = None, None
    if spread is not None:
        in_time = autocorrelation * float(gaps.var()) / len(gaps)
        variance = max(spread.variance, in_time)
        error = math.sqrt(variance)
        quantile = two_sided_t(confidence, spread.freedom)
        skewness = 0.0
        if error > 0.0:
            skewness = spread.third_moment / error**3
        reach = _TAIL * (2.0 * quantile**2 + 1.0) / 6.0
        below = (quantile + reach * max(-skewness, 0.0)) * error
        above = (quantile + reach * max(skewness, 0.0)) * error
        unseen = _UNSEEN * spread.unseen * max(first, second)
        low, high = value - math.hypot(below, unseen), value + math.hypot(above, unseen)
    return AmountDifference(
        value=value,
        low=low,
        high=high,
        first=first,
        second=second,
        confidence=confidence,
        method=method,
        pairs=len(ours),
        groups=groups,
        reason=reason,
    )


def _third_of_crossed(residuals: Floats, first: Ints, second: Ints) -> float:
    """Return the third moment of a suite's mean; what crossings hold is in both factors."""
    rows = len(residuals)
    by_first, _ = _sums(residuals, first)
    by_second, _ = _sums(residuals, second)
    by_cell, _ = _sums(residuals, first * (int(second.max()) + 1) + second)
    of_cells = float((by_cell**3).sum()) / rows**3
    return _third_of_levels(by_first, rows) + _third_of_levels(by_second, rows) - of_cells


def _third_of_levels(sums: Floats, rows: int) -> float:
    count = len(sums)
    if count < 3:
        return 0.0  # two residual sums are opposites, and show no skewness
    return float((sums**3).sum()) / rows**3 * count**2 / ((count - 1) * (count - 2))


def _sums(residuals: Floats, codes: Ints) -> tuple[Floats, Ints]:
    """Return the sum of residuals of each group, and how many rows it has."""
    numbered = np.unique(codes, return_inverse=True)[1].reshape(-1)
    sums = np.bincount(numbered, weights=residuals).astype(np.float64)
    return sums, np.bincount(numbered).astype(np.int64)
