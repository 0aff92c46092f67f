"""Which of several defenses another one beats, and in what order a reader should meet them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.defense.scorecard import RatePair, Scorecard


def find_dominated(rates: Mapping[str, RatePair | Scorecard]) -> dict[str, str]:
    """Return each name whose two error rates another one undercuts, with the best such other.

    By the points alone: lower or equal on both sides, and lower on one. Whether the data can tell
    the two apart is for a comparison to say.
    """
    points: dict[str, tuple[float, float]] = {}
    for name, pair in rates.items():
        through, alarms = pair.attack_success_rate.value, pair.false_positive_rate.value
        if through is not None and alarms is not None:
            points[name] = (through, alarms)
    dominated: dict[str, str] = {}
    for name, (through, alarms) in points.items():
        better = []
        for other, theirs in points.items():
            if theirs != (through, alarms) and theirs[0] <= through and theirs[1] <= alarms:
                better.append((sum(theirs), other))
        if better:
            dominated[name] = min(better)[1]
    return dominated


def by_merit(defenses: Sequence[DefenseAnalysis]) -> tuple[DefenseAnalysis, ...]:
    """Sort: undercut by none on both sides, then by balanced error; baselines last."""
    candidates = {}
    for defense in defenses:
        if not defense.is_baseline:
            candidates[defense.name] = defense.card
    dominated = find_dominated(candidates)

    def key(defense: DefenseAnalysis) -> tuple[bool, bool, float]:
        error = defense.card.ratios.balanced_error.value
        if error is None:
            error = math.inf
        return defense.is_baseline, defense.name in dominated, error

    return tuple(sorted(defenses, key=key))
