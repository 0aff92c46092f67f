"""Intervals for rates of crossed rows, such as tasks that meet injections.

A row belongs to a level of each of two factors, so neither rows nor the groups of one factor are
independent: tasks with one injection resemble each other, and injections with one task do. The
textbook's two-way variance covers .78 to .91 where a few successes on one injection make it look
small; the one here is drawn to its safe end the fewer levels of a factor show both results.

`first` and `second` number the level of each factor, one entry a row, from 0 on; rows may lack in
any crossing, and several rows of one crossing (repeats) count as alike as they are. `strata` number
the suites that share no level of either factor: their variances are added with the squares of
their shares of the rows; None: one suite. Unequal lengths, negative codes and a `confidence`
outside (0, 1) raise `ValueError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from guardmark.core.estimate import Estimate
from guardmark.core.values import dataclass
from guardmark.stats.arguments import (
    label_column,
    require_counts,
    require_equal_lengths,
    require_fraction,
)
from guardmark.stats.distributions import two_sided_t
from guardmark.stats.rates.clustered import FEW_GROUPS, wilson_default
from guardmark.stats.rates.proportion import NO_TRIALS, wilson_limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Flags, Floats, Ints

ONE_LEVEL: Final = "an interval over levels like these needs two levels of each crossed factor"
_MANY_FIRST: Final = 40
_MANY_SECOND: Final = 14
"""With more levels than these a factor of which few levels speak is trusted less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossedVariance:
    """What crossed rows are worth.

    Attributes:
        variance: Variance of the mean over all rows; 0 where all rows are alike.
        effective_n: Independent rows they are worth; 0 where nothing shows it.
        degrees_of_freedom: Of Student's t (Satterthwaite).
        first_levels: Levels of the first factor, summed over strata.
        second_levels: Levels of the second factor, summed over strata.
        fewer_levels: Levels of the factor with fewer of them, summed over strata.
        reason: Why `effective_n` is 0, or empty.
    """

    variance: float
    effective_n: float
    degrees_of_freedom: float
    first_levels: int
    second_levels: int
    fewer_levels: int
    reason: str = ""


