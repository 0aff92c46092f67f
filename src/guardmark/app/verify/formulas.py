"""The default interval of a rate, and of a paired difference: of `stats`, only quantiles of t."""

from __future__ import annotations

import math
from collections import Counter
from statistics import NormalDist
from typing import TYPE_CHECKING

from guardmark.core.values import dataclass
from guardmark.stats.distributions import t_quantile

if TYPE_CHECKING:
    from collections.abc import Callable

RateGroups = Counter[tuple[int, int]]
"""Trials and hits of a group to how many groups have so many: all that a rate depends on."""
PairGroups = Counter[tuple[int, int, int]]
"""Pairs of a group, and those that only the first or only the second side has, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure with its limits; None where it is undefined."""

    value: float | None
    low: float | None
    high: float | None


_UNDEFINED = Interval(value=None, low=None, high=None)


def rate_interval(groups: RateGroups, confidence: float) -> Interval:
    """Return a rate with Wilson's limits, at the effective number of trials where groups share."""
    n, k = _sum(groups, lambda m, _: m), groups.total()
    if not n:
        return _UNDEFINED
    p = _sum(groups, lambda _, h: h) / n
    if n == k:
        low, high = _wilson(p, n, NormalDist().inv_cdf((1 + confidence) / 2))
    elif k == 1:
        return Interval(value=p, low=None, high=None)
    else:
        t = t_quantile((1 + confidence) / 2, _freedom(groups))
        low, high = _wilson(p, n / _design_effect(groups, n=n, p=p), t)
    return Interval(value=p, low=low, high=high)


def difference_interval(groups: PairGroups, confidence: float) -> Interval:
    """Return a paired difference: Bonett & Price (2012), in groups no narrower than its sides."""
    sides: tuple[RateGroups, RateGroups] = Counter(), Counter()
    for (m, *marks), count in groups.items():
        for side, hits in zip(sides, marks, strict=True):
            side[m, hits] += count
    b, c = (_sum(side, lambda _, h: h) for side in sides)
    n, k = _sum(sides[0], lambda m, _: m), groups.total()
    if not n:
        return _UNDEFINED
    value, effect, z = (b - c) / n, 1.0, NormalDist().inv_cdf((1 + confidence) / 2)
    if n > k == 1:
        return Interval(value=value, low=None, high=None)
    if n > k:
        effect = _paired_effect(groups, n=n, b=b, c=c)
        z = t_quantile((1 + confidence) / 2, _freedom(sides[0]))
    total = n / effect + 2
    one, two = (b / effect + 1) / total, (c / effect + 1) / total
    half = z * math.sqrt((one + two - (one - two) ** 2) / total)
    low, high = one - two - half, one - two + half
    if n > k:
        first, second = (_side(each, confidence) for each in sides)
        low = min(low, value - math.hypot(first[0], second[1]))
        high = max(high, value + math.hypot(first[1], second[0]))
    return Interval(value=value, low=max(-1.0, min(low, value)), high=min(1.0, max(high, value)))


def _side(groups: RateGroups, confidence: float) -> tuple[float, float]:
    """Return how far the limits of one side's share lie below and above it (Zou & Donner 2008)."""
    share = rate_interval(groups, confidence)
    value, high = share.value or 0.0, 1.0 if share.high is None else share.high
    return value - (share.low or 0.0), high - value


def _sum(groups: RateGroups, term: Callable[[int, int], float]) -> float:
    return math.fsum(count * term(m, h) for (m, h), count in groups.items())


def _design_effect(groups: RateGroups, *, n: float, p: float) -> float:
    """Return how much groups inflate the variance, drawn to its limit where few groups tell."""
    k = groups.total()
    limit = _sum(groups, lambda m, _: m * m) / n
    linearised = limit
    if 0 < p < 1:
        variance = _sum(groups, lambda m, h: (h - p * m) ** 2) * k / (k - 1) / n**2
        linearised = min(max(variance / (p * (1 - p) / n), 1.0), limit)
    seen = max(linearised, 1 + (limit - 1) * _correlation(groups, n=n, p=p))
    with_hit = sum(count for (_, h), count in groups.items() if h > 0)
    with_miss = sum(count for (m, h), count in groups.items() if h < m)
    return _drawn_to(limit, seen, min(with_hit, with_miss))


def _freedom(groups: RateGroups) -> float:
    """Return K - 1; where one group dominates, Kish's number of equal groups less one."""
    n, k = _sum(groups, lambda m, _: m), groups.total()
    if max(m for m, _ in groups) / n <= max(0.2, 2 / k):
        return k - 1
    return max(1.0, n * n / _sum(groups, lambda m, _: m * m) - 1)


def _correlation(groups: RateGroups, *, n: float, p: float) -> float:
    """Intra-group correlation in [0, 1] by analysis of variance (Ridout, Demetrio & Firth 1999)."""
    k = groups.total()
    between = _sum(groups, lambda m, h: m * (h / m - p) ** 2) / (k - 1)
    within = _sum(groups, lambda _, h: h) - _sum(groups, lambda m, h: h * h / m)
    within /= n - k
    usual = (n - _sum(groups, lambda m, _: m * m) / n) / (k - 1)
    total = between + (usual - 1) * within
    return min(max((between - within) / total, 0.0), 1.0) if total > 0 else 1.0


def _paired_effect(groups: PairGroups, *, n: float, b: float, c: float) -> float:
    k, gap = groups.total(), (b - c) / n
    limit = sum(count * m * m for (m, _, _), count in groups.items()) / n
    residual = math.fsum(
        count * (one - two - gap * m) ** 2 for (m, one, two), count in groups.items()
    )
    alone = ((b + c) / n - gap**2) / n
    variance = residual * k / (k - 1) / n**2
    seen = min(max(variance / alone, 1.0), limit) if alone > 1e-15 else limit
    telling = sum(count for (_, one, two), count in groups.items() if one + two > 0)
    return _drawn_to(limit, seen, telling)


def _drawn_to(limit: float, seen: float, telling: int) -> float:
    weight = telling / (telling + 2)
    return weight * seen + (1 - weight) * limit


def _wilson(p: float, n: float, z: float) -> tuple[float, float]:
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (0.0 if p == 0 else middle - half), (1.0 if p == 1 else middle + half)
