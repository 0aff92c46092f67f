"""Precision, F1 and their kin, and what a decision is worth where attacks are rare: recounted."""

from __future__ import annotations

import math
from collections.abc import Hashable
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


Json = dict[str, Any]
Counts = tuple[int, int, int, int]
Figure = "Callable[[Counts], float | None]"
Cell = tuple[Hashable, bool, bool]
"""Group of a sample that counts, whether it is an attack, and whether it was blocked."""


def _precision(counts: Counts) -> float | None:
    hits, _, alarms, _ = counts
    return hits / (hits + alarms) if hits + alarms else None


def _f1(counts: Counts) -> float | None:
    hits, missed, alarms, _ = counts
    whole = 2.0 * hits + missed + alarms
    return 2.0 * hits / whole if whole else None


def _balanced_error(counts: Counts) -> float | None:
    hits, missed, alarms, passed = counts
    if not (hits + missed and alarms + passed):
        return None
    return (missed / (hits + missed) + alarms / (alarms + passed)) / 2.0


def _youden(counts: Counts) -> float | None:
    error = _balanced_error(counts)
    return None if error is None else 1.0 - 2.0 * error


def _correlation(counts: Counts) -> float | None:
    hits, missed, alarms, passed = counts
    whole = (hits + missed) * (alarms + passed) * (hits + alarms) * (missed + passed)
    return (hits * passed - missed * alarms) / math.sqrt(whole) if whole else None


_FIGURES: Final[dict[str, Figure]] = {
    "precision": _precision,
    "f1": _f1,
    "balanced_error": _balanced_error,
    "youden": _youden,
    "matthews_correlation": _correlation,
}


def ratios(cells: Iterable[Cell], *, names: Sequence[str] = ()) -> dict[str, Json]:
    """Return figures that are no plain rates; their limits are drawn, and left to `laws`."""
    counts = [0, 0, 0, 0]
    for _, is_attack, is_blocked in cells:
        counts[2 * (not is_attack) + (not is_blocked)] += 1
    hits, missed, alarms, passed = counts
    return {
        name: {"value": _FIGURES[name]((hits, missed, alarms, passed))}
        for name in names or _FIGURES
    }


def predictive_values(
    blocked: tuple[int, int],
    asked: tuple[int, int],
    *,
    shares: Sequence[float],
    confidence: float,
) -> list[Json]:
    """Return what a decision is worth at each stated share of attacks.

    Bayes' rule on the raw rates, with the logit limits of Mercaldo, Lau & Zhou (2007); adjusted
    ones where one of the four outcomes never occurred.
    """
    said = []
    for share in shares:
        if not 0 < share < 1:
            continue
        odds = share / (1 - share)
        attacks, benign = zip(blocked, asked, strict=True)
        allowed = [(n - x, n) for x, n in (attacks, benign)]
        values = {
            "positive": _worth(attacks, benign, odds=odds, confidence=confidence),
            "negative": _worth(allowed[1], allowed[0], odds=1 / odds, confidence=confidence),
        }
        said.append({"prevalence": share, **values})
    return said


def _worth(
    right: tuple[int, int], wrong: tuple[int, int], *, odds: float, confidence: float
) -> Json:
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    (x, n), (y, m) = right, wrong
    said: Json = {
        "value": None,
        "low": None,
        "high": None,
        "trials": n + m,
        "confidence": confidence,
        "method": "mercaldo logit",
        "groups": None,
        "replicates": 0,
    }
    if not n or not m:
        return said
    extra = z * z if x in {0, n} or y in {0, m} else 0.0
    said["method"] = "mercaldo adjusted logit" if extra else "mercaldo logit"
    above, below = odds * x / n, y / m
    if not above + below:
        return said
    p, q = (x + extra / 2) / (n + extra), (y + extra / 2) / (m + extra)
    centre = math.log(odds * p / q)
    half = z * math.sqrt((1 - p) / p / (n + extra) + (1 - q) / q / (m + extra))
    low, high = (1 / (1 + math.exp(-(centre + side * half))) for side in (-1, 1))
    return {**said, "value": above / (above + below), "low": low, "high": high}
