"""The whole curve of an attacker's success as one number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guardmark.core.layers import ADAPTIVE, BLIND
from guardmark.stats.attempts.success_area import success_area

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from guardmark.analysis.adaptive.rows import AttackHistory
    from guardmark.core.estimate import Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalTime:
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
    fates: tuple[SurvivalTime, ...] = field(metadata={"json": False})


def read_fates(
    places: Sequence[int],
    groups: Iterable[int],
    *,
    static: Sequence[bool],
    fell: Sequence[bool],
    stories: Mapping[str, Mapping[int, AttackHistory]],
) -> tuple[SurvivalTime, ...]:
    """Gather what each attack came to."""

    def first(arm: str, place: int, *, is_static: bool) -> int | None:
        if is_static:
            return 0
        story = stories[arm].get(place)
        return None if story is None else story.first()

    return tuple(
        SurvivalTime(
            sample=place,
            group=int(group),
            adaptive=first(ADAPTIVE, place, is_static=is_static),
            blind=first(BLIND, place, is_static=is_static),
            fell=has_fallen,
        )
        for place, group, is_static, has_fallen in zip(places, groups, static, fell, strict=True)
    )


def measure_area(
    fates: Sequence[SurvivalTime], *, budget: int, given_up: int, confidence: float
) -> AreaCard:
    """Estimate the areas of both arms."""
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
