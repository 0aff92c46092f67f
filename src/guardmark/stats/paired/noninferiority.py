"""Is the first rate at most a margin above the second, and are they equivalent?

For "the false positive rate did not get worse": the margin is fixed before the run. That no
difference was found is no evidence of this; these tests are.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from guardmark.core.values import dataclass
from guardmark.stats.arguments import require_count, require_fraction
from guardmark.stats.distributions import as_p_value, normal_upper_tail, t_upper_tail
from guardmark.stats.paired.intervals import (
    GroupedPairs,
    PairedTable,
    paired_limits,
    summarise_pairs,
    tango,
    tango_score,
)
from guardmark.stats.rates.proportion import ONE_GROUP

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True, kw_only=True)
class NonInferiority:
    """A non-inferiority and an equivalence test with the bounds that decide them.

    Attributes:
        difference: First rate minus second, or None without pairs.
        margin: Largest difference still accepted, in (0, 1).
        low: Lower one-sided bound at 1 - alpha, or None when undefined.
        high: Upper one-sided bound at 1 - alpha, or None when undefined.
        p_noninferior: P of "the first is worse by the margin or more", or None.
        p_equivalent: P of "they differ by the margin or more, either way", or None.
        alpha: One-sided error probability.
        pairs: Samples answered on both sides.
        method: Name of the test.
        reason: Why it is undefined, or empty.
    """

    difference: float | None = None
    margin: float
    low: float | None = None
    high: float | None = None
    p_noninferior: float | None = None
    p_equivalent: float | None = None
    alpha: float
    pairs: int
    method: str
    reason: str = ""

    @property
    def is_noninferior(self) -> bool:
        """Whether the test and the upper bound show the first at most the margin above."""
        if self.p_noninferior is None or self.high is None:
            return False
        return self.p_noninferior < self.alpha and self.high < self.margin


def noninferiority_tango(
    first_only: int, second_only: int, *, pairs: int, margin: float, alpha: float = 0.05
) -> NonInferiority:
    """Test non-inferiority and equivalence on the same, ungrouped samples.

    Args:
        first_only: Pairs where only the first had the property (a false alarm, say).
        second_only: Pairs where only the second had it.
        pairs: All pairs. Zero gives an undefined test.
        margin: Largest accepted first rate minus second, in (0, 1), fixed beforehand.
        alpha: One-sided error probability, in (0, 0.5).

    Raises:
        ValueError: If a count, margin or alpha is out of range.

    Source: Tango (1998), Statistics in Medicine 17:891; Schuirmann (1987) for the two one-sided
    tests.
    """
    _check(margin, alpha)
    first, second = (
        require_count("first_only", first_only),
        require_count("second_only", second_only),
    )
    rest = require_count("pairs", pairs) - first - second
    if rest < 0:
        raise ValueError(f"pairs must be at least {first + second}, got {pairs}")
    bare = NonInferiority(margin=margin, alpha=alpha, pairs=pairs, method="tango")
    if not pairs:
        return replace(bare, reason="no pairs")
    table = PairedTable(both=0, first_only=first, second_only=second, neither=rest)
    bounds = tango(table, confidence=1.0 - 2.0 * alpha)
    worse = normal_upper_tail(-tango_score(first, second, pairs=pairs, margin=margin))
    better = normal_upper_tail(tango_score(first, second, pairs=pairs, margin=-margin))
    return replace(
        bare,
        difference=bounds.value,
        low=bounds.low,
        high=bounds.high,
        p_noninferior=as_p_value(worse),
        p_equivalent=as_p_value(max(worse, better)),
    )


def noninferiority_clustered(
    first_only: ArrayLike,
    second_only: ArrayLike,
    *,
    sizes: ArrayLike,
    margin: float,
    alpha: float = 0.05,
) -> NonInferiority:
    """Test non-inferiority and equivalence on the same, grouped samples.

    The bounds are those of `clustered_bonett_price`, so that what is "not worse" and what is told
    apart rest on one interval; the p is the grouped Bonett-Price one. With one sample a group it is
    `noninferiority_tango`. Undefined with a single group of several pairs.
    """
    _check(margin, alpha)
    counts = summarise_pairs(first_only, second_only, sizes=sizes)
    if counts.singletons:
        return noninferiority_tango(
            counts.first_only, counts.second_only, pairs=counts.pairs, margin=margin, alpha=alpha
        )
    bare = NonInferiority(
        margin=margin, alpha=alpha, pairs=counts.pairs, method="bonett_price_clustered"
    )
    if counts.design_effect is None:
        return replace(bare, reason=ONE_GROUP)
    limits = paired_limits(first_only, second_only, sizes=sizes, confidence=1.0 - 2.0 * alpha)
    worse = _grouped_tail(counts, counts.design_effect, margin)
    better = 1.0 - _grouped_tail(counts, counts.design_effect, -margin)
    return replace(
        bare,
        difference=counts.difference,
        low=limits.low,
        high=limits.high,
        p_noninferior=as_p_value(worse),
        p_equivalent=as_p_value(max(worse, better)),
    )


def _grouped_tail(counts: GroupedPairs, effect: float, margin: float) -> float:
    """Return the chance of a difference this low if the true one were the margin."""
    total = counts.pairs / effect + 2.0
    p1 = (counts.first_only / effect + 1.0) / total
    p2 = (counts.second_only / effect + 1.0) / total
    centre = p1 - p2
    statistic = (centre - margin) / math.sqrt((p1 + p2 - centre**2) / total)
    return t_upper_tail(-statistic, counts.degrees_of_freedom or 1.0)


def _check(margin: float, alpha: float) -> None:
    require_fraction("margin", margin)
    if not 0.0 < alpha < 0.5:
        raise ValueError(f"alpha must be in (0, 0.5), got {alpha}")
