"""Rates, intervals and quantiles from their formulas, one loop at a time.

Written a second time on purpose, as a slow reference: slow, plain, and sharing nothing with `stats`.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

Json = dict[str, Any]


Shapes = Counter[tuple[int, int]]
"""Trials and hits of a group to how many groups have so many: all that a rate depends on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One row that counts."""

    group: Hashable
    hit: bool


def rate(trials: Iterable[Trial], confidence: float) -> Json:
    """Return the default estimate of a rate as `summary.json` states it."""
    rows, hits = Counter[object](), Counter[object]()
    for trial in trials:
        rows[trial.group] += 1
        hits[trial.group] += trial.hit
    return rate_of(Counter((rows[group], hits[group]) for group in rows), confidence)


def rate_of(shapes: Shapes, confidence: float) -> Json:
    """Return the default estimate of a rate from how its trials lie in groups."""
    n = sum(count * m for (m, _), count in shapes.items())
    x = sum(count * h for (_, h), count in shapes.items())
    k = shapes.total()
    found: Json = {"successes": x, "trials": n, "confidence": confidence, "groups": k}
    if n == 0:
        nothing = dict.fromkeys(
            ("value", "low", "high", "effective_n", "design_effect", "icc", "group_mean")
        )
        return {**found, **nothing, "method": "wilson", "few_groups": False}
    p = x / n
    found["value"] = p
    found["group_mean"] = _sum(shapes, lambda m, h: h / m) / k
    found["icc"] = icc = _icc(shapes, n=n, p=p)
    found["few_groups"] = k < 10 and n > k
    if n == k:
        low, high = wilson(p, n, NormalDist().inv_cdf((1 + confidence) / 2))
        return {
            **found,
            "low": low,
            "high": high,
            "effective_n": n,
            "design_effect": 1,
            "method": "wilson",
        }
    found["method"] = "wilson_clustered"
    if k == 1:
        return {**found, "low": None, "high": None, "effective_n": None, "design_effect": None}
    effect = _design_effect(shapes, n=n, p=p, icc=icc)
    low, high = wilson(p, n / effect, student((1 + confidence) / 2, freedom(shapes)))
    return {**found, "low": low, "high": high, "effective_n": n / effect, "design_effect": effect}


def freedom(shapes: Shapes) -> float:
    """Return groups less one, or Kish's number of groups less one where one dominates."""
    n, k = sum(count * m for (m, _), count in shapes.items()), shapes.total()
    if max(m for m, _ in shapes) / n <= max(0.2, 2 / k):
        return k - 1
    return max(1.0, n * n / sum(count * m * m for (m, _), count in shapes.items()) - 1)


def worth(shapes: Shapes, confidence: float) -> float | None:
    """Return the independent trials a rate is worth with the normal quantile; None if unknown."""
    n, effective = rate_of(shapes, confidence)["trials"], rate_of(shapes, confidence)["effective_n"]
    if effective is None or n == shapes.total():
        return effective
    level = (1 + confidence) / 2
    return effective * (NormalDist().inv_cdf(level) / student(level, freedom(shapes))) ** 2


def plain_rate(hits: int, n: int, confidence: float) -> Json:
    """Return the estimate of a rate whose trials stand alone, without a word on groups."""
    low, high = wilson(hits / n, n, NormalDist().inv_cdf((1 + confidence) / 2))
    return {
        "value": hits / n,
        "low": low,
        "high": high,
        "successes": hits,
        "trials": n,
        "confidence": confidence,
        "method": "wilson",
        "effective_n": n,
        "design_effect": 1,
        "few_groups": False,
        **dict.fromkeys(("groups", "icc", "group_mean")),
    }


def _sum(shapes: Shapes, term: Callable[[int, int], float]) -> float:
    """Add a term up over all groups, from its trials and its hits."""
    return math.fsum(count * term(m, h) for (m, h), count in shapes.items())


