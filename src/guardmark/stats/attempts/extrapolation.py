"""What more blind tries would reach: guesses of two models, always labelled as such.

For the blind arm only, whose tries do not learn from each other. An attacker who learns breaks the
model, and no curve is extrapolated for him.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.arguments import group_column, require_fraction, require_tries
from guardmark.stats.attempts.survival import attack_success_at
from guardmark.stats.distributions import two_sided_z
from guardmark.stats.drawing import DrawPlan, draw_weights, percentile_limits
from guardmark.stats.figures import Ratio
from guardmark.stats.rates.proportion import Limits, wilson_limits
from guardmark.stats.special_functions import log_beta, logistic

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Floats, Ints

# Logarithms of a + b: from "a sample is always or never broken" to "all samples are alike".
_LOWEST, _HIGHEST = -7.0, 14.0
_NARROWINGS = 32
_STEPS, _CLOSE = 60, 1e-12  # at most so many, until a mean moves by no larger share
_GOLDEN = (math.sqrt(5) - 1) / 2
_REACH = 10
_ALIKE = 0.05  # models that differ by no more than this make one guess
_MODELS = ("beta-binomial", "beta-binomial with an immune share")
_LIMITS = "wider of group bootstrap and wilson over groups"
_NODES, _DROP = 40, 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedModel:
    """A model of how the samples' chances of a bypass per try spread, and its guess.

    Attributes:
        rate: What k tries reach.
        fits: Whether its curve stays within the limits of ASR@k at all k tried; None without a fit.
        breakable: Share of samples that can be broken at all, and parameters of the Beta
            distribution of their chances; None when undefined.
    """

    rate: Ratio
    fits: bool | None = None
    breakable: float | None = field(default=None, metadata={"json": False})
    a: float | None = field(default=None, metadata={"json": False})
    b: float | None = field(default=None, metadata={"json": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """What more blind tries would reach, by two models between which few tries cannot decide.

    Attributes:
        beta: Chances of samples follow a Beta distribution, near 0 but never 0.
        immune: Some samples cannot be broken; chances of the others follow a Beta one.
    """

    DERIVED: ClassVar = ("guess",)

    beta: FittedModel
    immune: FittedModel

    @property
    def shown(self) -> tuple[tuple[str, Ratio], ...]:
        """The common guess, or both models' with what they suppose."""
        if self.guess is not None:
            return (("", self.guess),)
        return ((", none immune", self.beta.rate), (", some immune", self.immune.rate))

    @property
    def guess(self) -> Ratio | None:
        """Their common guess with the limits of both; None where they disagree, or do not fit."""
        one, two = self.beta.rate, self.immune.rate
        if one.value is None or two.value is None or not (self.beta.fits and self.immune.fits):
            return None
        if abs(one.value - two.value) > _ALIKE:
            return None
        if one.low is None or one.high is None or two.low is None or two.high is None:
            return replace(one, low=None, high=None, reason=one.reason or two.reason)
        return replace(one, low=min(one.low, two.low), high=max(one.high, two.high))


