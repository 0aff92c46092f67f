"""How many samples a rate or a comparison needs, before any is run.

`confidence`, `power` and `alpha` are strictly between 0 and 1, rates and correlations in [0, 1];
what is out of range raises `ValueError`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from guardmark.stats.arguments import require_count, require_fraction, require_rate
from guardmark.stats.distributions import normal_quantile, two_sided_z
from guardmark.stats.rates.proportion import wilson_limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.stats.arguments import Floats

McNemarForm = Literal["midp", "exact"]
_MOST_PAIRS = 1_000_000
_TOOTHED = 0.9  # above this share the power goes up and down with the pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """How many groups, of how many rows, stand for a number of independent trials."""

    groups: int  # Groups (seeds) needed.
    rows_per_group: int  # Rows (variants) in each.
    rows: int  # Rows in all.
    design_effect: float  # What a row is discounted by: 1 + (rows_per_group - 1) * icc.
    icc: float  # Intra-group correlation assumed.
    independent_trials: int  # Trials the plan stands for.


def wilson_half_width(rate: float, trials: float, *, confidence: float = 0.95) -> float:
    """Return half the width of the Wilson interval at an assumed rate.

    `trials`, above 0, are independent; rate * trials need not be whole.
    """
    require_rate("rate", rate)
    require_fraction("confidence", confidence)
    if not trials > 0:
        raise ValueError(f"trials must be above 0, got {trials}")
    limits = wilson_limits(rate, trials, z=two_sided_z(confidence))
    return (limits.high - limits.low) / 2.0


def trials_for_half_width(half_width: float, *, rate: float = 0.5, confidence: float = 0.95) -> int:
    """Return the least number of trials whose Wilson half-width, in (0, 0.5), meets a margin.

    The assumed rate 0.5 is the worst case.
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

    `upper` is the claim "the rate is at most this", in (0, 1), `confidence` its one-sided
    confidence.
    Source: Clopper & Pearson (1934) at 0 events: (1 - upper)^n <= 1 - confidence.
    """
    require_fraction("upper", upper)
    require_fraction("confidence", confidence)
    exact = math.log1p(-confidence) / math.log1p(-upper)
    # A whole answer must not be rounded up for the sake of the last bit of a logarithm.
    return max(1, math.ceil(exact - 1e-9))


def design_effect(rows_per_group: float, icc: float) -> float:
    """Return by how much groups of at least one row inflate the variance of a rate.

    Source: Kish (1965), Survey Sampling, 5.4.
    """
    require_rate("icc", icc)
    if not rows_per_group >= 1:
        raise ValueError(f"rows_per_group must be at least 1, got {rows_per_group}")
    return 1.0 + (rows_per_group - 1.0) * icc


def groups_for(trials: int, *, rows_per_group: int, icc: float) -> GroupPlan:
    """Return the groups that stand for a number of independent trials, at least 1.

    An intra-group correlation of 0.5 is usual for rewritings of one sample.
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


def mcnemar_power(
    p_small: float, p_large: float, *, pairs: int, alpha: float = 0.05, form: McNemarForm = "midp"
) -> float:
    """Compute the power of McNemar's test, mid-p or exact, two-sided, by enumeration.

    Sums over the number of discordant pairs, with rejection on either side counted. `p_small` and
    `p_large` are the probabilities of a pair discordant either way, `pairs` is at least 1.
    """
    discordance = require_discordance(p_small, p_large)
    require_fraction("alpha", alpha)
    n = require_count("pairs", pairs, least=1)
    split = p_large / discordance
    likely = range(_likely(n, discordance)[0], _likely(n, discordance)[1] + 1)
    return _mixed(_rejection(likely, split, alpha=alpha, form=form), n, discordance)


def pairs_for_difference(
    difference: float,
    discordance: float,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    form: McNemarForm = "midp",
) -> int:
    """Return the least number of pairs with which McNemar's test finds a difference above 0.

    The least from which on the power is reached, by enumeration; multiply by the design effect
    where samples share groups (`groups_for`). `discordance` is the share of pairs on which the two
    disagree, in [difference, 1]; `alpha` is two-sided. `ValueError` also above a million pairs.
    """
    require_fraction("power", power)
    require_fraction("alpha", alpha)
    p_small, p_large = _shares(difference, discordance)
    z = normal_quantile(1.0 - alpha / 2.0) * math.sqrt(discordance)
    z += normal_quantile(power) * math.sqrt(discordance - difference**2)
    start = max(1, math.ceil((z / difference) ** 2))
    if start > _MOST_PAIRS:
        raise ValueError(f"more than {_MOST_PAIRS} pairs would be needed (about {start})")
    # The normal start is close for many pairs, so the bracket need not be wide there.
    slack = start if start < 5000 else start // 10
    low, high = start - slack, start + slack + 256
    likely = range(_likely(low, discordance)[0], _likely(high, discordance)[1] + 1)
    rejected = _rejection(likely, p_large / (p_small + p_large), alpha=alpha, form=form)

    def is_enough(pairs: int) -> bool:
        return _mixed(rejected, pairs, discordance) >= power

    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return _past_the_teeth(high, is_enough) if discordance > _TOOTHED else high


