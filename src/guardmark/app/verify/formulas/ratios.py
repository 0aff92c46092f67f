"""Precision, F1 and their kin, and what a decision is worth where attacks are rare: recounted."""

from __future__ import annotations

import math
from collections.abc import Hashable
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.formulas.drawing import Strata, estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.app.verify.formulas.drawing import Counts, Figure

Json = dict[str, Any]
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


_FIGURES: Final[dict[str, tuple[Figure, float, float]]] = {
    "precision": (_precision, 0.0, 1.0),
    "f1": (_f1, 0.0, 1.0),
    "balanced_error": (_balanced_error, 0.0, 1.0),
    "youden": (_youden, -1.0, 1.0),
    "matthews_correlation": (_correlation, -1.0, 1.0),
}


def ratios(
    cells: Iterable[Cell], manifest: Json, *, is_grouped: bool, names: Sequence[str] = ()
) -> dict[str, Json]:
    """Return figures that are no plain rates, with their drawn limits."""
    replicates = manifest.get("settings", {}).get("stats", {}).get("replicates", 2000)
    return estimate(
        _strata(cells, is_grouped=is_grouped),
        {name: _FIGURES[name] for name in names or _FIGURES},
        seed=manifest["seed"],
        replicates=replicates,
        confidence=float(manifest["confidence"]),
    )


_ONE: Final[tuple[Counts, ...]] = tuple(
    tuple(float(place == at) for at in range(4)) for place in range(4)
)
"""The counts of a single sample, by its place among them."""


def _strata(cells: Iterable[Cell], *, is_grouped: bool) -> Strata:
    """Sort groups by whether they hold attacks, benign samples, or both; these come last."""
    counts: dict[object, list[int]] = {}
    alone: tuple[list[Counts], list[Counts]] = ([], [])
    for group, is_attack, is_blocked in cells:
        place = 2 * (not is_attack) + (not is_blocked)
        if is_grouped:
            counts.setdefault(group, [0, 0, 0, 0])[place] += 1
        else:
            alone[not is_attack].append(_ONE[place])
    if not is_grouped:
        return Strata([sorted(side, reverse=True) for side in alone], in_order=True)
    sides: tuple[list[Counts], ...] = ([], [], [])
    for hits, missed, alarms, passed in counts.values():
        side = 2 if hits + missed and alarms + passed else int(alarms + passed > 0)
        sides[side].append((hits, missed, alarms, passed))
    return Strata(sides)


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