def extrapolate_success(
    tries: ArrayLike,
    successes: ArrayLike,
    *,
    k: int,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
    drawing: DrawPlan | None = None,
) -> Extrapolation:
    """Guess the chance that one of k blind tries gets through, by two models.

    Tries beyond those made reach the samples that never fell, and the tries made hardly tell those
    that cannot fall from those that seldom do: models which fit alike may promise 55 and 90 %. So
    there are two, and a single guess only where both fit and differ by at most 5 points.

    Args:
        tries: Blind tries per sample, shape (n,).
        successes: Those that got through, shape (n,); `ValueError` if they do not fit together.
        k: How many tries are asked about, at least 1.
        groups: Group of each sample, shape (n,); None: every sample alone.
        confidence: Nominal coverage, in (0, 1).
        drawing: None: seed 0, 500 draws.

    Returns:
        Both models. The share of samples that can be broken is that of samples broken over the one
        the Beta distribution, fitted to broken samples alone, expects; 1 where it expects no more.
        Each value has the wider, at each end, of two intervals: the percentile band of a bootstrap
        of whole groups, and Wilson's over groups at that value. The band alone shrinks to a point
        where every draw is fitted to nearly the same value, while the mean of n chances in [0, 1]
        is never surer than that of n outcomes that were simply seen. The interval covers chance,
        not a wrong model. Refused past ten times the mean tries per sample; undefined where no
        sample or every try of every sample got through, where no sample was tried twice, and
        without samples.

    Source: Griffiths (1973), doi:10.2307/2529131 (Beta-binomial); Sanathanan (1972),
    doi:10.1214/aoms/1177692709 (fit to those seen, then their number); Link (2003),
    doi:10.1111/j.0006-341X.2003.00129.x (what data cannot tell apart).
    """
    require_fraction("confidence", confidence)
    n, c = require_tries(tries, successes)
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    codes = np.unique(group_column(groups, len(n)), return_inverse=True)[1]
    members = int(codes.max(initial=-1)) + 1
    plan = drawing or DrawPlan(replicates=500)
    reason = _refusal(n, c)
    if not reason and k > _REACH * float(n.mean()):
        reason = f"{k} tries lie past {_REACH} times the {n.mean():.3g} tries made per sample"
    bare = Ratio(
        value=None,
        low=None,
        high=None,
        confidence=confidence,
        method="",
        trials=len(n),
        groups=members if groups is not None else None,
        reason=reason,
    )
    rates = [replace(bare, method=f"extrapolated, {name}, {_LIMITS}") for name in _MODELS]
    if reason:
        return Extrapolation(beta=FittedModel(rate=rates[0]), immune=FittedModel(rate=rates[1]))
    cells, inverse = np.unique(np.column_stack([n, c]), axis=0, return_inverse=True)
    by_group = np.zeros((members, len(cells)))
    np.add.at(by_group, (codes, inverse.reshape(-1)), 1)
    fitted = _fit_both(cells, by_group.sum(axis=0, keepdims=True))
    seen: dict[int, Ratio] = {}
    for power in range(int(n.min()).bit_length()):
        at = 2**power
        seen[at] = attack_success_at(n, c, k=at, groups=groups, confidence=confidence)
    bands = _bands(cells, by_group, k=k, confidence=confidence, drawing=plan)
    models = []
    for bare_rate, band, part in zip(rates, bands, fitted, strict=True):
        value = _reached(part, k).item()
        if band:
            own = wilson_limits(value, members, z=two_sided_z(confidence))
            rate = replace(
                bare_rate,
                value=value,
                low=min(band.low, own.low),
                high=max(band.high, own.high),
                replicates=plan.replicates,
            )
        else:
            rate = replace(bare_rate, value=value, reason="a band needs two groups")
        fits = all(_holds(ratio, _reached(part, at).item()) for at, ratio in seen.items())
        breakable, a, b = part[:, 0].tolist()
        models.append(FittedModel(rate=rate, fits=fits, breakable=breakable, a=a, b=b))
    return Extrapolation(beta=models[0], immune=models[1])


def _holds(ratio: Ratio, value: float) -> bool:
    """Tell whether the limits of a rate hold a value; a limit that is undefined rules out none."""
    is_above = ratio.low is None or ratio.low <= value
    is_below = ratio.high is None or value <= ratio.high
    return is_above and is_below


def _refusal(n: Ints, c: Ints) -> str:
    if not n.sum():
        return "no tries"
    if n.max() < 2:
        return "no sample was tried twice: how samples differ cannot be seen"
    if not c.sum():
        return "no try got through: there is nothing to extrapolate from"
    return "every try got through" if bool(np.all(c == n)) else ""


def _bands(
    cells: Ints, by_group: Floats, *, k: int, confidence: float, drawing: DrawPlan
) -> list[Limits | None]:
    """Return a band a model, from distinct (tries, successes) and how often each group has them."""
    groups, width = by_group.shape
    if groups < 2:
        return [None, None]
    drawn = []
    n, c = cells[:, 0], cells[:, 1]
    for block in draw_weights(groups, drawing=drawing, rows=max(width, int(n.max()))):
        weights = block @ by_group
        hits, total = weights @ c, weights @ n
        # A draw without any bypass says 0 and one of bypasses alone says 1: neither has a fit.
        reached = np.tile(np.where(hits == 0, 0.0, 1.0), (2, 1))
        mixed = (hits > 0) & (hits < total)
        if mixed.any():
            reached[:, mixed] = [_reached(part, k) for part in _fit_both(cells, weights[mixed])]
        drawn.append(reached)
    return [
        Limits(*percentile_limits(draws, confidence)) for draws in np.concatenate(drawn, axis=1)
    ]


