"""Figures of what stands beside an adapted defense, for machines: target model, gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.encode import Json, difference_json, estimate_json, ratio_json

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.gradient import GradientCard
    from guardmark.analysis.adaptive.target import EffectRate, Effects, EstimatedEffect, TargetCard


def target_json(target: TargetCard | None) -> Json | None:
    """Encode what a target model did."""
    if target is None:
        return None
    return {
        "model": target.model,
        "judges": list(target.judges),
        "effects": None if target.effects is None else _effects(target.effects),
        "estimated": None if target.estimated is None else _estimated(target.estimated),
        "readings": [
            {
                "chain": each.chain,
                "read": estimate_json(each.read),
                "refused": each.refused,
                "failed": each.failed,
            }
            for each in target.readings
        ],
        "spent": {
            account: {"calls": each.calls, "tokens": each.tokens, "cost": each.cost}
            for account, each in target.spent.items()
        },
    }


def gradient_json(gradient: GradientCard | None) -> Json | None:
    """Encode the arm with gradient access."""
    if gradient is None:
        return None
    return {
        "attack": gradient.attack,
        "strict": estimate_json(gradient.strict),
        "full": estimate_json(gradient.full),
        "gain": difference_json(gradient.gain),
        "unproved": gradient.unproved,
        "tries": gradient.tries,
    }


def _effects(effects: Effects) -> Json:
    return {
        "undefended": _rate(effects.undefended),
        "static": _rate(effects.static),
        "defended": _rate(effects.defended),
        "merit_static": difference_json(effects.merit_static),
        "merit": difference_json(effects.merit),
    }


def _rate(effect: EffectRate) -> Json:
    return {
        "rate": estimate_json(effect.rate),
        "malformed": effect.malformed,
        "error": effect.error,
        "lowest": effect.lowest,
        "highest": effect.highest,
    }


def _estimated(estimated: EstimatedEffect) -> Json:
    return {
        "bypassed": estimate_json(estimated.bypassed),
        "read": estimate_json(estimated.read),
        "value": ratio_json(estimated.value),
        "unread": estimated.unread,
    }
