"""The highest or lowest of many rates, with limits that allow for its having been chosen.

The slice that looks worst is partly the one that chance treated worst: its own 95 % interval covers
its true rate in a quarter to two thirds of cases among 10 to 40 slices. Here all slices speak for
each other: rates come from one Beta distribution of unknown mean and spread, both integrated over,
so the limits hold whichever slice is looked at, and for whatever reason.
"""

from __future__ import annotations

import math
from dataclasses import replace
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
    """The slice that is most likely the highest, and its rate.

    Attributes:
        at: Its place among the counts given.
        rate: Mean and limits of its posterior.
    """

    at: int
    rate: Ratio


def rate_of_chosen(
    counts: Sequence[EffectiveCounts],
    *,
    at: int | None = None,
    is_lowest: bool = False,
    shares_samples: bool = False,
    confidence: float = 0.95,
) -> SelectedRate | None:
    """Estimate the rate of one of several that is told since it is the highest, or the lowest.

    The value is the mean of a posterior: rates are Beta; the prior is flat in their mean and in
    their standard deviation (as a share of the most that the mean allows), and integrated over on a
    grid that closes in on where the likelihood is. Each counts with what its rows are worth
    (`EffectiveCounts.worth`), so groups and few groups count. Alike ones draw each other to their
    mean, which takes the flattery out; one that differs for sure keeps its rate.

    Limits of rates of different samples (categories, languages) are those of the posterior, and on
    the grave side at least its own. Rates of the same samples (defenses, operators) are high or
    low together, and limits of the posterior held in .87 of runs: there the limit on the side that
    chance has flattered is its own at the error of one of so many (Bonferroni), and the other its
    own.

    Args:
        counts: Counts of everything that was looked at, chosen or not; those without an effective
            count are passed over.
        at: Place of the one that was chosen; None chooses the one that is most likely the highest
            (or lowest), by the mean of its posterior.
        is_lowest: Whether it is told since it is low.
        shares_samples: Whether all are rates of the same samples.
        confidence: Probability of the limits, in (0, 1).

    Returns:
        The chosen one and its rate; None with fewer than two to choose from, or where that at `at`
        has no effective count.

    Source: Gelman (2006), doi:10.1214/06-BA117A (flat in the standard deviation); Efron (2011),
    doi:10.1198/jasa.2011.tm11181 (selection). Chosen by simulation: docs/decisions/0045 and 0131.
    """
    if is_lowest:
        mirrored = [replace(count, successes=count.trials - count.successes) for count in counts]
        chosen = rate_of_chosen(
            mirrored, at=at, shares_samples=shares_samples, confidence=confidence
        )
        if chosen is None:
            return None
        return SelectedRate(chosen.at, _mirror(chosen.rate))
    slices = _Slices.of(counts, confidence)
    if slices is None:
        return None
    if at is None:
        number = int(slices.means.argmax())
    elif at in slices.places:
        number = slices.places.index(at)
    else:
        return None
    rate = slices.bounded(number) if shares_samples else slices.rate(number)
    return SelectedRate(slices.places[number], rate)


def _mirror(rate: Ratio) -> Ratio:
    """Turn the rate of what did not happen into that of what did."""
    return replace(
        rate,
        value=_opposite(rate.value),
        low=_opposite(rate.high),
        high=_opposite(rate.low),
        method=rate.method.replace("highest of", "lowest of"),
    )


def _opposite(rate: float | None) -> float | None:
    if rate is None:
        return None
    return 1.0 - rate


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
        places = [at for at, count in enumerate(counts) if count.n_eff]
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
            method=f"highest of {self.choices}, beta-binomial posterior",
            trials=one.trials,
            groups=one.groups,
        )

    def bounded(self, number: int) -> Ratio:
        """Return the rate of one of several over the same samples."""
        one, level = self.counts[self.places[number]], 1.0 - (1.0 - self.confidence) / self.choices
        own = wilson_limits(one.rate, one.n_eff, z=one.quantile(self.confidence))
        low = wilson_limits(one.rate, one.n_eff, z=one.quantile(level)).low
        return Ratio(
            value=min(max(float(self.means[number]), low), own.high),
            low=low,
            high=own.high,
            confidence=self.confidence,
            method=f"highest of {self.choices}, bonferroni",
            trials=one.trials,
            groups=one.groups,
        )

    @property
    def choices(self) -> int:
        """How many there are to choose from."""
        return len(self.places)


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
        low = np.array([max(0.0, end[0] - width) for end, width in zip(ends, step, strict=True)])
        high = np.array([min(1.0, end[1] + width) for end, width in zip(ends, step, strict=True)])
        width = high - low
    weight = np.exp(height[telling] - height.max())
    return a[telling], b[telling], weight / weight.sum()
