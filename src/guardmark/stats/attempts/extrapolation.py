"""What more blind tries would reach: a model's guess, always labelled as one.

For the blind arm only, whose tries do not learn from each other. An attacker who learns breaks the
model, and no curve is extrapolated for him.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.estimate import Ratio
from guardmark.stats.arguments import group_column, require_fraction, require_tries
from guardmark.stats.distributions import two_sided_z
from guardmark.stats.drawing import DrawPlan, draw_weights, percentile_limits
from guardmark.stats.rates.proportion import Limits, wilson_limits

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Floats, Ints

# Logarithms of a + b: from "a sample is always or never broken" to "all samples are alike".
_LOWEST, _HIGHEST = -7.0, 14.0
_NARROWINGS = 32
_STEPS, _CLOSE = 60, 1e-12  # at most so many, until a mean moves by no larger share
_GOLDEN = (math.sqrt(5) - 1) / 2
_REACH = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BetaBinomial:
    """How the samples' chances of a bypass per try spread."""

    a: float | None = None  # First parameter of the Beta distribution, or None when undefined.
    b: float | None = None  # Second parameter, or None when undefined.
    reason: str = ""  # Why there is no fit, or empty.

    def success_at(self, k: int) -> float | None:
        """Return the modelled chance that one of k tries gets through, or None."""
        if self.a is None or self.b is None:
            return None
        return float(_success_at(np.array([self.a]), np.array([self.b]), k)[0])


def fit_beta_binomial(tries: ArrayLike, successes: ArrayLike) -> BetaBinomial:
    """Fit the spread of bypass chances over samples by maximum likelihood.

    `tries` and `successes` are blind tries per sample and those that got through, shape (n,);
    `ValueError` if they do not fit together. Undefined where no sample or every try of every sample
    got through, where no sample was tried twice, and without samples.
    Source: Griffiths (1973), doi:10.2307/2529131.
    """
    n, c = require_tries(tries, successes)
    reason = _refusal(n, c)
    if reason:
        return BetaBinomial(reason=reason)
    cells, weights = np.unique(np.column_stack([n, c]), axis=0, return_counts=True)
    a, b = _fit(cells, weights[None].astype(np.float64))
    return BetaBinomial(a=float(a[0]), b=float(b[0]))


def extrapolate_success(
    tries: ArrayLike,
    successes: ArrayLike,
    *,
    k: int,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
    drawing: DrawPlan | None = None,
) -> Ratio:
    """Guess the chance that one of k blind tries gets through.

    Tries and successes are those of `fit_beta_binomial`; `k` is at least 1; `groups` name each
    sample's group (None: every sample alone); `confidence` is in (0, 1); `drawing` None is seed 0,
    500 draws.

    Returns:
        The model's value with the wider, at each end, of two intervals: the percentile band of a
        bootstrap of whole groups, and Wilson's over groups at that value. The band alone shrinks to
        a point where every draw is fitted to nearly the same value, while the mean of n chances in
        [0, 1] is never surer than that of n outcomes that were simply seen. The interval covers
        chance, not a wrong model. Refused past ten times the mean tries per sample; undefined as
        the fit.
    """
    require_fraction("confidence", confidence)
    n, c = require_tries(tries, successes)
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    codes = group_column(groups, len(n))
    members = len(np.unique(codes))
    plan = drawing or DrawPlan(replicates=500)
    reason = _refusal(n, c)
    if not reason and k > _REACH * float(n.mean()):
        reason = f"{k} tries lie past {_REACH} times the {n.mean():.3g} tries made per sample"
    value, limits = None, None
    if not reason:
        value = fit_beta_binomial(n, c).success_at(k)
        reason = "a band needs two groups" if members < 2 else ""
    if value is not None and not reason:
        values, inverse = np.unique(np.column_stack([n, c]), axis=0, return_inverse=True)
        by_group = np.zeros((members, len(values)))
        np.add.at(by_group, (np.unique(codes, return_inverse=True)[1], inverse.reshape(-1)), 1)
        band = _band(values, by_group, k=k, confidence=confidence, drawing=plan)
        seen = wilson_limits(value, members, z=two_sided_z(confidence))
        limits = Limits(min(band.low, seen.low), max(band.high, seen.high))
    return Ratio(
        value=value,
        low=limits.low if limits else None,
        high=limits.high if limits else None,
        confidence=confidence,
        method="extrapolated, beta-binomial, wider of group bootstrap and wilson over groups",
        trials=len(n),
        groups=members if groups is not None else None,
        replicates=plan.replicates if limits else 0,
        reason=reason,
    )


def _refusal(n: Ints, c: Ints) -> str:
    if not n.sum():
        return "no tries"
    if n.max() < 2:
        return "no sample was tried twice: how samples differ cannot be seen"
    if not c.sum():
        return "no try got through: there is nothing to extrapolate from"
    return "every try got through" if bool(np.all(c == n)) else ""