def _icc(shapes: Shapes, *, n: int, p: float) -> float | None:
    """Intra-group correlation by analysis of variance (Ridout, Demetrio & Firth 1999)."""
    k = shapes.total()
    if k < 2 or n <= k:
        return None
    between = _sum(shapes, lambda m, h: m * (h / m - p) ** 2) / (k - 1)
    within = _sum(shapes, lambda m, h: h * (1 - h / m)) / (n - k)
    usual = (n - _sum(shapes, lambda m, _: m * m) / n) / (k - 1)
    total = between + (usual - 1) * within
    return (between - within) / total if total > 0 else None


def _design_effect(shapes: Shapes, *, n: int, p: float, icc: float | None) -> float:
    """How much the groups inflate the variance, drawn to its limit where that cannot be seen."""
    k = shapes.total()
    limit = _sum(shapes, lambda m, _: m * m) / n
    linearised = limit
    if 0 < p < 1:
        residual = _sum(shapes, lambda m, h: (h - p * m) ** 2)
        variance = residual * k / (k - 1) / n**2
        linearised = min(max(variance / (p * (1 - p) / n), 1.0), limit)
    correlation = 1.0 if icc is None else min(max(icc, 0.0), 1.0)
    seen = max(linearised, 1 + (limit - 1) * correlation)
    with_hit = sum(count for (_, h), count in shapes.items() if h > 0)
    with_miss = sum(count for (m, h), count in shapes.items() if h < m)
    telling = min(with_hit, with_miss)
    weight = telling / (telling + 2)
    return weight * seen + (1 - weight) * limit


def wilson(p: float, n: float, z: float) -> tuple[float, float]:
    """Return Wilson's limits of a rate."""
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (0.0 if p == 0 else middle - half), (1.0 if p == 1 else middle + half)


@cache  # slices of equally many groups share it
def student(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t above the median, by bisection."""
    low, high = 0.0, 1.0
    while student_tail(high, freedom) > 1 - probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if student_tail(middle, freedom) > 1 - probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def student_tail(t: float, freedom: float) -> float:
    """Return P(T > t) of Student's t: I_x(freedom/2, 1/2) / 2 at x = freedom / (freedom + t^2)."""
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta by its continued fraction (Abramowitz & Stegun 26.5.8)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    value = 0.0
    for m in range(300, 0, -1):  # from the far end, so that no term is divided by zero
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        value = even / (1 + odd / (1 + value))
    first = -(a + b) * x / (a + 1)
    return front / a / (1 + first / (1 + value))


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile, linear between neighbours (Hyndman & Fan type 7)."""
    place = (len(values) - 1) * share
    below = math.floor(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def quantile_bounds(
    values: Sequence[float], share: float, confidence: float
) -> tuple[float | None, float | None]:
    """Return the order statistics that bound a quantile (Conover 1999, section 3.2)."""
    lower, upper = quantile_ranks(len(values), share, confidence)
    return (
        None if lower is None else values[lower - 1],
        None if upper is None else values[upper - 1],
    )


def quantile_ranks(n: int, share: float, confidence: float) -> tuple[int | None, int | None]:
    """Return the ranks of the order statistics that bound a quantile, from 1 on."""
    tail = (1 - confidence) / 2
    lower = _binomial_quantile(tail, n, share)
    upper = _binomial_quantile(1 - tail, n, share) + 1
    return lower if lower >= 1 else None, upper if upper <= n else None


def _binomial_quantile(probability: float, n: int, p: float) -> int:
    # Below, all terms together are under 1e-20 of any probability that is asked for.
    mean = n * p
    first = max(0, math.floor(mean - 12 * math.sqrt(mean * (1 - p)) - 50))
    summed = 0.0
    for k in range(first, n + 1):
        log_choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        summed += math.exp(log_choose + k * math.log(p) + (n - k) * math.log1p(-p))
        if summed >= probability * (1 - 1e-12):
            return k
    return n
