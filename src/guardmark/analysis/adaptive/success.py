"""Which attacks count, when each got through, and what following a gradient adds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from guardmark.analysis.adaptive.rows import FULL, STRICT
from guardmark.analysis.defense.counts import grouped_difference, grouped_rate
from guardmark.stats.attempts.success_area import success_area
from guardmark.store.layers import ADAPTIVE, BLIND, GRADIENT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.rows import AdaptiveRecords
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

    @property
    def rounds(self) -> set[str]:
        """The rounds of the search that some attack came to."""
        return {t.round for story in self.battle.stories[ADAPTIVE].values() for t in story.tries}

    def firsts(self, arm: str, tiers: frozenset[str] = FULL) -> NDArray[np.int64]:
        """Return the number of each attack's first bypass by search, in the order of places."""
        if (arm, tiers) not in self._firsts:
            stories = self.battle.stories[arm]
            firsts = [stories[p].first(tiers) if p in stories else None for p in self.places]
            numbers = np.array([NEVER if f is None else f for f in firsts], dtype=np.int64)
            self._firsts[arm, tiers] = np.where(self.static, 0, numbers)
        return self._firsts[arm, tiers]

    def by(self, arm: str, k: int, tiers: frozenset[str] = FULL) -> NDArray[np.bool_]:
        """Mark attacks that got through as they are or by the k-th try of an arm."""
        marks: NDArray[np.bool_] = self.firsts(arm, tiers) <= k
        return marks

    def fallen(self, until: str, tiers: frozenset[str]) -> NDArray[np.bool_]:
        """Mark attacks that had got through by the end of a round."""
        if tiers not in self._rounds:
            rounds = np.array([self._round(place, tiers) for place in self.places], dtype=np.int64)
            self._rounds[tiers] = np.where(self.static, 0, rounds)
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


class SearchTimes:
    """Search tries of each attack that was blocked at first, up to its first bypass."""

    def __init__(self, view: AttackMask) -> None:
        stories = sorted(view.battle.stories[ADAPTIVE].items())
        firsts = [story.first() for _, story in stories]
        self.fell = np.array([first is not None for first in firsts], dtype=bool)
        self.times = np.array(
            [first or len(story.tries) for first, (_, story) in zip(firsts, stories, strict=True)],
            dtype=float,
        )
        self.groups = view.rates.groups[np.array([place for place, _ in stories], dtype=np.int64)]


class SurvivalTime(NamedTuple):
    """What one attack came to: its first try, 0 for one that passes as it is, None if it held.

    Whether it fell is counted by the end of the last round, fixed list included.
    """

    sample: int
    group: int
    adaptive: int | None
    fell: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaCard:
    """The area under ASR@k on log k, from one try to the budget."""

    adaptive: Ratio  # Of the adaptive arm; lower is better for the defense.
    blind: Ratio  # Of the blind arm.
    # Attacks that held with fewer answered tries than the budget, for want of variants or of
    # answers; they count as held, so the area may be too low by them.
    given_up: int
    # What each attack came to, in the order of the samples.
    fates: tuple[SurvivalTime, ...] = field(metadata={"json": False})


def measure_area(view: AttackMask, *, last: NDArray[np.bool_]) -> AreaCard:
    """Estimate the areas of both arms; the last round's marks say what fell at all."""
    budget, stories = view.battle.budget, view.battle.stories[ADAPTIVE].values()

    def area(arm: str) -> Ratio:
        firsts = view.firsts(arm)
        reached = firsts < NEVER
        tries = np.where(reached, firsts, 0)
        return success_area(
            tries, reached, budget=budget, groups=view.groups, confidence=view.confidence
        )

    firsts = [None if first == NEVER else first for first in view.firsts(ADAPTIVE).tolist()]
    fates = zip(view.places, view.groups.tolist(), firsts, last.tolist(), strict=True)
    return AreaCard(
        adaptive=area(ADAPTIVE),
        blind=area(BLIND),
        given_up=sum(each.first() is None and len(each.tries) < budget for each in stories),
        fates=tuple(SurvivalTime(*fate) for fate in fates),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCard:
    """The arm with gradient access, beside the arms that only see answers."""

    attack: str  # Name and version of what follows the gradient.
    strict: Estimate  # Share of all attacks through as they are or by variants of tiers V0 and V1.
    full: Estimate  # The same by all proved tiers.
    gain: Difference  # Full minus the attacks that pass as they are, paired.
    unproved: int  # Attacks that got through by unproved variants (V4) alone; in no rate.
    tries: int  # Variants the defense answered.


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
