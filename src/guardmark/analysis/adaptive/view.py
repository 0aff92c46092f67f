"""The attacks of an adaptive measurement that count, and which of them had got through when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.adaptive.rows import FULL
from guardmark.analysis.defense.grouped_rates import grouped_difference, grouped_rate
from guardmark.core.layers import ADAPTIVE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.rows import AdaptiveRecords
    from guardmark.core.estimate import Difference, Estimate

ROUNDS: Final = ("R0", "R1", "R2", "R3", "R4", "R5")
"""Rounds, in order."""
NEVER: Final = np.iinfo(np.int64).max
"""Number of the first bypass of an attack that held."""


class AttackMask:
    """The attacks of a battle that count, with their groups.

    Args:
        battle: What was tried against one defense.
        attack: Label of each sample.
        groups: Group of each sample.
        confidence: Nominal coverage.
    """

    def __init__(
        self,
        battle: AdaptiveRecords,
        attack: NDArray[np.bool_],
        groups: NDArray[np.int32],
        confidence: float,
    ) -> None:
        self.battle = battle
        self.confidence = confidence
        self.places = sorted(p for p in battle.baseline if attack[p])
        self.groups = groups[self.places]
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