def _band(cells: Ints, by_group: Floats, *, k: int, confidence: float, drawing: DrawPlan) -> Limits:
    """Return the band, from distinct (tries, successes) and how often each group has them."""
    groups, width = by_group.shape
    drawn = []
    n, c = cells[:, 0], cells[:, 1]
    for block in draw_weights([np.arange(groups)], drawing=drawing, rows=max(width, int(n.max()))):
        weights = block @ by_group
        hits, total = weights @ c, weights @ n
        # A draw without any bypass says 0 and one of bypasses alone says 1: neither has a fit.
        reached = np.where(hits == 0, 0.0, 1.0)
        mixed = (hits > 0) & (hits < total)
        reached[mixed] = _success_at(*_fit(cells, weights[mixed]), k)
        drawn.append(reached)
    return Limits(*percentile_limits(np.concatenate(drawn), confidence))


def _success_at(a: Floats, b: Floats, k: int) -> Floats:
    from scipy.special import gammaln

    log_all_fail = gammaln(b + k) - gammaln(b) - gammaln(a + b + k) + gammaln(a + b)
    reached: Floats = -np.expm1(np.minimum(log_all_fail, 0.0))
    return reached


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exceeding:
    """How many samples had more than j passes, failures and tries: shape (r, j) each.

    Sums over j of these, of 1 / (a + j) and of log(a + j), are the slope and the height of the
    likelihood. They need no special function, which would take ten times as long.
    """

    passes: Floats
    failures: Floats
    tries: Floats

    @classmethod
    def of(cls, cells: Ints, weights: Floats) -> _Exceeding:
        n, c = cells[:, 0], cells[:, 1]

        def beyond(counts: Ints) -> Floats:
            return weights @ (counts[:, None] > np.arange(int(counts.max())))

        return cls(passes=beyond(c), failures=beyond(n - c), tries=beyond(n))


def _fit(cells: Ints, weights: Floats) -> tuple[Floats, Floats]:
    """Return the best a and b for each row of weights, shape (r, cells).

    The likelihood is searched over log(a + b), first coarsely, then by golden section, with the
    mean solved for at each step: two parameters, no start value, no way to diverge.
    """
    if not len(weights):
        return np.empty(0), np.empty(0)
    counts = _Exceeding.of(cells, weights)
    grid = np.linspace(_LOWEST, _HIGHEST, 22)
    heights = np.stack([_profile(counts, np.full(len(weights), each))[0] for each in grid])
    best = np.argmax(heights, axis=0)
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)]
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = _profile(counts, left)[0], _profile(counts, right)[0]
    for _ in range(_NARROWINGS):
        rises = at_left < at_right
        low, high = np.where(rises, left, low), np.where(rises, high, right)
        fresh = np.where(rises, low + _GOLDEN * (high - low), high - _GOLDEN * (high - low))
        height = _profile(counts, fresh)[0]
        left, right = np.where(rises, right, fresh), np.where(rises, fresh, left)
        at_left, at_right = np.where(rises, at_right, height), np.where(rises, height, at_left)
    size = (low + high) / 2
    mean = _profile(counts, size)[1]
    return mean * np.exp(size), (1 - mean) * np.exp(size)


def _profile(counts: _Exceeding, log_size: Floats) -> tuple[Floats, Floats]:
    """Return the height of the log-likelihood at log(a + b), and the mean that reaches it."""
    size = np.exp(log_size)
    mean = _best_mean(counts, size)
    heights = (
        _logs(counts.passes, mean * size)
        + _logs(counts.failures, (1 - mean) * size)
        - _logs(counts.tries, size)
    )
    return heights, mean


def _logs(counts: Floats, start: Floats) -> Floats:
    """Sum counts times log(start + j) over j, for each row."""
    sums: Floats = np.einsum(
        "rj,rj->r", counts, np.log(start[:, None] + np.arange(counts.shape[1]))
    )
    return sums


def _best_mean(counts: _Exceeding, size: Floats) -> Floats:
    """Return the mean at which the likelihood is highest for a given a + b.

    The slope falls through 0 exactly once between 0, where it is infinite, and 1. Newton's method
    finds where: on mean (1 - mean) slope, which is nearly straight and has no poles, and by halving
    whatever step would leave the interval that is known to hold the root.
    """
    low, high = np.zeros(len(size)), np.ones(len(size))
    mean: Floats = counts.passes.sum(axis=1) / counts.tries.sum(axis=1)
    for _ in range(_STEPS):
        first, first_bend = _inverses(counts.passes, mean * size)
        second, second_bend = _inverses(counts.failures, (1 - mean) * size)
        slope, bend = first - second, -size * (first_bend + second_bend)
        low, high = np.where(slope > 0, mean, low), np.where(slope > 0, high, mean)
        spread = mean * (1 - mean)
        step = spread * slope / ((1 - 2 * mean) * slope + spread * bend)
        wanted = mean - step
        fits = (wanted >= low) & (wanted <= high)
        before, mean = mean, np.where(fits, wanted, (low + high) / 2)
        if bool(np.all(np.abs(mean - before) <= _CLOSE * mean)):
            break
    return mean


def _inverses(counts: Floats, start: Floats) -> tuple[Floats, Floats]:
    """Sum counts over (start + j), and over its square, over j, for each row."""
    inverse = 1 / (start[:, None] + np.arange(counts.shape[1]))
    weighted = counts * inverse
    return weighted.sum(axis=1), np.einsum("rj,rj->r", weighted, inverse)
