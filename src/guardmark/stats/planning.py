"""How many samples a rate needs, before any is run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from guardmark.stats.arguments import require_fraction, require_rate
from guardmark.stats.normal import two_sided_z
from guardmark.stats.proportion import wilson_limits


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """How many groups, of how many rows, stand for a number of independent trials.

    Attributes:
        groups: Groups (seeds) needed.
        rows_per_group: Rows (variants) in each.
        rows: Rows in all.
        design_effect: What a row is discounted by: 1 + (rows_per_group - 1) * icc.
        icc: Intra-group correlation assumed.
        independent_trials: Trials the plan stands for.
    """

    groups: int
    rows_per_group: int
    rows: int
    design_effect: float
    icc: float
    independent_trials: int


def wilson_half_width(rate: float, trials: float, *, confidence: float = 0.95) -> float:
    """Return half the width of the Wilson interval at an assumed rate.

    Args:
        rate: Assumed rate, in [0, 1]; rate * trials need not be whole.
        trials: Independent trials, above 0.
        confidence: Nominal coverage, strictly between 0 and 1.

    Raises:
        ValueError: If an argument is out of range.
    """
    require_rate("rate", rate)
    require_fraction("confidence", confidence)
    if not trials > 0:
        raise ValueError(f"trials must be above 0, got {trials}")
    limits = wilson_limits(rate, trials, z=two_sided_z(confidence))
    return (limits.high - limits.low) / 2.0


def trials_for_half_width(half_width: float, *, rate: float = 0.5, confidence: float = 0.95) -> int:
    """Return the least number of trials whose Wilson half-width meets a margin.

    Args:
        half_width: Wanted half-width, in (0, 0.5).
        rate: Assumed rate, in [0, 1]; 0.5 is the worst case.
        confidence: Nominal coverage, strictly between 0 and 1.

    Raises:
        ValueError: If an argument is out of range.
    """
    require_rate("rate", rate)
    require_fraction("confidence", confidence)
    if not 0.0 < half_width < 0.5:
        raise ValueError(f"half_width must be in (0, 0.5), got {half_width}")
    # The half-width falls with the trials, so halving the bracket finds the least.
    low, high = 0, 1
    while wilson_half_width(rate, high, confidence=confidence) > half_width:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        enough = wilson_half_width(rate, middle, confidence=confidence) <= half_width
        low, high = (low, middle) if enough else (middle, high)
    return high


def trials_for_zero_events(upper: float, *, confidence: float = 0.95) -> int:
    """Return the least number of trials that, all without an event, bound the rate.

    Args:
        upper: The claim "the rate is at most this", in (0, 1).
        confidence: One-sided confidence of the claim, strictly between 0 and 1.

    Raises:
        ValueError: If an argument is out of range.

    References:
        Clopper & Pearson (1934) at 0 events: (1 - upper)^n <= 1 - confidence.
    """
    require_fraction("upper", upper)
    require_fraction("confidence", confidence)
    exact = math.log1p(-confidence) / math.log1p(-upper)
    # A whole answer must not be rounded up for the sake of the last bit of a logarithm.
    return max(1, math.ceil(exact - 1e-9))


def design_effect(rows_per_group: float, icc: float) -> float:
    """Return by how much groups inflate the variance of a rate.

    Args:
        rows_per_group: Rows in each group, at least 1.
        icc: Intra-group correlation, in [0, 1].

    Raises:
        ValueError: If an argument is out of range.

    References:
        Kish (1965), Survey Sampling, 5.4.
    """
    require_rate("icc", icc)
    if not rows_per_group >= 1:
        raise ValueError(f"rows_per_group must be at least 1, got {rows_per_group}")
    return 1.0 + (rows_per_group - 1.0) * icc


def groups_for(trials: int, *, rows_per_group: int, icc: float) -> GroupPlan:
    """Return the groups that stand for a number of independent trials.

    Args:
        trials: Independent trials needed, at least 1.
        rows_per_group: Rows in each group, at least 1.
        icc: Intra-group correlation, in [0, 1]; 0.5 is usual for rewritings of one sample.

    Raises:
        ValueError: If an argument is out of range.
    """
    if not trials >= 1:
        raise ValueError(f"trials must be at least 1, got {trials}")
    effect = design_effect(rows_per_group, icc)
    groups = math.ceil(trials * effect / rows_per_group - 1e-9)
    return GroupPlan(
        groups=groups,
        rows_per_group=rows_per_group,
        rows=groups * rows_per_group,
        design_effect=effect,
        icc=icc,
        independent_trials=trials,
    )


def best_rows_per_group(icc: float, *, group_cost: float, row_cost: float) -> int:
    """Return how many rows a group should have for the least cost at a given precision.

    Args:
        icc: Intra-group correlation, in [0, 1]. At 0 every row counts in full and there is no
            best size.
        group_cost: Cost of a new group (writing a seed), at least 0.
        row_cost: Cost of one more row (running a variant), above 0.

    Returns:
        The whole number, at least 1, with the least cost for each independent trial.

    Raises:
        ValueError: If an argument is out of range, or `icc` is 0.

    References:
        Cochran (1977), Sampling Techniques, 10.6: sqrt(cost ratio * (1 - icc) / icc).
    """
    require_rate("icc", icc)
    if icc == 0:
        raise ValueError("icc must be above 0: without correlation no group size is best")
    if not (group_cost >= 0 and row_cost > 0):
        raise ValueError(
            f"costs must be at least 0 and row_cost above 0, got {group_cost} and {row_cost}"
        )
    exact = math.sqrt(group_cost / row_cost * (1.0 - icc) / icc)
    below = max(1, math.floor(exact))

    def cost_of_trial(rows: int) -> float:
        return (group_cost + rows * row_cost) * design_effect(rows, icc) / rows

    return min(below, below + 1, key=cost_of_trial)
