"""Intervals and tests that stay valid however often one looks, for runs that stop early.

`confidence` is the coverage over all looks at once, in (0, 1). The Beta mixtures have parameters
`prior_a` and `prior_b`, above 0, and want independent trials in an order set beforehand: use them
where every sample is its own group. The bets take one entry a group, shape (k,), in the random
order that was set beforehand. What is out of range raises `ValueError`.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.estimate import Estimate
from guardmark.core.values import dataclass
from guardmark.stats.arguments import (
    number_column,
    require_count,
    require_fraction,
    require_part,
    require_rate,
)
from guardmark.stats.figures import Ratio

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Floats

_LARGEST_LOG = 709.0
_HALF = 0.5
_BET_ALPHA = 0.05  # the bets are tuned to decide at this level; the e-value is valid whatever it is


@dataclass(frozen=True, slots=True, kw_only=True)
class EValue:
    """Evidence against "both defenses are alike" that may be looked at at any time.

    Attributes:
        e_value: Stop and reject when it reaches 1 / alpha. At least 0; the largest float where it
            would overflow.
        log_e_value: Its natural logarithm.
        p_value: Valid at any time, in (0, 1]: 1 / `e_value`, at most 1.
        first_only: Pairs where only the first had the property.
        second_only: Pairs where only the second had it.
        reason: Why it carries no evidence, or empty.
    """

    e_value: float
    log_e_value: float
    p_value: float
    first_only: int
    second_only: int
    reason: str = ""


def spent_confidence(confidence: float, before: float) -> float:
    """Return the confidence of limits for a set of which a share was looked at before.

    Who extends a set and looks again has already spent error on the part that was there. Pocock's
    spending function says how much: log(1 + (e - 1) t) of it at the share t; what is left is the
    error of this look. Never less than its value at one half is left, since a few new samples say
    little that was not said before; a set that is all new, or all old, is one look.

    Args:
        confidence: Nominal coverage of one look, in (0, 1).
        before: Share of the set that was looked at before, in [0, 1].

    Source: Lan & DeMets (1983), doi:10.1093/biomet/70.3.659.
    """
    require_fraction("confidence", confidence)
    share = require_rate("before", before)
    if share in {0.0, 1.0}:
        return confidence
    spent = math.log1p((math.e - 1.0) * min(share, _HALF))
    return 1.0 - (1.0 - confidence) * (1.0 - spent)


def beta_mixture_sequence(
    successes: int,
    trials: int,
    *,
    confidence: float = 0.95,
    prior_a: float = 0.5,
    prior_b: float = 0.5,
) -> Estimate:
    """Estimate a rate with an interval that holds at every look.

    The interval is the set of rates whose mixture likelihood ratio is below 1 / (1 - confidence):
    from 0 at no successes, to 1 at all successes. Undefined without trials.
    Source: Robbins (1970), doi:10.1214/aoms/1177696786; Ville (1939).
    """
    require_fraction("confidence", confidence)
    _require_prior(prior_a, prior_b)
    hits, total = require_part(successes, trials)
    low, high = None, None
    if total:
        mixture = _log_beta(prior_a + hits, prior_b + total - hits) - _log_beta(prior_a, prior_b)
        floor = mixture + math.log1p(-confidence)
        low, high = _likelihood_set(hits, total, floor)
    return Estimate(
        successes=hits,
        trials=total,
        low=low,
        high=high,
        confidence=confidence,
        method="beta mixture sequence",
        reason="" if total else "no trials",
    )


def mcnemar_e_value(
    first_only: int, second_only: int, *, prior_a: float = 0.5, prior_b: float = 0.5
) -> EValue:
    """Weigh the evidence that two defenses differ, valid at every look.

    Under "alike" a discordant pair falls either way with chance 1/2; the e-value is a Beta mixture
    of the likelihoods of all other chances against that. It is 1, with a reason, where no pair is
    discordant.
    Source: Robbins (1970), doi:10.1214/aoms/1177696786; Ramdas et al. (2023),
    doi:10.1214/23-STS894.
    """
    _require_prior(prior_a, prior_b)
    first = require_count("first_only", first_only)
    second = require_count("second_only", second_only)
    log_e = _log_beta(prior_a + first, prior_b + second) - _log_beta(prior_a, prior_b)
    log_e += (first + second) * math.log(2)
    return _e_value(log_e, first, second)


def betting_sequence(
    events: ArrayLike,
    sizes: ArrayLike | None = None,
    *,
    largest: float | None = None,
    confidence: float = 0.95,
) -> Ratio:
    """Estimate the sum of events over the sum of sizes, valid at every look.

    So a row weighs the same in whichever group it lies, also where rates go with the sizes of
    groups: bets are on (events - rate * size) / `largest`, whose mean is 0 at the true rate. The
    running intersection over all looks: it never grows when more is seen. Linear in k: with many
    groups look after every hundredth more. `events` are in [0, size], `sizes` 1 each where None,
    `largest` what no group to come exceeds (None: all sizes were seen, or are alike).
    Source: Waudby-Smith & Ramdas (2024), doi:10.1093/jrsssb/qkad009: hedged capital with
    predictable plug-in bets, truncated at one half.
    """
    require_fraction("confidence", confidence)
    values = number_column(events, name="events")
    rows = np.ones(len(values)) if sizes is None else number_column(sizes, name="sizes")
    if len(values) != len(rows) or ((values < 0) | (values > rows)).any():
        raise ValueError("events must be in [0, size], one a group")
    most = float(rows.max(initial=0.0)) if largest is None else largest
    if (rows > most).any():
        raise ValueError(f"sizes must be at most largest, got {rows.max()} and {most}")
    mean, low, high = None, None, None
    if rows.any():
        mean, alpha = float(values.sum() / rows.sum()), 1 - confidence
        values, rows = values / most, rows / most
        bets = _bets(values, rows, alpha=alpha)
        low = _lower_limit(values, rows, bets, alpha=alpha)
        high = 1 - _lower_limit(rows - values, rows, bets, alpha=alpha)
        # Looks of the past may rule out what the last mean says; the limits then still cover.
        low, high = min(low, high), max(low, high)
    return Ratio(
        value=mean,
        low=low,
        high=high,
        confidence=confidence,
        method="betting sequence",
        trials=len(values),
        groups=len(values),
        reason="" if mean is not None else "no groups",
    )


def betting_e_value(observations: ArrayLike) -> EValue:
    """Weigh the evidence that the mean of observations is not one half, at every look.

    Observations are in [0, 1]. For two defenses one is (d / m + 1) / 2 with d the pairs of a group
    where only the first has the property less those where only the second has it, and m the largest
    group, so that every row weighs the same. Returns the largest e-value so far, half of it bet on
    each side; `first_only` and `second_only` count observations above and below one half. 1 with a
    reason where there are neither. See `betting_sequence`.
    """
    values = number_column(observations, name="observations")
    if values.size and (values.min() < 0 or values.max() > 1):
        raise ValueError("observations must be in [0, 1]")
    above, below = int((values > _HALF).sum()), int((values < _HALF).sum())
    log_e = 0.0
    if above + below:
        bets = np.minimum(_bets(values, np.ones(len(values)), alpha=_BET_ALPHA), 1.0)
        gains = bets * (values - _HALF)
        either = np.logaddexp(np.cumsum(np.log1p(gains)), np.cumsum(np.log1p(-gains)))
        log_e = max(0.0, float(either.max()) - math.log(2))
    return _e_value(log_e, above, below)


def _e_value(log_e: float, first: int, second: int) -> EValue:
    return EValue(
        e_value=math.exp(log_e) if log_e < _LARGEST_LOG else sys.float_info.max,
        log_e_value=log_e,
        p_value=max(math.exp(min(0.0, -log_e)), sys.float_info.min),
        first_only=first,
        second_only=second,
        reason="" if first + second else "no discordant pair",
    )


def _require_prior(prior_a: float, prior_b: float) -> None:
    for name, value in (("prior_a", prior_a), ("prior_b", prior_b)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be finite and above 0, got {value}")


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _likelihood_set(successes: int, trials: int, floor: float) -> tuple[float, float]:
    """Return the ends of the rates whose log-likelihood is at or above the floor."""
    failures = trials - successes

    def is_inside(rate: float) -> bool:
        total = 0.0
        if successes:
            total += successes * math.log(rate)
        if failures:
            total += failures * math.log1p(-rate)
        return total > floor

    best = successes / trials
    low, high = 0.0, 1.0
    if successes:
        low = _border(0.0, best, is_inside)
    if failures:
        high = _border(1.0, best, is_inside)
    return low, high


def _border(outside: float, inside: float, is_inside: Callable[[float], bool]) -> float:
    """Halve the gap between a value that is out and one that is in, to the last bit."""
    middle = (outside + inside) / 2
    while middle not in {outside, inside}:
        if is_inside(middle):
            inside = middle
        else:
            outside = middle
        middle = (outside + inside) / 2
    return inside


def _bets(values: Floats, rows: Floats, *, alpha: float) -> Floats:
    """Return how much to bet on each group, from those before it alone."""
    seen = np.arange(1, len(values) + 1)
    rates = (0.5 + np.cumsum(values)) / (1 + np.cumsum(rows))
    variances = (0.25 + np.cumsum((values - rates * rows) ** 2)) / (seen + 1)
    before = np.concatenate(([0.25], variances[:-1]))
    bets: Floats = np.sqrt(2 * math.log(2 / alpha) / (before * seen * np.log(seen + 1)))
    return bets


def _lower_limit(values: Floats, rows: Floats, bets: Floats, *, alpha: float) -> float:
    """Return the lowest rate that no look so far has ruled out.

    Each factor of the capital falls as the rate rises, so one border parts the ruled out from the
    rest. Half of the capital bets on each side, hence 2 / alpha.
    """
    wall = math.log(2 / alpha)

    def is_possible(rate: float) -> bool:
        capital = np.cumsum(np.log1p(np.minimum(bets, 0.5 / rate) * (values - rate * rows)))
        return bool(capital.max() < wall)

    if is_possible(sys.float_info.epsilon):
        return 0.0
    return _border(0.0, 1.0, is_possible)
