"""Which attacks count, when each got through, and what following a gradient adds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.adaptive.rows import FULL, STRICT
from guardmark.analysis.defense.counts import grouped_difference, grouped_rate
from guardmark.stats.attempts.success_area import success_area
from guardmark.store.layers import ADAPTIVE, BLIND, GRADIENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.rows import AdaptiveRecords, AttackHistory
    from guardmark.analysis.defense.counts import SampleRates
    from guardmark.core.estimate import Difference, Estimate, Ratio


ROUNDS: Final = ("R0", "R1", "R2", "R3", "R4", "R5")
"""Rounds, in order."""
NEVER: Final = np.iinfo(np.int64).max
"""Number of the first bypass of an attack that held."""


class AttackMask:
    """The attacks of a measurement that count, with their groups."""

    def __init__(
        self, battle: AdaptiveRecords, attack: NDArray[np.bool_], rates: SampleRates
    ) -> None:
        self.battle = battle
        self.rates, self.confidence = rates, rates.confidence
        self.places = sorted(p for p in battle.baseline if attack[p])
        self.groups = rates.groups[self.places]
        self.static = np.array([battle.baseline[p] for p in self.places], dtype=bool)
        self._firsts: dict[tuple[str, frozenset[str]], NDArray[np.int64]] = {}
        self._rounds: dict[frozenset[str], NDArray[np.int64]] = {}

    def rate(self, hits: NDArray[np.bool_]) -> Estimate:
        """Estimate the rate of a mark over the attacks."""
        return grouped_rate(hits, self.groups, confidence=self.confidence)

    def difference(self, first: NDArray[np.bool_], second: NDArray[np.bool_]) -> Difference:
        """Estimate the difference of two marks on the same attacks."""
        return grouped_difference(first, second, groups=self.groups, confidence=self.confidence)

    def firsts(self, arm: str, tiers: frozenset[str] = FULL) -> NDArray[np.int64]:
        """Return the number of each attack's first bypass by search, in the order of places."""
        if (arm, tiers) not in self._firsts:
            stories = self.battle.stories[arm]
            told = (stories.get(place) for place in self.places)
            found = [None if story is None else story.first(tiers) for story in told]
            numbers = np.array([NEVER if f is None else f for f in found], dtype=np.int64)
            self._firsts[arm, tiers] = np.where(self.static, 0, numbers)
        return self._firsts[arm, tiers]

    def by(self, arm: str, k: int, tiers: frozenset[str] = FULL) -> NDArray[np.bool_]:
        """Mark attacks that got through as they are or by the k-th try of an arm."""
        marks: NDArray[np.bool_] = self.firsts(arm, tiers) <= k
        return marks

    def fallen(self, until: str, tiers: frozenset[str]) -> NDArray[np.bool_]:
        """Mark attacks that had got through by the end of a round."""
        if tiers not in self._rounds:
            found = [self._round(place, tiers) for place in self.places]
            self._rounds[tiers] = np.where(self.static, 0, np.array(found, dtype=np.int64))
        marks: NDArray[np.bool_] = self._rounds[tiers] <= ROUNDS.index(until)
        return marks

    def _round(self, place: int, tiers: frozenset[str]) -> int:
        """Return the number of the first round that brought an attack through."""
        fixed, story = self.battle.battery.get(place), self.battle.stories[ADAPTIVE].get(place)
        if fixed is not None and fixed.first(tiers) is not None:
            return 1
        tries = () if story is None else story.tries
        rounds = (ROUNDS.index(t.round) for t in tries if story and story.holds(t, tiers))
        return min(rounds, default=len(ROUNDS))

    def blind_counts(self) -> list[tuple[int, int]]:
        """Return tries and wins of each attack by the blind arm; one that passes always does."""
        stories, budget = self.battle.stories[BLIND], self.battle.budget
        counted = []
        for place, is_static in zip(self.places, self.static.tolist(), strict=True):
            story = stories.get(place)
            tried = (0, 0) if story is None else (len(story.tries), story.wins(budget))
            counted.append((budget, budget) if is_static else tried)
        return counted


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCard:
    """The arm with gradient access, beside the arms that only see answers.

    Attributes:
        attack: Name and version of what follows the gradient.
        strict: Share of all attacks through as they are or by variants of tiers V0 and V1.
        full: The same by all proved tiers.
        gain: Full minus the attacks that pass as they are, paired.
        unproved: Attacks that got through by unproved variants (V4) alone; in no rate.
        tries: Variants the defense answered.
    """

    attack: str
    strict: Estimate
    full: Estimate
    gain: Difference
    unproved: int
    tries: int


def measure_gradient(view: AttackMask) -> GradientCard | None:
    """Compute what following the gradient came to."""
    tries = sum(len(story.tries) for story in view.battle.stories[GRADIENT].values())
    if not tries:
        return None
    strict, full, any_tier = (
        view.firsts(GRADIENT, tiers) < NEVER for tiers in (STRICT, FULL, FULL | {"V4"})
    )
    return GradientCard(
        attack=str(view.battle.settings.get("gradient", "")),
        strict=view.rate(strict),
        full=view.rate(full),
        gain=view.difference(full, view.static),
        unproved=int((any_tier & ~full).sum()),
        tries=tries,
    )
