"""Published tests of grouped pairs, beside which the project's default can be checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.stats.arguments import require_fraction
from guardmark.stats.distributions import as_p_value, chi_square_upper_tail, two_sided_t
from guardmark.stats.paired_intervals import summarise_pairs

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedCrosscheck:
    """Grouped paired comparison by other people's methods.

    Attributes:
        difference: First rate minus second, or None without pairs.
        se_cr1: Linearised standard error, or None with fewer than two groups.
        t_low: Lower Wald limit with Student's t, uncut, or None.
        t_high: Upper Wald limit with Student's t, uncut, or None.
        obuchowski_chi2: Obuchowski's statistic, or None when no group is discordant.
        obuchowski_p: Its p; 1 by convention when the statistic is None.
        durkalski_chi2: Durkalski's statistic, or None when no group is discordant.
        durkalski_p: Its p; 1 by convention when the statistic is None.
        reason: Why something is undefined, or empty.
    """

    difference: float | None
    se_cr1: float | None
    t_low: float | None
    t_high: float | None
    obuchowski_chi2: float | None
    obuchowski_p: float
    durkalski_chi2: float | None
    durkalski_p: float
    reason: str = ""


def crosscheck_pairs(
    first_only: ArrayLike, second_only: ArrayLike, *, sizes: ArrayLike, confidence: float = 0.95
) -> PairedCrosscheck:
    """Compare two defenses on grouped samples by Obuchowski, Durkalski and a Wald t.

    Args:
        first_only: Pairs where only the first had the property, one entry a group.
        second_only: Pairs where only the second had it, one entry a group.
        sizes: All pairs, one entry a group; groups without pairs are left out.
        confidence: Nominal coverage, strictly between 0 and 1.

    Raises:
        ValueError: On unequal lengths, a bad count, or more discordant pairs than pairs.

    References:
        Obuchowski (1998), Statistics in Medicine 17:1495; Durkalski, Palesch, Lipsitz & Rust
        (2003), doi:10.1002/sim.1438.
    """
    require_fraction("confidence", confidence)
    counts = summarise_pairs(first_only, second_only, sizes=sizes)
    rows = np.asarray(sizes, dtype=float)
    gaps = (np.asarray(first_only, dtype=float) - np.asarray(second_only, dtype=float))[rows > 0]
    shares = gaps / rows[rows > 0]
    squares, groups = float((gaps**2).sum()), counts.groups
    obuchowski, durkalski, reason = None, None, "" if counts.pairs else "no pairs"
    if squares and groups > 1:
        obuchowski = float(gaps.sum()) ** 2 / squares * (groups - 1) / groups
        durkalski = float(shares.sum()) ** 2 / float((shares**2).sum())
    elif counts.pairs:
        reason = "no discordant group" if groups > 1 else "one group only"
    error = None
    if counts.se_cr1 is not None:
        error = counts.se_cr1 * two_sided_t(confidence, groups - 1)
    value = counts.difference
    return PairedCrosscheck(
        difference=value,
        se_cr1=counts.se_cr1,
        t_low=value - error if value is not None and error is not None else None,
        t_high=value + error if value is not None and error is not None else None,
        obuchowski_chi2=obuchowski,
        obuchowski_p=_p_of_one_degree(obuchowski),
        durkalski_chi2=durkalski,
        durkalski_p=_p_of_one_degree(durkalski),
        reason=reason,
    )


def _p_of_one_degree(statistic: float | None) -> float:
    return 1.0 if statistic is None else as_p_value(chi_square_upper_tail(statistic, 1))
