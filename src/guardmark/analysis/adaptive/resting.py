"""Which attacks fell to nothing better than somebody's word that a text asks for the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.analysis.adaptive.rows import FULL
from guardmark.core.layers import ADAPTIVE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.analysis.adaptive.rows import AdaptiveRecords, Try

BY_RULE: Final = frozenset({"V0", "V1", "V2"})
"""Tiers that a rule proves."""
BY_WORD: Final = FULL - BY_RULE
"""The other proved tiers: they rest on a judge or on a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BypassProof:
    """How one attack got through, if it did.

    Attributes:
        by_rule: First round by whose end a variant that a rule proves had; 0 as it is, None never.
        by_word: First bypass that rests on a judge or a table, or None.
    """

    by_rule: int | None
    by_word: Try | None

    def is_full(self, until: int) -> bool:
        """Tell whether it had got through, at any counted tier, by the end of a round."""
        is_by_word = self.by_word is not None and _round(self.by_word) <= until
        return self._is_by_rule(until) or is_by_word

    def is_resting(self, until: int) -> bool:
        """Tell whether it had got through by then, but by somebody's word alone."""
        return self.is_full(until) and not self._is_by_rule(until)

    def _is_by_rule(self, until: int) -> bool:
        return self.by_rule is not None and self.by_rule <= until


def read_falls(battle: AdaptiveRecords, is_attack: Sequence[bool]) -> Mapping[int, BypassProof]:
    """Tell how each attack that was answered at first got through."""
    return {place: _fall(battle, place) for place in sorted(battle.baseline) if is_attack[place]}


def resting_bypasses(falls: Mapping[int, BypassProof], until: int) -> dict[int, Try]:
    """Return the bypasses that the rate rests on by somebody's word."""
    return {
        place: fall.by_word
        for place, fall in falls.items()
        if fall.by_word is not None and fall.is_resting(until)
    }


def _fall(battle: AdaptiveRecords, place: int) -> BypassProof:
    if battle.baseline[place]:
        return BypassProof(by_rule=0, by_word=None)
    by_rule: list[int] = []
    by_word: list[Try] = []
    for stories in (battle.battery, battle.stories[ADAPTIVE]):
        if (story := stories.get(place)) is None:
            continue
        by_rule += [_round(each) for each in story.tries if story.holds(each, BY_RULE)]
        by_word += [each for each in story.tries if story.holds(each, BY_WORD)]
    return BypassProof(by_rule=min(by_rule, default=None), by_word=next(iter(by_word), None))


def _round(each: Try) -> int:
    return int(each.round.removeprefix("R"))