def _reached(model: Floats, k: int) -> Floats:
    """Return what k tries reach, by the share that can be broken, a and b: shape (3, r)."""
    reached: Floats = model[0] * _success_at(model[1], model[2], k)
    return reached


def _fit_both(cells: Ints, weights: Floats) -> Floats:
    """Fit both models to each row of weights, shape (2, 3, r): share that can be broken, a, b."""
    beta = np.stack([np.ones(len(weights)), *_fit(cells, weights)])
    broken = cells[:, 1] > 0
    a, b = _fit_broken(cells[broken], weights[:, broken])
    # Of samples that can be broken, how many the distribution expects to see broken.
    tries, of_cell = np.unique(cells[:, 0], return_inverse=True)
    expected = np.stack([_success_at(a, b, int(number)) for number in tries])
    rate = weights[:, broken].sum(axis=1) / (weights * expected[of_cell].T).sum(axis=1)
    return np.stack([beta, np.where(rate < 1.0, np.stack([rate, a, b]), beta)])


def _fit_broken(cells: Ints, weights: Floats) -> tuple[Floats, Floats]:
    """Return a and b of each row of weights, fitted to samples that were broken at least once.

    The likelihood is searched over nodes of log(a + b) and of the mean's logit, which close in on
    where it is high for all rows together.
    """
    n, c = cells[:, :1], cells[:, 1:]
    ends = np.array([[_LOWEST, _HIGHEST], [-_HIGHEST, _HIGHEST]])
    for drop in (_DROP, _DROP, 0.0):
        axes = [np.linspace(low, high, _NODES) for low, high in ends.tolist()]
        size, logit = (axis.ravel() for axis in np.meshgrid(*axes))
        a, b = np.exp(size) * logistic(logit), np.exp(size) * logistic(-logit)
        alone = log_beta(a, b)
        never = np.exp(np.minimum(log_beta(a, b + n) - alone, -1e-12))
        height = log_beta(a + c, b + n - c) - alone - np.log1p(-never)
        together = weights.mean(axis=0) @ height
        if drop:
            telling = together > together.max() - drop
            step = (ends[:, 1] - ends[:, 0]) / (_NODES - 1)
            ends = np.array(
                [
                    [max(low, at[telling].min() - gap), min(high, at[telling].max() + gap)]
                    for (low, high), at, gap in zip(ends, (size, logit), step, strict=True)
                ]
            )
    best = (weights @ height).argmax(axis=1)
    return a[best], b[best]


def _success_at(a: Floats, b: Floats, k: int) -> Floats:
    log_all_fail = log_beta(a, b + k) - log_beta(a, b)
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
    counts = _Exceeding.of(cells, weights)
    grid = np.linspace(_LOWEST, _HIGHEST, 22)
    heights = np.stack([_profile(counts, np.full(len(weights), height))[0] for height in grid])
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
    moves, steps = True, 0
    while moves and steps < _STEPS:
        first, first_bend = _inverses(counts.passes, mean * size)
        second, second_bend = _inverses(counts.failures, (1 - mean) * size)
        slope, bend = first - second, -size * (first_bend + second_bend)
        low, high = np.where(slope > 0, mean, low), np.where(slope > 0, high, mean)
        spread = mean * (1 - mean)
        step = spread * slope / ((1 - 2 * mean) * slope + spread * bend)
        wanted = mean - step
        fits = (wanted >= low) & (wanted <= high)
        before, mean = mean, np.where(fits, wanted, (low + high) / 2)
        moves, steps = bool(np.any(np.abs(mean - before) > _CLOSE * mean)), steps + 1
    return mean


def _inverses(counts: Floats, start: Floats) -> tuple[Floats, Floats]:
    """Sum counts over (start + j), and over its square, over j, for each row."""
    inverse = 1 / (start[:, None] + np.arange(counts.shape[1]))
    weighted = counts * inverse
    return weighted.sum(axis=1), np.einsum("rj,rj->r", weighted, inverse)
