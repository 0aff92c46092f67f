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
    points = {
        name: (pair.attack_success_rate.value, pair.false_positive_rate.value)
        for name, pair in rates.items()
    }
    known = {
        name: (through, alarms)
        for name, (through, alarms) in points.items()
        if through is not None and alarms is not None
    }
    dominated: dict[str, str] = {}
    for name, mine in known.items():
        better = [
            (sum(theirs), other)
            for other, theirs in known.items()
            if theirs != mine and theirs[0] <= mine[0] and theirs[1] <= mine[1]
        ]
        if better:
            dominated[name] = min(better)[1]
    return dominated


def by_merit(defenses: Sequence[DefenseAnalysis]) -> tuple[DefenseAnalysis, ...]:
    """Sort: undercut by none on both sides, then by balanced error; baselines last."""
    candidates = {each.name: each.card for each in defenses if not each.is_baseline}
    dominated = find_dominated(candidates)

    def key(defense: DefenseAnalysis) -> tuple[bool, bool, float]:
        error = defense.card.ratios.balanced_error.value
        return defense.is_baseline, defense.name in dominated, math.inf if error is None else error

    return tuple(sorted(defenses, key=key))