def pairs_for_noninferiority(
    margin: float,
    discordance: float,
    *,
    difference: float = 0.0,
    power: float = 0.8,
    alpha: float = 0.05,
) -> int:
    """Return the number of pairs that shows "not worse by the margin".

    Args:
        margin: Largest accepted first rate minus second, in (0, 1), fixed beforehand.
        discordance: Share of pairs on which the two disagree, in (0, 1].
        difference: True first rate minus second assumed, below the margin.
        power: Wanted chance of showing it.
        alpha: One-sided error probability.

    Source: Normal approximation to Tango's test; Liu, Hsueh, Hsieh & Chen (2002),
    doi:10.1002/sim.1012.
    """
    require_fraction("margin", margin)
    require_fraction("power", power)
    require_fraction("alpha", alpha)
    if not 0.0 < discordance <= 1.0:
        raise ValueError(f"discordance must be in (0, 1], got {discordance}")
    if not -discordance < difference < margin:
        raise ValueError(
            f"difference must be in (-discordance, margin), got {difference} with margin {margin}"
        )
    z = normal_quantile(1.0 - alpha) + normal_quantile(power)
    variance = discordance - difference**2
    return math.ceil(z * z * variance / (margin - difference) ** 2 - 1e-9)


def _past_the_teeth(pairs: int, is_enough: Callable[[int], bool]) -> int:
    """Return the number from which on it is enough, where power falls back now and then."""
    ahead = range(pairs, pairs + 2 * math.isqrt(pairs) + 32)
    return max((more + 1 for more in ahead if not is_enough(more)), default=pairs)


def _shares(difference: float, discordance: float) -> tuple[float, float]:
    if not 0.0 < difference <= discordance <= 1.0:
        raise ValueError(
            "difference must be above 0 and at most discordance, which is at most 1; "
            f"got {difference} and {discordance}"
        )
    return (discordance - difference) / 2.0, (discordance + difference) / 2.0


def require_discordance(p_small: float, p_large: float) -> float:
    """Return the share of discordant pairs, the sum of both kinds; `p_small` is the smaller."""
    if not 0.0 <= p_small <= p_large or not 0.0 < p_small + p_large <= 1.0 + 1e-12:
        raise ValueError(
            f"p_small <= p_large must add up to at most 1, got {p_small} and {p_large}"
        )
    return min(1.0, p_small + p_large)


def _likely(pairs: int, discordance: float) -> tuple[int, int]:
    """Return numbers of discordant pairs as good as always reached, and as good as never passed."""
    mean, spread = pairs * discordance, math.sqrt(pairs * discordance * (1.0 - discordance))
    least = max(0, math.floor(mean - 12.0 * spread - 12.0))
    return least, min(pairs, math.ceil(mean + 12.0 * spread + 12.0))


class _Rejection(NamedTuple):
    """The chance of rejection given `least`, `least` + 1, ... discordant pairs."""

    least: int
    chances: Floats


def _rejection(discordant: range, split: float, *, alpha: float, form: McNemarForm) -> _Rejection:
    """Compute the chance of rejection for each number of discordant pairs."""
    from scipy.special import bdtr, gammaln

    d = np.arange(discordant.start, discordant.stop, dtype=float)
    z = normal_quantile(1.0 - alpha / 2.0)
    critical = np.full(len(d), -1.0)
    centre = np.floor(d / 2.0 - z * np.sqrt(d) / 2.0)
    # The normal value is off by a few at most: walk the candidates upwards and keep the last
    # that rejects.
    for step in range(-6, 7):
        x = centre + step
        usable = (x >= 0) & (2.0 * x < d)
        at = np.clip(x, 0.0, None)
        p = 2.0 * bdtr(at, d.astype(np.int64), 0.5)
        if form == "midp":
            log_at = gammaln(d + 1) - gammaln(at + 1) - gammaln(np.maximum(d - at, 0.0) + 1)
            p -= np.exp(log_at - d * math.log(2.0))
        critical = np.where(usable & (p <= alpha), x, critical)
    whole = d.astype(np.int64)
    floor = np.clip(critical, 0.0, None)
    chance = bdtr(floor, whole, split) + bdtr(floor, whole, 1.0 - split)
    return _Rejection(discordant.start, np.where(critical < 0, 0.0, chance))


def _mixed(rejected: _Rejection, pairs: int, discordance: float) -> float:
    """Average the chance of rejection over the number of discordant pairs."""
    from scipy.special import gammaln

    first = rejected.least
    least, most = _likely(pairs, discordance)
    least, most = max(first, least), min(most, first + len(rejected.chances) - 1)
    if discordance >= 1.0:
        return float(rejected.chances[pairs - first])
    d = np.arange(least, most + 1, dtype=float)
    log_mass = gammaln(pairs + 1) - gammaln(d + 1) - gammaln(pairs - d + 1)
    log_mass += d * math.log(discordance) + (pairs - d) * math.log1p(-discordance)
    return float(np.exp(log_mass) @ rejected.chances[least - first : most - first + 1])