def crossed_rate(
    successes: ArrayLike,
    *,
    first: ArrayLike,
    second: ArrayLike,
    strata: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate a rate over levels like these of both factors.

    Wilson's interval at the effective number of rows, with Student's t at the degrees of freedom of
    Satterthwaite (see `crossed_variance`). `rate_over_these` is for the levels of one factor that
    were tried, and no others. 0 of n reads as 0 of as many rows as the factor with fewer levels
    has.

    Args:
        successes: Whether each row has the property.
        first: Level of the first factor of each row, such as its task.
        second: Level of the second factor of each row, such as its injection.
        strata: Suite of each row, where several share no levels; None: one.
        confidence: Nominal coverage of the interval.

    Returns:
        The estimate; `groups` is the number of levels of the factor with fewer of them. Without
        limits, and with the reason, where a factor of some suite has a single level.

    Source: this project's construction, docs/explanation/statistics.md. Cameron, Gelbach & Miller
    (2011), doi:10.1198/jbes.2010.07136 (two-way variance); MacKinnon, Nielsen & Webb (2021), JBES
    39:505 (the larger variance in place of a negative one); Owen (2007), doi:10.1214/07-AOAS122;
    Menzel (2021), doi:10.3982/ECTA15383; Satterthwaite (1946); Korn & Graubard (1998).
    """
    require_fraction("confidence", confidence)
    flags = label_column(successes, name="successes")
    hits, trials = int(flags.sum()), len(flags)
    worth = crossed_variance(flags.astype(float), flags, first=first, second=second, strata=strata)
    low, high, effective, effect, freedom = None, None, None, None, None
    if worth.effective_n:
        freedom = worth.degrees_of_freedom
        quantile = two_sided_t(confidence, freedom)
        low, high = wilson_limits(hits / trials, worth.effective_n, z=quantile)
        effective, effect = worth.effective_n, trials / worth.effective_n
    return Estimate(
        successes=hits,
        trials=trials,
        low=low,
        high=high,
        confidence=confidence,
        method="wilson_crossed",
        groups=worth.fewer_levels,
        effective_n=effective,
        design_effect=effect,
        degrees_of_freedom=freedom,
        few_groups=0 < worth.fewer_levels < FEW_GROUPS,
        reason=worth.reason,
    )


def rate_over_these(
    successes: ArrayLike,
    *,
    groups: ArrayLike,
    strata: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate the rate over the levels of one factor that were tried, such as these injections.

    The groups are the levels of the other factor (tasks), which are taken as drawn: the default
    interval of grouped rows. It says nothing of other injections.

    Args:
        successes: Whether each row has the property.
        groups: Level of the factor that is taken as drawn, for each row.
        strata: Suite of each row; the levels of each are groups of their own. None: one.
        confidence: Nominal coverage of the interval.
    """
    flags = label_column(successes, name="successes")
    codes = require_counts("groups", groups)
    require_equal_lengths(successes=len(flags), groups=len(codes))
    if strata is not None and len(codes):
        suites = require_counts("strata", strata)
        require_equal_lengths(successes=len(flags), strata=len(suites))
        codes = suites * (int(codes.max()) + 1) + codes
    own = _levels(codes)
    hits = np.bincount(own, weights=flags).astype(np.int64)
    return wilson_default(hits, np.bincount(own), confidence=confidence)


def crossed_variance(
    values: Floats,
    speaks: Flags,
    *,
    first: ArrayLike,
    second: ArrayLike,
    strata: ArrayLike | None = None,
) -> CrossedVariance:
    """Say what crossed rows are worth for the mean of their values.

    In a suite of N rows with mean p and variance s of a row (p (1 - p) for a rate):

    1. va is the sum of the squared residual sums of the R first levels over N^2, times R / (R - 1);
       vb the same over the C second levels; vi over the crossings (p (1 - p) / (N - 1) where each
       has one row).
    2. Few speak: A = w va + (1 - w) s sum m^2 / N^2, m the rows of a level, w = n / (n + k), n the
       levels that speak: those with one result or those with the other, whichever are fewer. B
       likewise. k is 1, and 2 with more than 40 or 14 levels.
    3. The variance is the largest of A + B - vi, A, B and s / N (or vi, where crossings have
       several rows); a suite whose rows are all alike is worth as many rows as its factor with
       fewer levels has.
    4. Degrees: (ea + eb + vi)^2 / (ea^2 / (R - 1) + eb^2 / (C - 1) + vi^2 / N), N the crossings,
       with ea = max(A - vi, 0), eb alike; at least the fewer levels less one.

    Args:
        values: Value of each row, shape (n,).
        speaks: Whether each row shows what is seldom: a success, or a pair that differs.
        first: Level of the first factor of each row.
        second: Level of the second factor of each row.
        strata: Suite of each row; None: one.
    """
    a, b = require_counts("first", first), require_counts("second", second)
    suites = np.zeros(len(values), dtype=np.int64)
    if strata is not None:
        suites = require_counts("strata", strata)
    require_equal_lengths(rows=len(values), first=len(a), second=len(b), strata=len(suites))
    if not len(values):
        return _unknown(NO_TRIALS, [])
    parts = []
    for suite in np.unique(suites):
        rows = suites == suite
        parts.append(_Suite.of(values[rows], speaks[rows], first=a[rows], second=b[rows]))
    if any(part.fewer < 2 for part in parts):
        return _unknown(ONE_LEVEL, parts)
    return _add_up(parts, values)


class _Suite(NamedTuple):
    """The parts of the variance of one suite's mean."""

    rows: int
    cells: int  # Crossings that have a row.
    is_constant: bool
    first: int  # Levels of the first factor.
    second: int
    by_first: float  # A of `crossed_variance`.
    by_second: float
    by_cell: float
    spread: float  # Variance of a row.

    @classmethod
    def of(cls, values: Floats, speaks: Flags, *, first: Ints, second: Ints) -> _Suite:
        """Add up the residuals of one suite by each factor, and by crossing."""
        residuals = values - values.mean()
        spread = float(residuals @ residuals) / len(values)
        a, b = _levels(first), _levels(second)
        levels, others = int(a.max()) + 1, int(b.max()) + 1
        doubt = 1.0
        if max(levels, others) > _MANY_FIRST or min(levels, others) > _MANY_SECOND:
            doubt = 2.0
        cells = _levels(a * others + b)
        return cls(
            rows=len(values),
            cells=int(cells.max()) + 1,
            is_constant=bool((values == values[0]).all()),
            first=levels,
            second=others,
            by_first=_by_level(residuals, speaks, levels=a, doubt=doubt),
            by_second=_by_level(residuals, speaks, levels=b, doubt=doubt),
            by_cell=_residual_variance(residuals, cells),
            spread=spread,
        )

    @property
    def fewer(self) -> int:
        """Levels of the factor with fewer of them."""
        return min(self.first, self.second)

    def variance(self, spread: float) -> float:
        """Return the variance of the mean; `spread` is that of a row where none is seen."""
        if self.is_constant:
            return spread / self.fewer
        both = self.by_first + self.by_second - self.by_cell
        independent = max(self.spread / self.rows, self.by_cell * (1.0 - 1.0 / self.cells))
        return max(both, self.by_first, self.by_second, independent)

    def freedom_terms(self, spread: float) -> tuple[float, float]:
        """Return the variance for Satterthwaite's ratio, and the sum of squares below it."""
        if self.is_constant:
            variance = spread / self.fewer
            return variance, variance**2 / (self.fewer - 1)
        first = max(self.by_first - self.by_cell, 0.0)
        second = max(self.by_second - self.by_cell, 0.0)
        below = first**2 / (self.first - 1) + second**2 / (self.second - 1)
        return first + second + self.by_cell, below + self.by_cell**2 / self.cells


def _levels(codes: Ints) -> Ints:
    """Number the levels that occur from 0 on, without gaps."""
    numbered: Ints = np.unique(codes, return_inverse=True)[1].reshape(-1)
    return numbered


def _by_level(residuals: Floats, speaks: Flags, *, levels: Ints, doubt: float) -> float:
    """Return the variance by one factor, drawn to its safe end where few of its levels speak."""
    sizes = np.bincount(levels)
    with_event = int((np.bincount(levels, weights=speaks) > 0).sum())
    with_other = int((np.bincount(levels, weights=~speaks) > 0).sum())
    telling = min(with_event, with_other)
    weight = telling / (telling + doubt)
    spread = float(residuals @ residuals) / len(residuals)
    safe = spread * float(sizes.astype(float) @ sizes) / len(residuals) ** 2
    return weight * _residual_variance(residuals, levels) + (1.0 - weight) * safe


def _residual_variance(residuals: Floats, levels: Ints) -> float:
    """Return the variance of the mean of rows that are alike within levels."""
    sums = np.bincount(levels, weights=residuals)
    count = len(sums)
    return float(sums @ sums) / len(residuals) ** 2 * count / max(1, count - 1)


def _add_up(parts: Sequence[_Suite], values: Floats) -> CrossedVariance:
    """Add the variances of suites with the squares of their shares of the rows."""
    total = len(values)
    spread = float(values.var()) or 1.0  # of rows that are all alike: it cancels
    variance, above, below = 0.0, 0.0, 0.0
    first_levels, second_levels, fewer_levels = 0, 0, 0
    is_constant = True
    for part in parts:
        share = (part.rows / total) ** 2
        variance += share * part.variance(spread)
        seen, squares = part.freedom_terms(spread)
        above += share * seen
        below += share**2 * squares
        first_levels += part.first
        second_levels += part.second
        fewer_levels += part.fewer
        is_constant = is_constant and part.is_constant
    freedom = min(part.fewer for part in parts) - 1.0
    if below > 0.0:
        freedom = max(above**2 / below, freedom)
    effective_n = min(float(total), spread / variance)
    if is_constant:
        variance = 0.0
    return CrossedVariance(
        variance=variance,
        effective_n=effective_n,
        degrees_of_freedom=freedom,
        first_levels=first_levels,
        second_levels=second_levels,
        fewer_levels=fewer_levels,
    )


def _unknown(reason: str, parts: Sequence[_Suite]) -> CrossedVariance:
    """Return what rows are worth of which nothing shows it."""
    return CrossedVariance(
        variance=0.0,
        effective_n=0.0,
        degrees_of_freedom=0.0,
        first_levels=sum(part.first for part in parts),
        second_levels=sum(part.second for part in parts),
        fewer_levels=sum(part.fewer for part in parts),
        reason=reason,
    )
