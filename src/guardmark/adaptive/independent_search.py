"""The search without shared memory: each attack learns from its own answers and no other's.

Attacks are then independent but for their groups, which is what intervals over attacks assume. What
is learned from other attacks is left out with it: the diagnosis, what the battery did to them, and
what they were won with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.adaptive.beliefs import BatteryRecord
from guardmark.adaptive.diagnosis import NONE, Diagnosis
from guardmark.adaptive.questions import together
from guardmark.adaptive.search import search, spend_rest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.adaptive.questions import Steps
    from guardmark.adaptive.state import SearchState, Target

UNKNOWN: Final = Diagnosis(label=NONE, findings=(), folds=False)
"""What an attacker without memory knows of a defense beforehand."""


def search_alone(scene: SearchState) -> Steps[list[Target]]:
    """Look for a bypass of every attack blocked at first, each as if it were the only one."""
    found = yield from together(
        [search(scene.alone(place), UNKNOWN, record=BatteryRecord()) for place in scene.blocked]
    )
    return [target for targets in found for target in targets]


def spend_rest_alone(scene: SearchState, targets: Sequence[Target]) -> Steps[None]:
    """Spend on single operators what another round left, each attack by itself."""
    yield from together(
        [
            spend_rest(
                scene.alone(each.position), [each], diagnosis=UNKNOWN, record=BatteryRecord()
            )
            for each in targets
        ]
    )
