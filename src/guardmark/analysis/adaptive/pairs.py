"""Two defenses under the same attacker, attack by attack."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.defense.grouped_rates import grouped_difference
from guardmark.stats.attempts.success_area import area_difference, areas_of
from guardmark.stats.multiplicity import holm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.core.estimate import Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptivePair:
    """Two defenses under the same attacker, over the attacks that both answered.

    Attributes:
        first: Name of one.
        second: Name of the other.
        attacks: Attacks that both answered as they are.
        area: Area of the first minus that of the second; above 0 the first falls sooner. Its
            test is a permutation test over groups.
        outcome: Share fallen by the end of the last round, first minus second. Its test is
            McNemar's, or its form for groups.
        area_adjusted: p of the area, Holm over all pairs of the run, or None without a test.
        outcome_adjusted: The same for the outcome.
    """

    first: str
    second: str
    attacks: int
    area: Difference
    outcome: Difference
    area_adjusted: float | None
    outcome_adjusted: float | None


def compare_adaptive(
    cards: Sequence[AdaptiveCard], *, confidence: float
) -> tuple[AdaptivePair, ...]:
    """Compare every two defenses that the same attacker attacked, attack by attack."""
    found = [
        _pair(one, other, confidence=confidence) for one, other in combinations(list(cards), 2)
    ]
    areas = holm([area.p_value for _, _, area, _ in found])
    outcomes = holm([outcome.p_value for *_, outcome in found])
    return tuple(
        AdaptivePair(
            first=one.name,
            second=other.name,
            attacks=area.pairs,
            area=area,
            outcome=outcome,
            area_adjusted=area_p,
            outcome_adjusted=outcome_p,
        )
        for (one, other, area, outcome), area_p, outcome_p in zip(
            found, areas, outcomes, strict=True
        )
    )


def _pair(
    one: AdaptiveCard, other: AdaptiveCard, *, confidence: float
) -> tuple[AdaptiveCard, AdaptiveCard, Difference, Difference]:
    by_sample = {fate.sample: fate for fate in other.area.fates}
    both = [(fate, by_sample[fate.sample]) for fate in one.area.fates if fate.sample in by_sample]
    groups = [fate.group for fate, _ in both]
    areas = [
        areas_of(
            [fate.adaptive or 0 for fate in side],
            [fate.adaptive is not None for fate in side],
            budget=one.budget,
        )
        for side in ([fate for fate, _ in both], [fate for _, fate in both])
    ]
    outcome = grouped_difference(
        np.array([fate.fell for fate, _ in both], dtype=bool),
        np.array([fate.fell for _, fate in both], dtype=bool),
        groups=groups,
        confidence=confidence,
    )
    area = area_difference(areas[0], areas[1], groups=groups, confidence=confidence)
    return one, other, area, outcome
