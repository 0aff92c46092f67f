"""Operators on attacks, on benign texts and by themselves: tables, a sentence, JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.encode import Json, estimate_json

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.operators import OperatorCard
    from guardmark.core.estimate import Estimate, Quantile


def operator_json(card: OperatorCard) -> Json:
    """Encode one operator."""
    return {
        "chain": card.chain,
        "tier": card.tier,
        "bypassed": estimate_json(card.bypassed),
        "benign_blocked": estimate_json(card.benign_blocked),
        "standing": card.standing.value,
        "unique": card.unique,
        "expansion": _median_json(card.expansion),
        "decoded": _maybe_json(card.decoded),
        "wrapper_blocked": _maybe_json(card.wrapper_blocked),
    }


def _maybe_json(estimate: Estimate | None) -> Json | None:
    return None if estimate is None else estimate_json(estimate)


def _median_json(quantile: Quantile) -> Json:
    return {
        "median": quantile.value,
        "low": quantile.low,
        "high": quantile.high,
        "trials": quantile.trials,
        "confidence": quantile.confidence,
        "reason": quantile.reason,
    }
