"""What an attacker model came to: in words, and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.adaptive.attacker_controls import critic_json, model_spending_json, twin_json
from guardmark.reports.encode import Json, estimate_json

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.attacker import AttackerCard


def attacker_json(attacker: AttackerCard | None) -> Json | None:
    """Encode the figures of an attacker model."""
    if attacker is None:
        return None
    return {
        "model": attacker.model,
        "judge": attacker.judge,
        "is_same_model": attacker.is_same_model,
        "tau": attacker.tau,
        "calibration": attacker.calibration,
        **{name: estimate_json(rate) for name, rate in attacker.rates.items()},
        **attacker.counts,
        "calls_left": attacker.calls_left,
        "strategies": [
            {
                "name": each.name,
                "candidates": each.candidates,
                "passed": estimate_json(each.passed),
            }
            for each in attacker.strategies
        ],
        "spending": {name: model_spending_json(each) for name, each in attacker.spending.items()},
        "critic": critic_json(attacker.critic),
        "twin": twin_json(attacker.twin),
    }
