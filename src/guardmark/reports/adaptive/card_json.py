"""Adaptive figures for machines: a block of `summary.json`, and what `adapt --json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.adaptive.attacker import attacker_json
from guardmark.reports.adaptive.audited import audit_json
from guardmark.reports.adaptive.costs import costs_json
from guardmark.reports.adaptive.operators import operator_json
from guardmark.reports.adaptive.pairs import area_json
from guardmark.reports.adaptive.seeds import seeds_json
from guardmark.reports.adaptive.target_json import gradient_json, target_json
from guardmark.reports.chapters.adaptive.attack_success import holding_sentence
from guardmark.reports.chapters.adaptive.threat_model import threat_card
from guardmark.reports.encode import Json, difference_json, estimate_json, ratio_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.adaptive.crossfit import RepairFit
    from guardmark.analysis.adaptive.repairs import RepairCard


def adaptive_json(cards: Sequence[AdaptiveCard]) -> list[Json]:
    """Encode adaptive figures."""
    return [_card(card) for card in cards]


def _card(card: AdaptiveCard) -> Json:
    best = card.best_repair
    return {
        "defense": card.name,
        "text": holding_sentence(card),
        "threat_model": dict(threat_card(card)),
        "settings": dict(card.settings),
        "findings": dict(card.findings),
        "attacks": card.attacks,
        "missing": card.missing,
        "unanswered": card.unanswered,
        "rounds": [
            {
                "round": each.name,
                "strict": estimate_json(each.strict),
                "full": estimate_json(each.full),
            }
            for each in card.rounds
        ],
        "arms": [
            {
                "arm": each.arm,
                "at_budget": estimate_json(each.at_budget),
                "points": [list(point) for point in each.points],
            }
            for each in card.arms
        ],
        "blind_asr_at": [{"k": k, "rate": ratio_json(rate)} for k, rate in card.asr_at],
        "gains": [{"k": k, "gain": difference_json(gain)} for k, gain in card.gains],
        "null_gain": difference_json(card.null_gain),
        "robustness_delta": difference_json(card.delta),
        "battery": {
            "strict": estimate_json(card.battery_strict),
            "full": estimate_json(card.battery_full),
        },
        "area": area_json(card.area),
        "median_tries": None if card.survival is None else card.survival.median,
        "mean_tries": None if card.mean_tries is None else card.mean_tries.value,
        "calls_per_bypass": card.costs.calls.per_bypass,
        "costs": costs_json(card.costs),
        "extrapolated": None
        if card.extrapolated is None
        else {"k": card.extrapolated_at, "rate": ratio_json(card.extrapolated)},
        "reliability": None if card.reliability is None else estimate_json(card.reliability),
        "operators": [operator_json(each) for each in card.operators],
        "repairs": [_repair(each) for each in card.repairs],
        "best_repair": None if best is None else best.name,
        "repair_fit": _fit(card.repair_fit),
        "transfers": [
            {"source": each.source, "passed": estimate_json(each.passed)} for each in card.transfers
        ],
        "target": target_json(card.target),
        "gradient": gradient_json(card.gradient),
        "calls": {f"{arm}:{account}": calls for (arm, account), calls in card.calls.items()},
        "attacker": attacker_json(card.attacker),
        "resting": card.resting,
        "audit": audit_json(card.audit),
        "seeds": seeds_json(card.seeds),
    }


def _repair(card: RepairCard) -> Json:
    return {
        "name": card.name,
        "steps": list(card.steps),
        "closed": estimate_json(card.closed),
        "cost": estimate_json(card.cost),
        "opened": estimate_json(card.opened),
    }


def _fit(fit: RepairFit | None) -> Json | None:
    if fit is None:
        return None
    return {
        "chosen": list(fit.chosen),
        "closed": estimate_json(fit.closed),
        "cost": estimate_json(fit.cost),
        "opened": estimate_json(fit.opened),
        "reason": fit.reason,
    }
