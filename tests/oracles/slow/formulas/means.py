"""Means over grouped rows with Student's limits, from their formulas, as a slow reference."""

from __future__ import annotations

import math
from collections import Counter
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from tests.oracles.slow.formulas.rates import freedom, student, wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, Any]


def share(values: Sequence[float], groups: Sequence[str], confidence: float) -> Json:
    """Return the mean of figures in [0, 1] with its limits."""
    said = _plain(values, groups, confidence)
    n, k, mean = len(values), said["groups"], said["value"]
    said["limits"] = "wilson at effective rows"
    if mean is None or k < 2:
        return said
    sizes, sums = Counter(groups), dict.fromkeys(groups, 0.0)
    for value, group in zip(values, groups, strict=True):
        sums[group] += value
    is_marks = all(value in {0.0, 1.0} for value in values)
    effect = most = sum(m * m for m in sizes.values()) / n
    if 0 < mean < 1:
        spread = math.fsum((sums[group] - mean * m) ** 2 for group, m in sizes.items())
        seen = max(spread / n / (mean * (1 - mean)) * k / (k - 1), float(is_marks))
        with_hit = sum(each > 0 for each in sums.values())
        telling = min(with_hit, sum(sums[group] < m for group, m in sizes.items()))
        weight = telling / (telling + 2)
        effect = weight * seen + (1 - weight) * max(most, seen)
    level = (1 + confidence) / 2
    quantile = student(level, freedom(Counter((m, 0) for m in sizes.values())))
    if is_marks and k == n:
        effect, quantile = 1.0, NormalDist().inv_cdf(level)
    low, high = wilson(mean, n / effect, quantile)
    return said | {"low": min(low, mean), "high": max(high, mean)}


def gap(values: Sequence[float], groups: Sequence[str], confidence: float) -> Json:
    """Return the mean of paired differences of figures in [0, 1] with its limits."""
    said = _plain(values, groups, confidence)
    if said["groups"] < 2:
        return said
    return said | _within(said, _half(values, groups, confidence), least=-1.0)


def _plain(values: Sequence[float], groups: Sequence[str], confidence: float) -> Json:
    return {
        "value": math.fsum(values) / len(values) if values else None,
        "low": None,
        "high": None,
        "confidence": confidence,
        "groups": len(set(groups)),
        "limits": "t",
    }


def _within(said: Json, half: float | None, *, least: float) -> Json:
    if half is None:
        return {}
    return {"low": max(least, said["value"] - half), "high": min(1.0, said["value"] + half)}


def _half(values: Sequence[float], groups: Sequence[str], confidence: float) -> float | None:
    n, residuals = len(values), dict.fromkeys(groups, 0.0)
    mean, k = math.fsum(values) / n, len(residuals)
    for value, group in zip(values, groups, strict=True):
        residuals[group] += value - mean
    spread = math.sqrt(math.fsum(each**2 for each in residuals.values()) * k / (k - 1)) / n
    return (
        student((1 + confidence) / 2, freedom(Counter((m, 0) for m in Counter(groups).values())))
        * spread
        if spread >= 1e-12
        else None
    )
