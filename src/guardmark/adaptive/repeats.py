"""The search carried out again with another seed, which shows what was its luck."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guardmark.adaptive.beliefs import BatteryRecord
from guardmark.adaptive.independent_search import UNKNOWN, search_alone
from guardmark.adaptive.rounds import run_blind, run_null
from guardmark.adaptive.search import search
from guardmark.core.layers import BLIND, NULL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.adaptive.defense_asker import DefenseAsker
    from guardmark.adaptive.diagnosis import Diagnosis
    from guardmark.adaptive.questions import Steps
    from guardmark.adaptive.state import SearchState, Target
    from guardmark.core.outcome import Decision


@dataclass(slots=True, kw_only=True)
class RepeatStart:
    """What is known of a defense before the search, whatever the seed."""

    diagnosis: Diagnosis = UNKNOWN
    record: BatteryRecord = field(default_factory=BatteryRecord)
    answers: Mapping[tuple[int, str], Decision] = field(default_factory=dict)


def search_by_rules(scene: SearchState, start: RepeatStart) -> Steps[list[Target]]:
    """Carry out rounds 2 to 4."""
    if scene.shares_memory:
        return search(scene, start.diagnosis, record=start.record)
    return search_alone(scene)


async def repeat_search(
    scene: SearchState, defenses: DefenseAsker, start: RepeatStart, *, turn: int
) -> None:
    """Carry out rounds 2 to 4 and their control arms with another seed and a new memory.

    What was asked before the search is known to it, as it was at the first seed; what other
    seeds asked is not, so that each pays for itself.
    """
    own = scene.repeated(turn)
    defenses.begin(own.layer(), start.answers)
    await defenses.drive(search_by_rules(own, start))
    defenses.forget(own.layer())
    await defenses.drive(run_null(own))
    defenses.forget(own.layer(NULL))
    await defenses.drive(run_blind(own))
    defenses.forget(own.layer(BLIND))
    defenses.flush()
