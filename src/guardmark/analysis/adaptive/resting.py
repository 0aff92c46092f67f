"""Which attacks fell to nothing better than somebody's word that a text asks for the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.analysis.adaptive.rows import ADAPTIVE, FULL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.analysis.adaptive.rows import Battle, Try

PROVED: Final = frozenset({"V0", "V1", "V2"})
"""Tiers that a rule proves; the rest of the proved tiers rest on a judge or on a table."""
JUDGED: Final = FULL - PROVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """How one attack got through, if it did.

    Attributes:
        proved: First round by whose end a variant of a proved tier had; 0 as it is, None never.
        judged: First bypass that rests on a judgement, or None.
    """

    proved: int | None
    judged: Try | None

    def is_full(self, until: int) -> bool:
        """Tell whether it had got through, at any counted tier, by the end of a round."""
        is_judged = self.judged is not None and _round(self.judged) <= until
        return self._is_proved(until) or is_judged

    def is_resting(self, until: int) -> bool:
        """Tell whether it had got through by then, but by judged tiers alone."""
        return self.is_full(until) and not self._is_proved(until)

    def _is_proved(self, until: int) -> bool:
        return self.proved is not None and self.proved <= until


def read_falls(battle: Battle, is_attack: Sequence[bool]) -> Mapping[int, Fall]:
    """Tell how each attack that was answered at first got through.

    Args:
        battle: What was tried.
        is_attack: Label of every sample, by position.

    Returns:
        Position to its fall, in order.
    """
    return {place: _fall(battle, place) for place in sorted(battle.baseline) if is_attack[place]}


def resting_bypasses(falls: Mapping[int, Fall], until: int) -> dict[int, Try]:
    """Return the bypasses that the rate rests on by somebody's word.

    Args:
        falls: From `read_falls`.
        until: Number of the last round that counts.

    Returns:
        Position of each attack that fell to judged tiers alone, to its first bypass.
    """
    return {
        place: fall.judged
        for place, fall in falls.items()
        if fall.judged is not None and fall.is_resting(until)
    }


def _fall(battle: Battle, place: int) -> Fall:
    if battle.baseline[place]:
        return Fall(proved=0, judged=None)
    proved: list[int] = []
    judged: list[Try] = []
    for stories in (battle.battery, battle.stories[ADAPTIVE]):
        if (story := stories.get(place)) is None:
            continue
        proved += [_round(each) for each in story.tries if story.holds(each, PROVED)]
        judged += [each for each in story.tries if story.holds(each, JUDGED)]
    return Fall(proved=min(proved, default=None), judged=next(iter(judged), None))


def _round(each: Try) -> int:
    return int(each.round.removeprefix("R"))
