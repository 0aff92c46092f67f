"""Intervals for the difference of two rates on the same samples.

The difference is always the first rate minus the second. Bonett-Price is the default: closed form,
defined for every table, and in its grouped form shrunk by a design effect like a rate, and no
narrower than the intervals of both one-sided shares allow.

`confidence` is the nominal coverage, in (0, 1). Grouped counts have one entry a group: pairs where
only the first had the property, pairs where only the second had it, and `sizes`, all pairs; groups
without pairs are left out. Without pairs a difference is undefined. What is out of range, of
unequal length or no part of its whole raises `ValueError`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from guardmark.core.estimate import Difference
from guardmark.core.values import dataclass
from guardmark.stats.arguments import (
    require_count,
    require_counts,
    require_equal_lengths,
    require_fraction,
)
from guardmark.stats.distributions import two_sided_t, two_sided_z
from guardmark.stats.paired.significance import mcnemar, sign_flip
from guardmark.stats.rates.clustered import group_freedom, wilson_default
from guardmark.stats.rates.proportion import ONE_GROUP, Limits, mover

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike


_NO_PAIRS = "no pairs"
_STEPS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTable:
    """Two yes-or-no answers on the same samples, counted.

    Attributes:
        both: Pairs where both had the property.
        first_only: Pairs where only the first had it.
        second_only: Pairs where only the second had it.
        neither: Pairs where neither had it.
    """

    both: int
    first_only: int
    second_only: int
    neither: int

    def __post_init__(self) -> None:
        """Refuse what is no count."""
        for name in ("both", "first_only", "second_only", "neither"):
            require_count(name, getattr(self, name))

    @property
    def pairs(self) -> int:
        """How many pairs the table holds."""
        return self.both + self.first_only + self.second_only + self.neither


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedPairs:
    """Discordant pairs of groups, reduced to what the grouped interval needs.

    Attributes:
        first_only: Pairs where only the first had the property.
        second_only: Pairs where only the second had it.
        pairs: All pairs.
        groups: Groups with at least one pair.
        se_cr1: Linearised standard error of the difference; None with fewer than two groups.
        design_effect: What a pair is discounted by, at least 1; None without pairs or when a single
            group leaves it unknown.
        degrees_of_freedom: Of Student's t, see `group_freedom`; None with fewer than two groups.
        singletons: Whether every group has one pair.
    """

    first_only: int
    second_only: int
    pairs: int
    groups: int
    se_cr1: float | None
    design_effect: float | None
    degrees_of_freedom: float | None
    singletons: bool

    @property
    def difference(self) -> float | None:
        """First rate minus second, or None without pairs."""
        return (self.first_only - self.second_only) / self.pairs if self.pairs else None


def bonett_price(table: PairedTable, *, confidence: float = 0.95) -> Difference:
    """Estimate the difference of two paired rates: the default for ungrouped samples.

    The test is McNemar's mid-p.
    Source: Bonett & Price (2012), doi:10.3102/1076998611411915.
    """
    require_fraction("confidence", confidence)
    limits = None
    if table.pairs:
        limits = _bonett_price(
            table.first_only, table.second_only, table.pairs, two_sided_z(confidence)
        )
    return estimate_from_table(table, limits, confidence=confidence, method="bonett_price")


def clustered_bonett_price(
    first_only: ArrayLike, second_only: ArrayLike, *, sizes: ArrayLike, confidence: float = 0.95
) -> Difference:
    """Estimate the difference of two paired rates: the default for grouped samples.

    Bonett-Price on counts divided by a design effect, with Student's t (degrees of freedom:
    `group_freedom`), never inside the limits of both one-sided shares put together (`mover`); the
    test is the sign-flip mid-p. With one sample a group it is `bonett_price`, and its test
    McNemar's. No bounds and no test with a single group of several pairs.
    Source: This project's construction, docs/explanation/statistics.md.
    """
    require_fraction("confidence", confidence)
    counts = summarise_pairs(first_only, second_only, sizes=sizes)
    limits, reason = None, "" if counts.pairs else _NO_PAIRS
    p_value, test = None, ""
    if counts.pairs and counts.design_effect is None:
        reason = ONE_GROUP
    elif counts.pairs:
        limits = paired_limits(first_only, second_only, sizes=sizes, confidence=confidence)
        flipped = sign_flip(first_only, second_only)
        p_value, test = flipped.p_midp, "mcnemar_midp" if counts.singletons else "sign_flip_midp"
    return Difference(
        value=counts.difference,
        low=limits.low if limits else None,
        high=limits.high if limits else None,
        confidence=confidence,
        method="bonett_price" if counts.singletons else "bonett_price_clustered",
        p_value=p_value,
        test=test,
        pairs=counts.pairs,
        groups=counts.groups,
        first_only=counts.first_only,
        second_only=counts.second_only,
        reason=reason,
    )


def tango(table: PairedTable, *, confidence: float = 0.95) -> Difference:
    """Estimate the difference of two paired rates with Tango's score interval; see `tango_score`.

    The test is McNemar's mid-p.
    """
    require_fraction("confidence", confidence)
    limits = None
    if table.pairs:
        z, value = two_sided_z(confidence), (table.first_only - table.second_only) / table.pairs

        def score(margin: float) -> float:
            return tango_score(
                table.first_only, table.second_only, pairs=table.pairs, margin=margin
            )

        limits = Limits(
            bisect_falling(score, target=z, low=-1.0, high=value),
            bisect_falling(score, target=-z, low=value, high=1.0),
        )
    return estimate_from_table(table, limits, confidence=confidence, method="tango")


def summarise_pairs(
    first_only: ArrayLike, second_only: ArrayLike, *, sizes: ArrayLike
) -> GroupedPairs:
    """Reduce grouped pairs to counts, standard error and design effect."""
    first = require_counts("first_only", first_only)
    second = require_counts("second_only", second_only)
    rows = require_counts("sizes", sizes)
    require_equal_lengths(first_only=len(first), second_only=len(second), sizes=len(rows))
    if (first + second > rows).any():
        raise ValueError("sizes must be at least first_only + second_only in every group")
    used = rows > 0
    first, second, rows = first[used], second[used], rows[used]
    pairs, groups = int(rows.sum()), len(rows)
    b, c = int(first.sum()), int(second.sum())
    singletons, se_cr1, effect, freedom = pairs == groups, None, None, None
    if groups > 1:
        residual = (first - second) - (b - c) / pairs * rows
        scale = groups / (groups - 1)
        se_cr1 = math.sqrt(float((residual**2).sum()) * scale) / pairs
        telling = int(((first + second) > 0).sum())
        limit = float((rows.astype(float) ** 2).sum()) / pairs
        binomial = ((b + c) / pairs - ((b - c) / pairs) ** 2) / pairs
        effect = _design_effect(se_cr1**2, binomial, limit=limit, telling=telling)
        freedom = group_freedom(rows)
    return GroupedPairs(
        first_only=b,
        second_only=c,
        pairs=pairs,
        groups=groups,
        se_cr1=se_cr1,
        design_effect=1.0 if singletons and pairs else effect,
        degrees_of_freedom=freedom,
        singletons=singletons,
    )


def paired_limits(
    first_only: ArrayLike, second_only: ArrayLike, *, sizes: ArrayLike, confidence: float
) -> Limits:
    """Return the default limits of a paired difference: see `clustered_bonett_price`."""
    counts = summarise_pairs(first_only, second_only, sizes=sizes)
    limits = grouped_limits(counts, confidence=confidence)
    if counts.singletons:
        return limits
    # One design effect for both is blind where one side loses few whole groups and the other
    # scattered rows: the rows hide how little the groups tell.
    apart = mover(
        wilson_default(first_only, sizes, confidence=confidence),
        wilson_default(second_only, sizes, confidence=confidence),
    )
    return Limits(min(limits.low, apart.low or 0), max(limits.high, apart.high or 0))


def grouped_limits(counts: GroupedPairs, *, confidence: float) -> Limits:
    """Return the grouped Bonett-Price limits; `ValueError` without a design effect."""
    effect = counts.design_effect
    if effect is None:
        raise ValueError("limits need a defined design effect: two groups, or one pair a group")
    quantile = two_sided_z(confidence)
    if counts.degrees_of_freedom is not None and not counts.singletons:
        quantile = two_sided_t(confidence, counts.degrees_of_freedom)
    return _bonett_price(
        counts.first_only / effect, counts.second_only / effect, counts.pairs / effect, quantile
    )


def tango_score(first_only: int, second_only: int, *, pairs: int, margin: float) -> float:
    """Return the score statistic of two paired rates differing by `margin`, in [-1, 1].

    A standard normal statistic of at least one pair, falling in `margin`; infinite where the table
    is impossible under the hypothesis, 0 where it is the only possible one.
    Source: Tango (1998), Statistics in Medicine 17:891; the constrained estimate solves a
    quadratic.
    """
    gap = first_only - second_only
    a = 2.0 * pairs
    b = -(first_only + second_only) + (2.0 * pairs - gap) * margin
    c = -second_only * margin * (1.0 - margin)
    share = (math.sqrt(max(0.0, b * b - 4.0 * a * c)) - b) / (2.0 * a)
    variance = pairs * (2.0 * share + margin * (1.0 - margin))
    return standardise(gap - pairs * margin, variance)


def bisect_falling(
    function: Callable[[float], float], *, target: float, low: float, high: float
) -> float:
    """Return where a falling function passes the target, between `low` and `high`.

    Where it stays above the target `high` comes back, where it stays below, `low`.
    """
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if function(middle) > target:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _design_effect(variance: float, binomial: float, *, limit: float, telling: int) -> float:
    """Return the design effect, drawn to its limit when few groups hold discordant pairs."""
    # All pairs discordant one way leave a variance of rounding dust, which shows nothing.
    visible = binomial > 1e-15
    seen = min(max(variance / binomial, 1.0), limit) if visible else limit
    weight = telling / (telling + 2.0)
    return weight * seen + (1.0 - weight) * limit


def _bonett_price(first_only: float, second_only: float, pairs: float, quantile: float) -> Limits:
    p1, p2 = (first_only + 1.0) / (pairs + 2.0), (second_only + 1.0) / (pairs + 2.0)
    centre = p1 - p2
    half = quantile * math.sqrt((p1 + p2 - centre**2) / (pairs + 2.0))
    return cut_limits((first_only - second_only) / pairs, Limits(centre - half, centre + half))


def cut_limits(value: float, limits: Limits) -> Limits:
    """Cut limits to [-1, 1] and let them hold the estimate, which shrinkage may step past."""
    return Limits(max(-1.0, min(limits.low, value)), min(1.0, max(limits.high, value)))


def estimate_from_table(
    table: PairedTable, limits: Limits | None, *, confidence: float, method: str
) -> Difference:
    """Return the difference of a table with its limits, if any, and McNemar's mid-p."""
    difference = Difference(
        value=None,
        low=None,
        high=None,
        confidence=confidence,
        method=method,
        p_value=None,
        test="",
        pairs=table.pairs,
        first_only=table.first_only,
        second_only=table.second_only,
        reason=_NO_PAIRS,
    )
    if limits is not None:
        difference = replace(difference, low=limits.low, high=limits.high)
    if not table.pairs:
        return difference
    return replace(
        difference,
        value=(table.first_only - table.second_only) / table.pairs,
        p_value=mcnemar(table.first_only, table.second_only).p_midp,
        test="mcnemar_midp",
        reason="",
    )


def standardise(gap: float, variance: float) -> float:
    """Return a gap in standard deviations; infinite, or 0 without a gap, where there are none."""
    # Below this the variance is rounding dust of an exact 0.
    if variance > 1e-15:
        return gap / math.sqrt(variance)
    if abs(gap) < 1e-12:
        return 0.0
    return math.copysign(math.inf, gap)
