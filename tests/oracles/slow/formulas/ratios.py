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
    has_both = hits + missed and alarms + passed
    return {
        name: {"value": _FIGURES[name]((hits, missed, alarms, passed)) if has_both else None}
        for name in names or _FIGURES
    }


def predictive_values(
    blocked: tuple[int, int],
    asked: tuple[int, int],
    *,
    worth: tuple[float | None, float | None],
    shares: Sequence[float],
    confidence: float,
) -> list[Json]:
    """Return what a decision is worth at each stated share of attacks.

    Bayes' rule on the raw rates, with the logit limits of Mercaldo, Lau & Zhou (2007) at what
    rows are worth; a half is added to each outcome where one of the four never occurred.
    """
    said = []
    for share in shares:
        if not 0 < share < 1:
            continue
        odds = share / (1 - share)
        attacks, benign = zip(blocked, asked, worth, strict=True)
        allowed = [(n - x, n, m) for x, n, m in (attacks, benign)]
        values = {
            "positive": _worth(attacks, benign, odds=odds, confidence=confidence),
            "negative": _worth(allowed[1], allowed[0], odds=1 / odds, confidence=confidence),
        }
        said.append({"prevalence": share, **values})
    return said


def _worth(
    right: tuple[int, int, float | None],
    wrong: tuple[int, int, float | None],
    *,
    odds: float,
    confidence: float,
) -> Json:
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    (x, n, of_right), (y, m, of_wrong) = right, wrong
    said: Json = {
        "value": None,
        "low": None,
        "high": None,
        "trials": n + m,
        "confidence": confidence,
        "method": "mercaldo logit at effective counts",
        "groups": None,
        "replicates": 0,
    }
    if not n or not m:
        return said
    above, below = odds * x / n, y / m
    if not above + below:
        return said
    said["value"] = value = above / (above + below)
    if of_right is None or of_wrong is None:
        return said
    extra = 0.5 if x in {0, n} or y in {0, m} else 0.0
    p = (x / n * of_right + extra) / (of_right + 2 * extra)
    q = (y / m * of_wrong + extra) / (of_wrong + 2 * extra)
    centre = math.log(odds * p / q)
    variance = (1 - p) / p / (of_right + 2 * extra) + (1 - q) / q / (of_wrong + 2 * extra)
    low, high = (1 / (1 + math.exp(-(centre + side * z * math.sqrt(variance)))) for side in (-1, 1))
    return {**said, "low": min(low, value), "high": max(high, value)}
