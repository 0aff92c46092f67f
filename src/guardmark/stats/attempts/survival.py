"""How long a defense holds against an attacker who keeps trying.

`times` are the queries to the first bypass, or those spent in vain, not negative; `bypassed` is
true where the sample was bypassed, false where it was given up unbroken; both of shape (n,).
`confidence` is the nominal coverage, in (0, 1). What is out of range or of unequal length raises
`ValueError`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.arguments import (
    group_column,
    label_column,
    number_column,
    require_equal_lengths,
    require_fraction,
    require_tries,
)
from guardmark.stats.distributions import two_sided_t, two_sided_z
from guardmark.stats.figures import Quantile, Ratio
from guardmark.stats.rates.clustered import (
    default_estimate,
    effective_counts,
    group_freedom,
    summarise,
)
from guardmark.stats.rates.means import MeanLimits, share_limits, share_mean
from guardmark.stats.rates.proportion import ONE_GROUP, clopper_pearson, exact_limits, wilson_limits

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from guardmark.core.estimate import Estimate
    from guardmark.stats.arguments import Flags, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalPoint:
    """The curve from one time on, up to the next.

    Attributes:
        time: Queries spent (or whatever the curve is over).
        at_risk: Samples not yet bypassed or given up just before.
        bypassed: Samples bypassed at this time.
        given_up: Samples given up, unbroken, at this time.
        survival: Estimated share that still holds.
        low: Lower limit, or None where no bypass has been seen yet or none holds.
        high: Upper limit, or None in the same cases.
    """

    time: float
    at_risk: int
    bypassed: int
    given_up: int
    survival: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalCurve:
    """Queries to the first bypass, with unbroken samples censored.

    Attributes:
        points: One per distinct time, rising.
        median: First time at which at most half still hold; None: not reached.
        median_low: First time at which the lower limit is at most one half, or None.
        median_high: First time at which the upper limit is at most one half, or None.
        bypassed: Share of samples bypassed within their budget, with a Clopper-Pearson bound: what
            there is to say where nothing was bypassed.
        given_up_early: Unbroken samples given up before the longest time: while there are any, one
            minus the curve's end is not the share above.
        confidence: Nominal coverage of all limits, in (0, 1).
        method: Name of the interval.
        reason: Why something is undefined, or empty.
    """

    points: tuple[SurvivalPoint, ...]
    median: float | None
    median_low: float | None
    median_high: float | None
    bypassed: Estimate
    given_up_early: int
    confidence: float
    method: str
    reason: str = ""

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
    """Mean time a sample holds, counted up to a horizon: a number that always exists.

    Attributes:
        value: Area under the curve up to the horizon, or None when undefined.
        standard_error: Its standard error, or None when undefined.
        low: Lower limit, not below 0, or None without an interval.
        high: Upper limit, not above the horizon, or None without an interval.
        horizon: Up to where time is counted.
        confidence: Nominal coverage, in (0, 1).
        trials: Samples behind it.
        reason: Why something is undefined, or empty.
    """

    value: float | None = None
    standard_error: float | None = None
    low: float | None = None
    high: float | None = None
    horizon: float
    confidence: float
    trials: int
    reason: str = ""


def kaplan_meier(
    times: ArrayLike,
    bypassed: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
) -> SurvivalCurve:
    """Estimate the share that still holds after any number of queries.

    Taking the median over the bypassed alone, as is often done, leaves out all that held. Returns
    the curve with log-log limits, None where the curve is 1 or 0: with Greenwood's variance, or
    where samples share `groups` the larger of it and of what each does to the curve summed by group
    (CR1), with Student's t.
    Source: Kaplan & Meier (1958); Kalbfleisch & Prentice (2002), section 1.4; Ying & Wei (1994),
    doi:10.1006/jmva.1994.1031 (groups).
    """
    z = two_sided_z(confidence)
    table = _life_table(times, bypassed)
    survival, greenwood = _curve(table)
    codes = None
    if groups is not None and len(table.times):
        spent, broken = number_column(times, name="times"), label_column(bypassed, name="bypassed")
        codes = group_column(groups, len(spent))
        sizes = np.bincount(codes)
        if 1 < len(sizes) < len(spent):
            z = two_sided_t(confidence, group_freedom(sizes))
            greenwood = np.maximum(greenwood, _grouped_greenwood(table, spent, broken, codes))
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
        bypassed=_share_bypassed(table, bypassed, codes, confidence=confidence),
        given_up_early=int(table.censored[:-1].sum()),
        confidence=confidence,
        method="kaplan-meier, log-log",
        reason=reason if points else "no samples",
    )


def _grouped_greenwood(table: _LifeTable, spent: Floats, broken: Flags, codes: Ints) -> Floats:
    """Return the variance of the logarithm of the curve after each time, by whole groups.

    A sample moves it by (d r - e y) / (y (y - d)) at each time: e whether it was bypassed then, r
    whether it was at risk, d and y how many were. Alone in their groups these are Greenwood's sum.
    """
    members = int(codes.max()) + 1
    at = np.searchsorted(table.times, spent)
    fell, left = np.zeros((2, members, len(table.times)))
    np.add.at(fell, (codes[broken], at[broken]), 1.0)
    np.add.at(left, (codes, at), 1.0)
    at_risk = left.sum(axis=1, keepdims=True) - np.cumsum(left, axis=1) + left
    survivors = table.at_risk - table.events
    moved = table.events * at_risk - fell * table.at_risk
    steps = np.zeros_like(moved)
    np.divide(moved, table.at_risk * survivors, out=steps, where=survivors > 0)
    sums: Floats = (np.cumsum(steps, axis=1) ** 2).sum(axis=0) * members / (members - 1)
    return sums


def _share_bypassed(
    table: _LifeTable, bypassed: ArrayLike, codes: Ints | None, *, confidence: float
) -> Estimate:
    """Estimate the share bypassed, with exact limits at what samples of groups are worth."""
    events = int(table.events.sum())
    plain = clopper_pearson(events, events + int(table.censored.sum()), confidence=confidence)
    if codes is None:
        return plain
    broken, sizes = label_column(bypassed, name="bypassed"), np.bincount(codes)
    summary = summarise(np.bincount(codes[broken], minlength=len(sizes)), sizes)
    rate = default_estimate(summary, confidence=confidence)
    counts = effective_counts(summary)
    if not counts.n_eff:
        return rate
    limits = exact_limits(counts.rate, counts.worth(confidence), confidence=confidence)
    return replace(rate, low=limits.low, high=limits.high, method="clopper_pearson, effective")


def restricted_mean(
    times: ArrayLike,
    bypassed: ArrayLike,
    *,
    horizon: float,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
) -> RestrictedMean:
    """Estimate how long samples hold on average, up to a horizon above 0: the budget.

    Without `groups` (each sample's) the interval is normal and cut to [0, horizon]. With them, and
    everybody followed up to the horizon or to a bypass, the mean is that of min(time, horizon) and
    has the limits of `share_mean` times the horizon. Where some were given up before, it is a
    jackknife of whole groups (Andersen & Perme 2010: pseudo-values, summed by group), Wilson's
    limits at the samples that this variance makes them worth, Student's t. Undefined without
    samples, and where the horizon lies past the last time while some still hold; no interval
    without variance, or with one group.
    Source: Royston & Parmar (2013), doi:10.1186/1471-2288-13-152; Andersen & Perme (2010),
    doi:10.1177/0962280209105020.
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
    if groups is not None:
        spent, broken = number_column(times, name="times"), label_column(bypassed, name="bypassed")
        codes = group_column(groups, len(spent))
        limits = _grouped_limits(
            spent, broken, codes, horizon=horizon, value=value, level=confidence
        )
        return replace(bare, value=value, low=limits.low, high=limits.high, reason=limits.reason)
    error = _mean_error(table, after=np.cumsum(areas[::-1])[::-1][1:])
    bare = replace(bare, value=value, standard_error=error)
    if not error:
        return replace(bare, reason="no variance to build an interval on")
    return replace(bare, low=max(0.0, value - z * error), high=min(horizon, value + z * error))


def _grouped_limits(
    spent: Floats, broken: Flags, codes: Ints, *, horizon: float, value: float, level: float
) -> MeanLimits:
    """Return limits of a restricted mean of samples that share groups."""
    if bool((broken | (spent >= horizon)).all()):
        shares = np.minimum(spent, horizon) / horizon
        limits = share_limits(shares, codes, confidence=level)
    else:
        limits = _jackknife_limits(spent, broken, codes, horizon=horizon, value=value, level=level)
    if limits.low is None or limits.high is None:
        return limits
    low, high = min(horizon * limits.low, value), max(horizon * limits.high, value)
    return limits._replace(low=low, high=high)


def _jackknife_limits(
    spent: Floats, broken: Flags, codes: Ints, *, horizon: float, value: float, level: float
) -> MeanLimits:
    """Return limits as a share of the horizon, by leaving out one group after the other."""
    sizes = np.bincount(codes)
    if len(sizes) < 2:
        return MeanLimits(None, None, "none", ONE_GROUP)
    without = []
    for group in range(len(sizes)):
        kept = codes != group
        left = restricted_mean(spent[kept], broken[kept], horizon=horizon).value
        without.append(value if left is None else left)
    gaps = (np.array(without) - np.mean(without)) / horizon
    variance = float(gaps @ gaps) * (len(sizes) - 1) / len(sizes)
    share = value / horizon
    spread = share * (1.0 - share)
    whole = float(sizes @ sizes) / len(spent) ** 2  # what a sample weighs if groups were copies
    worth = 1.0 / whole
    if spread > 0.0:
        fell = np.bincount(codes[broken], minlength=len(sizes))
        telling = min(np.count_nonzero(fell > 0), np.count_nonzero(fell < sizes))
        weight = telling / (telling + 2.0)
        seen = variance / spread
        worth = 1.0 / (weight * seen + (1.0 - weight) * max(whole, seen))
    z = two_sided_t(level, group_freedom(sizes))
    limits = wilson_limits(share, worth, z=z)
    return MeanLimits(limits.low, limits.high, "group jackknife", "")


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
