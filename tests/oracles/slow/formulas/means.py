"""Means over grouped rows with Student's limits, from their formulas, as a slow reference."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from tests.oracles.slow.formulas.rates import student, wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, Any]


def share(values: Sequence[float], groups: Sequence[str], confidence: float) -> Json:
    """Return the mean of figures in [0, 1] with its limits."""
    said = _plain(values, groups, confidence)
    n, k, mean = len(values), said["groups"], said["value"]
    if mean is None or k < 2:
        return said
    if mean in {0.0, 1.0} or (n == k and all(value in {0.0, 1.0} for value in values)):
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        low, high = wilson(round(mean * k) / k, k, z)
        return said | {"low": low, "high": high, "limits": "wilson over groups"}
    return said | _within(said, _half(values, groups, confidence), least=0.0)


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
    return student((1 + confidence) / 2, k - 1) * spread if spread >= 1e-12 else None
