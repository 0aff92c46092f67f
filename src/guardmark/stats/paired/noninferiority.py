"""Is the first rate at most a margin above the second, and are they equivalent?

For "the false positive rate did not get worse": the margin is fixed before the run. That no
difference was found is no evidence of this; these tests are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.stats.arguments import require_count, require_fraction
from guardmark.stats.distributions import as_p_value, normal_upper_tail, t_upper_tail
from guardmark.stats.paired.intervals import (
    GroupedPairs,
    PairedTable,
    grouped_limits,
    summarise_pairs,
    tango,
    tango_score,
)

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
        p_noninferior: p of "the first is worse by the margin or more", or None.
        p_equivalent: p of "they differ by the margin or more, either way", or None.
        alpha: One-sided error probability.
        pairs: Samples answered on both sides.
        method: Name of the test.
        reason: Why it is undefined, or empty.
    """

    difference: float | None
    margin: float
    low: float | None
    high: float | None
    p_noninferior: float | None
    p_equivalent: float | None
    alpha: float
    pairs: int
    method: str
    reason: str = ""

    @property
    def is_noninferior(self) -> bool:
        """Whether the data show the first at most the margin above the second."""
        return self.p_noninferior is not None and self.p_noninferior < self.alpha

    @property
    def is_equivalent(self) -> bool:
        """Whether the data show the two within the margin of each other."""
        return self.p_equivalent is not None and self.p_equivalent < self.alpha


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
        ValueError: If a count is out of range, or margin or alpha is.

    References:
        Tango (1998), Statistics in Medicine 17:891; Schuirmann (1987) for the two one-sided
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
    if not pairs:
        return _undefined(0, margin=margin, alpha=alpha, method="tango", reason="no pairs")
    table = PairedTable(both=0, first_only=first, second_only=second, neither=rest)
    bounds = tango(table, confidence=1.0 - 2.0 * alpha)
    worse = normal_upper_tail(-tango_score(first, second, pairs=pairs, margin=margin))
    better = normal_upper_tail(tango_score(first, second, pairs=pairs, margin=-margin))
    return NonInferiority(
        difference=bounds.value,
        margin=margin,
        low=bounds.low,
        high=bounds.high,
        p_noninferior=as_p_value(worse),
        p_equivalent=as_p_value(max(worse, better)),
        alpha=alpha,
        pairs=pairs,
        method="tango",
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

    The grouped Bonett-Price bounds are compared with the margin; with one sample a group
    Tango's test takes their place.

    Args:
        first_only: Pairs where only the first had the property, one entry a group.
        second_only: Pairs where only the second had it, one entry a group.
        sizes: All pairs, one entry a group; groups without pairs are left out.
        margin: Largest accepted first rate minus second, in (0, 1), fixed beforehand.
        alpha: One-sided error probability, in (0, 0.5).

    Raises:
        ValueError: On unequal lengths, a bad count, or margin or alpha out of range.
    """
    _check(margin, alpha)
    counts = summarise_pairs(first_only, second_only, sizes=sizes)
    if counts.singletons:
        return noninferiority_tango(
            counts.first_only, counts.second_only, pairs=counts.pairs, margin=margin, alpha=alpha
        )
    method = "bonett_price_clustered"
    if counts.design_effect is None:
        reason = "one group only: nothing shows how groups differ"
        return _undefined(counts.pairs, margin=margin, alpha=alpha, method=method, reason=reason)
    limits = grouped_limits(counts, confidence=1.0 - 2.0 * alpha)
    worse = _grouped_tail(counts, counts.design_effect, margin)
    better = 1.0 - _grouped_tail(counts, counts.design_effect, -margin)
    return NonInferiority(
        difference=counts.difference,
        margin=margin,
        low=limits.low,
        high=limits.high,
        p_noninferior=as_p_value(worse),
        p_equivalent=as_p_value(max(worse, better)),
        alpha=alpha,
        pairs=counts.pairs,
        method=method,
    )


def _grouped_tail(counts: GroupedPairs, effect: float, margin: float) -> float:
    """Return the chance of a difference this low if the true one were the margin."""
    total = counts.pairs / effect + 2.0
    p1 = (counts.first_only / effect + 1.0) / total
    p2 = (counts.second_only / effect + 1.0) / total
    centre = p1 - p2
    statistic = (centre - margin) / math.sqrt((p1 + p2 - centre**2) / total)
    return t_upper_tail(-statistic, counts.groups - 1)


def _check(margin: float, alpha: float) -> None:
    require_fraction("margin", margin)
    if not 0.0 < alpha < 0.5:
        raise ValueError(f"alpha must be in (0, 0.5), got {alpha}")


def _undefined(
    pairs: int, *, margin: float, alpha: float, method: str, reason: str
) -> NonInferiority:
    return NonInferiority(
        difference=None,
        margin=margin,
        low=None,
        high=None,
        p_noninferior=None,
        p_equivalent=None,
        alpha=alpha,
        pairs=pairs,
        method=method,
        reason=reason,
    )
