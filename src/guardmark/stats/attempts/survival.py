"""How long a defense holds against an attacker who keeps trying.

`times` are the queries to the first bypass, or those spent in vain, not negative; `bypassed` is
true where the sample was bypassed, false where it was given up unbroken; both of shape (n,).
`confidence` is the nominal coverage, in (0, 1). What is out of range or of unequal length raises
`ValueError`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from guardmark.stats.arguments import (
    label_column,
    number_column,
    require_equal_lengths,
    require_fraction,
    require_tries,
)
from guardmark.stats.distributions import two_sided_z
from guardmark.stats.figures import Quantile, Ratio
from guardmark.stats.rates.means import share_mean
from guardmark.stats.rates.proportion import clopper_pearson

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from guardmark.core.estimate import Estimate
    from guardmark.stats.arguments import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalPoint:
    """The curve from one time on, up to the next."""

    time: float  # Queries spent (or whatever the curve is over).
    at_risk: int  # Samples not yet bypassed or given up just before.
    bypassed: int  # Samples bypassed at this time.
    given_up: int  # Samples given up, unbroken, at this time.
    survival: float  # Estimated share that still holds.
    low: float | None  # Lower limit, or None where no bypass has been seen yet or none holds.
    high: float | None  # Upper limit, or None in the same cases.


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalCurve:
    """Queries to the first bypass, with unbroken samples censored."""

    points: tuple[SurvivalPoint, ...]  # One per distinct time, rising.
    median: float | None  # First time at which at most half still hold; None: not reached.
    median_low: float | None  # First time at which the lower limit is at most one half, or None.
    median_high: float | None  # First time at which the upper limit is at most one half, or None.
    # Share of samples bypassed within their budget, with a Clopper-Pearson bound: what there is to
    # say where nothing was bypassed.
    bypassed: Estimate
    # Unbroken samples given up before the longest time: while there are any, one minus the curve's
    # end is not the share above.
    given_up_early: int
    confidence: float  # Nominal coverage of all limits, in (0, 1).
    method: str  # Name of the interval.
    reason: str = ""  # Why something is undefined, or empty.

    @property
    def queries(self) -> Quantile:
        """The median with its limits and counts."""
        trials, reason = self.bypassed.trials, "" if self.median_low else "no limit crosses a half"
        if self.median is None:
            reason = "not reached"
        return Quantile(
            quantile=0.5,
            value=self.median,
            low=None if self.median is None else self.median_low,
            high=None if self.median is None else self.median_high,
            trials=trials,
            censored=trials - self.bypassed.successes,
            confidence=self.confidence,
            method=self.method,
            reason=self.reason or reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictedMean:
    """Mean time a sample holds, counted up to a horizon: a number that always exists."""

    value: float | None = None  # Area under the curve up to the horizon, or None when undefined.
    standard_error: float | None = None  # Its standard error, or None when undefined.
    low: float | None = None  # Lower limit, not below 0, or None without an interval.
    high: float | None = None  # Upper limit, not above the horizon, or None without an interval.
    horizon: float  # Up to where time is counted.
    confidence: float  # Nominal coverage, in (0, 1).
    trials: int  # Samples behind it.
    reason: str = ""  # Why something is undefined, or empty.


def kaplan_meier(
    times: ArrayLike, bypassed: ArrayLike, *, confidence: float = 0.95
) -> SurvivalCurve:
    """Estimate the share that still holds after any number of queries.

    Taking the median over the bypassed alone, as is often done, leaves out all that held. Returns
    the curve with log-log limits (Greenwood's variance), None where the curve is 1 or 0.
    Source: Kaplan & Meier (1958); Kalbfleisch & Prentice (2002), section 1.4.
    """
    z = two_sided_z(confidence)
    table = _life_table(times, bypassed)
    survival, greenwood = _curve(table)
    points = []
    for i, time in enumerate(table.times):
        limits = _log_log(float(survival[i]), float(greenwood[i]), z)
        points.append(
            SurvivalPoint(
                time=float(time),
                at_risk=int(table.at_risk[i]),
                bypassed=int(table.events[i]),
                given_up=int(table.censored[i]),
                survival=float(survival[i]),
                low=limits[0],
                high=limits[1],
            )
        )
    events = int(table.events.sum())
    reason = "" if events else "nothing was bypassed: the curve has no limits"
    return SurvivalCurve(
        points=tuple(points),
        median=_first(points, [point.survival for point in points]),
        median_low=_first(points, [point.low for point in points]),
        median_high=_first(points, [point.high for point in points]),
        bypassed=clopper_pearson(events, events + int(table.censored.sum()), confidence=confidence),
        given_up_early=int(table.censored[:-1].sum()),
        confidence=confidence,
        method="kaplan-meier, log-log",
        reason=reason if points else "no samples",
    )


def restricted_mean(
    times: ArrayLike, bypassed: ArrayLike, *, horizon: float, confidence: float = 0.95
) -> RestrictedMean:
    """Estimate how long samples hold on average, up to a horizon above 0: the budget.

    Returns the mean with a normal interval cut to [0, horizon]. Undefined without samples, and
    where the horizon lies past the last time while some still hold; no interval without variance.
    Source: Royston & Parmar (2013), doi:10.1186/1471-2288-13-152.
    """
    z = two_sided_z(confidence)
    if not (math.isfinite(horizon) and horizon > 0):
        raise ValueError(f"horizon must be finite and above 0, got {horizon}")
    table = _life_table(times, bypassed)
    survival = _curve(table)[0]
    trials = int(table.at_risk[0]) if len(table.times) else 0
    bare = RestrictedMean(horizon=horizon, confidence=confidence, trials=trials)
    if not len(table.times):
        return replace(bare, reason="no samples")
    if horizon > table.times[-1] and survival[-1] > 0:
        reason = f"nobody was followed up to {horizon:g}, only to {table.times[-1]:g}"
        return replace(bare, reason=reason)
    inside = table.times < horizon
    edges = np.concatenate(([0.0], table.times[inside], [horizon]))
    areas = np.diff(edges) * np.concatenate(([1.0], survival[inside]))
    value = float(areas.sum())
    error = _mean_error(table, after=np.cumsum(areas[::-1])[::-1][1:])
    bare = replace(bare, value=value, standard_error=error)
    if not error:
        return replace(bare, reason="no variance to build an interval on")
    return replace(bare, low=max(0.0, value - z * error), high=min(horizon, value + z * error))


def attack_success_at(
    tries: ArrayLike,
    successes: ArrayLike,
    *,
    k: int,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Ratio:
    """Estimate the chance that at least one of k tries gets through (ASR@k).

    Each sample's tries must be exchangeable (the blind arm): an attacker who learns gets
    `kaplan_meier`. `tries` and `successes` are those of each sample, shape (n,), `groups` name its
    group (None: every sample alone), `k`, at least 1, is how many tries the figure allows.

    Returns:
        The mean over samples of the unbiased estimate 1 - C(n - c, k) / C(n, k), with Wilson's
        limits at the rows that samples are worth over at least two groups (`share_limits`).
        Undefined without samples, and where k exceeds a sample's tries: it is not extrapolated.

    Source: Chen et al. (2021), arXiv:2107.03374.
    """
    require_fraction("confidence", confidence)
    n, c = require_tries(tries, successes)
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    fewest = int(n.min(initial=k))
    tried = zip(n.tolist(), c.tolist(), strict=True)
    per_sample = np.array([chance_of_any(*each, k) if fewest >= k else 0.0 for each in tried])
    estimate = share_mean(per_sample, groups, name="chen", confidence=confidence)
    if fewest >= k:
        return estimate
    reason = f"ASR@{k} needs {k} tries of every sample, got {fewest}"
    return replace(estimate, value=None, low=None, high=None, method="chen, none", reason=reason)


def chance_of_any(tries: int, successes: int, k: int) -> float:
    """Return the chance that one of k tries drawn from a sample's own got through.

    1 - C(n - c, k) / C(n, k) for c successes in n tries, at least k; see `attack_success_at`.
    """
    failures = tries - successes
    if failures < k:
        return 1.0
    if not successes:
        return 0.0
    spared = np.arange(failures + 1, tries + 1, dtype=np.float64)
    return float(-np.expm1(np.sum(np.log1p(-k / spared))))


@dataclass(frozen=True, slots=True, kw_only=True)
class _LifeTable:
    times: Floats
    at_risk: Ints
    events: Ints
    censored: Ints


def _life_table(times: ArrayLike, bypassed: ArrayLike) -> _LifeTable:
    spent, broken = number_column(times, name="times"), label_column(bypassed, name="bypassed")
    require_equal_lengths(times=len(spent), bypassed=len(broken))
    if spent.size and spent.min() < 0:
        raise ValueError(f"times must not be negative, got {spent.min():g}")
    distinct, inverse = np.unique(spent, return_inverse=True)
    all_at = np.bincount(inverse, minlength=len(distinct))
    events = np.bincount(inverse[broken], minlength=len(distinct))
    return _LifeTable(
        times=distinct,
        at_risk=len(spent) - np.cumsum(all_at) + all_at,
        events=events,
        censored=all_at - events,
    )


def _curve(table: _LifeTable) -> tuple[Floats, Floats]:
    """Return the survival and Greenwood's sum after each time."""
    survivors = table.at_risk - table.events
    terms = np.zeros(len(table.times))
    np.divide(table.events, table.at_risk * survivors, out=terms, where=survivors > 0)
    shares = np.asarray(survivors / table.at_risk, dtype=np.float64)
    return np.multiply.accumulate(shares), np.cumsum(terms)


def _log_log(survival: float, greenwood: float, z: float) -> tuple[float | None, float | None]:
    if survival in {0.0, 1.0}:
        return None, None
    # Above the logarithm of the smallest float all is 0 anyway.
    spread = min(z * math.sqrt(greenwood) / -math.log(survival), 700.0)
    return survival ** math.exp(spread), survival ** math.exp(-spread)


def _first(points: list[SurvivalPoint], curve: list[float | None] | list[float]) -> float | None:
    # A product such as 0.8 * 0.625 may end a hair above the half it means.
    at_half = 0.5 + 1e-12
    return next(
        (
            point.time
            for point, value in zip(points, curve, strict=True)
            if value is not None and value <= at_half
        ),
        None,
    )


def _mean_error(table: _LifeTable, after: Floats) -> float:
    """Return the standard error, from the area left after each time before the horizon."""
    events, at_risk = table.events[: len(after)], table.at_risk[: len(after)]
    terms = np.zeros(len(after))
    survivors = at_risk - events
    np.divide(after**2 * events, at_risk * survivors, out=terms, where=survivors > 0)
    return math.sqrt(float(terms.sum()))
