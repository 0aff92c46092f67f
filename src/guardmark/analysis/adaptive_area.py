"""The whole curve of an attacker's success as one number, and two defenses by it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.adaptive_rows import ADAPTIVE, BLIND
from guardmark.analysis.grouped_rates import grouped_difference
from guardmark.stats.multiplicity import holm
from guardmark.stats.success_area import area_difference, areas_of, success_area

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from guardmark.analysis.adaptive import AdaptiveCard
    from guardmark.analysis.adaptive_rows import Story
    from guardmark.core.estimate import Difference, Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What one attack came to.

    Attributes:
        sample: Position of the sample.
        group: Number of its group.
        adaptive: First search try of the adaptive arm that got through, 0 for an attack that
            passes as it is, None for one that held.
        blind: The same for the blind arm.
        fell: Whether it had got through by the end of the last round, fixed list included.
    """

    sample: int
    group: int
    adaptive: int | None
    blind: int | None
    fell: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaCard:
    """The area under ASR@k on log k, from one try to the budget.

    Attributes:
        adaptive: Of the adaptive arm; lower is better for the defense.
        blind: Of the blind arm.
        given_up: Attacks that held with fewer answered tries than the budget, for want of
            variants or of answers; they count as held, so the area may be too low by them.
        fates: What each attack came to, in the order of the samples.
    """

    adaptive: Ratio
    blind: Ratio
    given_up: int
    fates: tuple[Fate, ...]


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


def read_fates(
    places: Sequence[int],
    groups: Iterable[int],
    *,
    static: Sequence[bool],
    fell: Sequence[bool],
    stories: Mapping[str, Mapping[int, Story]],
) -> tuple[Fate, ...]:
    """Gather what each attack came to.

    Args:
        places: Positions of the attacks that were answered as they are.
        groups: Group of each.
        static: Whether each passed as it is.
        fell: Whether each had got through by the end of the last round.
        stories: Arm to position to what came of it.
    """

    def first(arm: str, place: int, *, is_static: bool) -> int | None:
        if is_static:
            return 0
        story = stories[arm].get(place)
        return None if story is None else story.first()

    return tuple(
        Fate(
            sample=place,
            group=int(group),
            adaptive=first(ADAPTIVE, place, is_static=is_static),
            blind=first(BLIND, place, is_static=is_static),
            fell=has_fallen,
        )
        for place, group, is_static, has_fallen in zip(places, groups, static, fell, strict=True)
    )


def measure_area(
    fates: Sequence[Fate], *, budget: int, given_up: int, confidence: float
) -> AreaCard:
    """Estimate the areas of both arms.

    Args:
        fates: What each attack came to.
        budget: Search calls an attack was worth.
        given_up: Attacks that held with fewer answered tries than that.
        confidence: Nominal coverage.
    """
    groups = [fate.group for fate in fates]

    def area(firsts: Sequence[int | None]) -> Ratio:
        reached = [first is not None for first in firsts]
        tries = [first or 0 for first in firsts]
        return success_area(tries, reached, budget=budget, groups=groups, confidence=confidence)

    return AreaCard(
        adaptive=area([fate.adaptive for fate in fates]),
        blind=area([fate.blind for fate in fates]),
        given_up=given_up,
        fates=tuple(fates),
    )


def compare_adaptive(
    cards: Sequence[AdaptiveCard], *, confidence: float
) -> tuple[AdaptivePair, ...]:
    """Compare every two defenses that the same attacker attacked, attack by attack.

    Args:
        cards: One for each defense of one run.
        confidence: Nominal coverage.

    Returns:
        A pair for each two, in the order of the cards; empty with fewer than two. Both families
        of tests, areas and outcomes, are adjusted by Holm over the pairs.
    """
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
