"""The benign twin and the critic of an attacker model: in words, and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.encode import Json, difference_json, estimate_json

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.critic import CriticCard
    from guardmark.analysis.adaptive.rewording import RewordingCard
    from guardmark.core.usage import UsageTotals


def twin_json(twin: RewordingCard | None) -> Json | None:
    """Encode the benign twin of an attacker model."""
    if twin is None:
        return None
    return {
        "samples": twin.samples,
        "candidates": twin.candidates,
        "unjudged": twin.unjudged,
        **{name: estimate_json(rate) for name, rate in twin.rates.items()},
        "change": difference_json(twin.change),
        "separation": difference_json(twin.separation),
        "standing": twin.standing.value,
        "is_clear": twin.is_clear,
        "strategies": [
            {
                "name": each.name,
                "blocked": estimate_json(each.blocked),
                "standing": each.standing.value,
            }
            for each in twin.strategies
        ],
        "spending": {name: model_spending_json(each) for name, each in twin.spending.items()},
    }


def critic_json(critic: CriticCard | None) -> Json | None:
    """Encode how a critic answered."""
    if critic is None:
        return None
    return {
        "model": critic.model,
        "is_also": critic.is_also,
        "has_scores": critic.has_scores,
        "repairs": critic.repairs,
        **{name: estimate_json(rate) for name, rate in critic.rates.items()},
    }


def model_spending_json(spent: UsageTotals) -> Json:
    """Encode what a model consumed."""
    return {
        "calls": spent.calls,
        "failed": spent.failed,
        "calls_with_tokens": spent.reported,
        "tokens_read": spent.tokens_read,
        "tokens_written": spent.tokens_written,
        "calls_with_price": spent.priced,
        "cost": spent.cost if spent.priced else None,
    }
