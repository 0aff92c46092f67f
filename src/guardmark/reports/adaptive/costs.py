"""What a bypass costs the attacker: as a table, in words, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.costs import CostCard, CostPerBypass
    from guardmark.reports.encode import Json


def costs_json(costs: CostCard) -> Json:
    """Encode what does not come from a clock."""
    return {
        "calls": _expense(costs.calls),
        "model_calls": _expense(costs.model_calls),
        "tokens": _expense(costs.tokens),
        "money": _expense(costs.money),
    }


def seconds_json(costs: CostCard) -> Json:
    """Encode service time."""
    return _expense(costs.seconds)


def _expense(expense: CostPerBypass) -> Json:
    return {
        "total": expense.total,
        "known": expense.known,
        "calls": expense.calls,
        "per_bypass": expense.per_bypass,
        "per_attack": expense.per_attack,
    }
