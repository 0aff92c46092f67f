"""The highest of many rates, with limits that allow for its having been chosen.

The slice that looks worst is partly the one that chance treated worst: its own 95 % interval covers
its true rate in a quarter to two thirds of cases among 10 to 40 slices. Here all slices speak for
each other: rates come from one Beta distribution of unknown mean and spread, both integrated over,
so the limits hold whichever slice is looked at, and for whatever reason.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from guardmark.stats.arguments import require_fraction
from guardmark.stats.figures import Ratio
from guardmark.stats.rates.proportion import wilson_limits
from guardmark.stats.special_functions import incomplete_beta, log_beta, logistic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.stats.arguments import Floats
    from guardmark.stats.rates.clustered import EffectiveCounts

_NODES = 24
_NARROWINGS = 3
_DROP = 12.0  # nodes whose log weight lies this far below the highest have no say
_STEPS = 100
_CLOSE = 1e-14
_GUESSES = 24


class SelectedRate(NamedTuple):
    """The slice that is most likely the highest, and its rate."""

    at: int  # Its place among the counts given.
    rate: Ratio  # Mean and limits of its posterior.


def highest_rate(
    counts: Sequence[EffectiveCounts], *, confidence: float = 0.95
) -> SelectedRate | None:
    """Choose the slice of the highest rate, with limits that hold after the choice.

    Rates of slices are Beta; the prior is flat in their mean and in their standard deviation (as a
    share of the most that the mean allows), and integrated over on a grid that closes in on where
    the likelihood is. Each slice counts with what its rows are worth (`EffectiveCounts.worth`), so
    groups and few groups count. Alike slices draw each other to their mean; one that differs for
    sure keeps its rate.

    Args:
        counts: Counts of every slice that was looked at, chosen or not; those without an effective
            count are passed over.
        confidence: Probability of the limits, in (0, 1).

    Returns:
        The slice with the highest posterior mean; None with fewer than two slices to choose from.

    Source: Gelman (2006), doi:10.1214/06-BA117A (flat in the standard deviation); Efron (2011),
    doi:10.1198/jasa.2011.tm11181 (selection). Chosen by simulation: docs/decisions/0045.
    """
    slices = _Slices.of(counts, confidence)
    if slices is None:
        return None
    best = int(slices.means.argmax())
    return SelectedRate(slices.places[best], slices.rate(best))


def lowest_after_choice(
    counts: Sequence[EffectiveCounts], at: int, *, confidence: float = 0.95
) -> Ratio | None:
    """Estimate the rate of one of several that was taken since it is low.

    For candidates that answered the same samples, whose rates are high or low together: the
    posterior of `highest_rate`, which takes slices for independent, held the truth in .87 of runs.
    The value is its mean, which takes the flattery out; the upper limit is the candidate's own at
    the error of one of so many (Bonferroni), which holds whatever they share, and the lower limit
    its own. None where the candidate at this place has no effective count, or where fewer than two
    have.
    """
    slices = _Slices.of(counts, confidence)
    if slices is None or at not in slices.places:
        return None
    one, level = counts[at], 1.0 - (1.0 - confidence) / len(slices.places)
    own = wilson_limits(one.rate, one.n_eff, z=one.quantile(confidence))
    high = wilson_limits(one.rate, one.n_eff, z=one.quantile(level)).high
    value = float(slices.means[slices.places.index(at)])
    return Ratio(
        value=min(max(value, own.low), high),
        low=own.low,
        high=high,
        confidence=confidence,
        method=f"lowest of {len(slices.places)}, bonferroni",
        trials=one.trials,
        groups=one.groups,
    )


class _Slices(NamedTuple):
    """Slices that were looked at, and what all of them say of each."""

    counts: Sequence[EffectiveCounts]
    places: list[int]  # of those with an effective count
    worth: Floats
    hits: Floats
    a: Floats
    b: Floats
    weight: Floats
    means: Floats
    confidence: float

    @classmethod
    def of(cls, counts: Sequence[EffectiveCounts], confidence: float) -> _Slices | None:
        """Weigh the distributions that slices may come from; None with fewer than two slices."""
        require_fraction("confidence", confidence)
        places = [at for at, each in enumerate(counts) if each.n_eff]
        if len(places) < 2:
            return None
        worth = np.array([counts[at].worth(confidence) for at in places])
        hits = worth * np.array([counts[at].rate for at in places])
        a, b, weight = _posterior(hits, worth)
        means = ((hits[:, None] + a) / (worth[:, None] + a + b)) @ weight
        return cls(counts, places, worth, hits, a, b, weight, means, confidence)

    def rate(self, number: int) -> Ratio:
        """Return the rate of one slice, by its number among those with an effective count."""
        hits, worth = self.hits[number], self.worth[number]
        posterior = _BetaMixture(hits + self.a, worth - hits + self.b, self.weight)
        tail = (1.0 - self.confidence) / 2.0
        one = self.counts[self.places[number]]
        own = wilson_limits(one.rate, one.n_eff, z=one.quantile(self.confidence))
        return Ratio(
            value=float(self.means[number]),
            low=posterior.quantile(tail),
            high=max(posterior.quantile(1.0 - tail), own.high),
            confidence=self.confidence,
            method=f"highest of {len(self.places)}, beta-binomial posterior",
            trials=one.trials,
            groups=one.groups,
        )


class _BetaMixture(NamedTuple):
    """A mixture of beta distributions: what is known of one slice."""

    first: Floats
    second: Floats
    weight: Floats

    def _near(self, probability: float) -> float:
        """Return about where a quantile lies, by normal deviates of the cube roots of the odds.

        Source: Abramowitz & Stegun (1964), 26.5.21; a logistic curve in place of the normal one.
        """
        a, b = self.first, self.second
        low, high = 0.0, 1.0
        for _ in range(_GUESSES):
            x = (low + high) / 2.0
            near, far = np.cbrt(b * x), np.cbrt(a * (1.0 - x))
            gap = near * (1.0 - 1.0 / (9.0 * b)) - far * (1.0 - 1.0 / (9.0 * a))
            z = np.clip(3.0 * gap / np.sqrt(near**2 / b + far**2 / a), -8.0, 8.0)
            below = logistic(1.5976 * z + 0.07056 * z**3)
            if float(below @ self.weight) < probability:
                low = x
            else:
                high = x
        return (low + high) / 2.0

    def quantile(self, probability: float) -> float:
        """Return a quantile: Newton steps, and halves of the interval where one would leave it."""
        log_scale = log_beta(self.first, self.second)
        low, high = 0.0, 1.0
        x = self._near(probability)
        for _ in range(_STEPS):
            below = float(incomplete_beta(x, self.first, self.second) @ self.weight)
            if below < probability:
                low = x
            else:
                high = x
            density = (self.first - 1.0) * np.log(x) + (self.second - 1.0) * np.log1p(-x)
            slope = float(np.exp(density - log_scale) @ self.weight)
            step = math.inf
            if slope > 0.0:
                step = (probability - below) / slope
            before = x
            x += step
            if not low < x < high:
                x = (low + high) / 2.0
            if abs(x - before) <= _CLOSE * x:
                break
        return x


def _posterior(hits: Floats, worth: Floats) -> tuple[Floats, Floats, Floats]:
    """Return parameters of the Beta distribution of slices, and the weight of each pair."""
    shares = (np.arange(_NODES) + 0.5) / _NODES
    low, width = np.zeros(2), np.ones(2)
    for _ in range(_NARROWINGS):
        mean, root = (
            axis.ravel() for axis in np.meshgrid(*(low[:, None] + width[:, None] * shares))
        )
        # The standard deviation is root times the most that the mean allows: root^2 = 1 / (a+b+1).
        size = 1.0 / root**2 - 1.0
        a, b = mean * size, (1.0 - mean) * size
        height = log_beta(hits[:, None] + a, (worth - hits)[:, None] + b).sum(axis=0)
        height -= len(hits) * log_beta(a, b)
        telling = height > height.max() - _DROP
        step = width / _NODES
        ends = [(axis[telling].min(), axis[telling].max()) for axis in (mean, root)]
        low = np.array([max(0.0, end[0] - each) for end, each in zip(ends, step, strict=True)])
        high = np.array([min(1.0, end[1] + each) for end, each in zip(ends, step, strict=True)])
        width = high - low
    weight = np.exp(height[telling] - height.max())
    return a[telling], b[telling], weight / weight.sum()
