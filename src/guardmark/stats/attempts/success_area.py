"""The area under ASR@k on a logarithmic axis of tries: one number for a whole curve.

ASR@k is the share of attacks that got through within k tries. Drawn over log k from 1 to the budget
B and joined by straight lines, the area below it, divided by log B, is the mean over attacks of

    1                                  for an attack that passes as it is or at the first try,
    1 - (log f + log(f - 1)) / 2 log B    for one that first gets through at try f, 2 <= f <= B,
    0                                  for one that never does,

since the trapezoids of a step from 0 to 1 between f - 1 and f are half of its width. So it is a
mean of figures in [0, 1], one an attack: intervals and tests are those of a mean. 0: unbroken; 1:
every attack got through at once. On a logarithmic axis a bypass at try 2 instead of 4 counts about
as much as one at 32 instead of 64.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.core.estimate import Difference
from guardmark.stats.arguments import (
    group_column,
    label_column,
    require_counts,
    require_equal_lengths,
    require_fraction,
)
from guardmark.stats.paired.significance import sign_flip
from guardmark.stats.rates.means import NO_ROWS, gap_limits, share_mean

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Floats
    from guardmark.stats.figures import Ratio

_GRID: Final = 1_000  # steps of an area that the test tells apart


def areas_of(firsts: ArrayLike, reached: ArrayLike, *, budget: int) -> Floats:
    """Return the area of each attack by itself, in [0, 1], by the formula of this module.

    Args:
        firsts: Number of the first try that got through, 0 for an attack that passes as it is,
            shape (n,); of no meaning where it was not reached.
        reached: True where one got through within the budget, shape (n,).
        budget: Tries an attack was worth, at least 2.

    Raises:
        ValueError: On unequal lengths, a bad count or label, a first try behind the budget, or a
            budget below 2 (its logarithm is no width).
    """
    tries, ends = require_counts("firsts", firsts), label_column(reached, name="reached")
    require_equal_lengths(firsts=len(tries), reached=len(ends))
    if budget < 2:
        raise ValueError(f"budget must be at least 2, got {budget}")
    if bool(np.any(tries[ends] > budget)):
        raise ValueError(f"a first try lies behind the budget of {budget}")
    areas = np.where(ends, 1.0, 0.0)
    late = ends & (tries >= 2)
    at = tries[late].astype(np.float64)
    areas[late] = 1.0 - (np.log(at) + np.log(at - 1.0)) / (2.0 * math.log(budget))
    return areas


def success_area(
    firsts: ArrayLike,
    reached: ArrayLike,
    *,
    budget: int,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Ratio:
    """Estimate the area under ASR@k on log k; see `areas_of`.

    `groups` name each attack's group, None when each is its own; `confidence` is in (0, 1). Returns
    the mean area with Wilson's limits at the attacks that they are worth, so that an unbroken
    defense has an upper limit. Undefined without attacks.
    """
    areas = areas_of(firsts, reached, budget=budget)
    return share_mean(areas, groups, name="area", confidence=confidence)


def area_difference(
    first: Floats, second: Floats, *, groups: ArrayLike | None = None, confidence: float = 0.95
) -> Difference:
    """Compare the areas of two defenses, from `areas_of`, over the same attacks.

    `groups` name each attack's group, None when each is its own; `confidence` is in (0, 1). The
    value is the mean of first minus second with Student's t limits over groups, and the p the mid-p
    of a permutation test: if the defenses are alike, exchanging them in any group changes nothing,
    so the sum of the groups' differences is compared with all sums of the same differences under
    other signs. Exact, on differences rounded to 1/1000. Undefined without attacks; no limits and
    no test with one group of several.
    Source: Fisher (1935), The Design of Experiments, section 21.
    """
    require_fraction("confidence", confidence)
    require_equal_lengths(first=len(first), second=len(second))
    gaps = first - second
    codes = group_column(groups, len(gaps))
    members, of_row = np.unique(codes, return_inverse=True)
    limits = gap_limits(gaps, codes, confidence=confidence) if len(gaps) else NO_ROWS
    p_value, test = None, ""
    if len(members) > 1 or len(gaps) == 1:
        sums = np.rint(np.bincount(of_row, weights=gaps) * _GRID).astype(np.int64)
        p_value = sign_flip(np.maximum(sums, 0), np.maximum(-sums, 0)).p_midp
        test = "sign_flip_midp"
    return Difference(
        value=float(gaps.mean()) if len(gaps) else None,
        low=limits.low,
        high=limits.high,
        confidence=confidence,
        method=f"area, {limits.method}",
        p_value=p_value,
        test=test,
        pairs=len(gaps),
        groups=len(members) if groups is not None else None,
        reason=limits.reason,
    )
