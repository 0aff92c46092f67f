"""What several seeds of the search came to: as JSON, as a sentence, as a table, as bands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.encode import Json, estimate_json

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.seeds import SeedsCard
    from guardmark.stats.rates.means import SeedMean


def seeds_json(card: SeedsCard | None) -> Json | None:
    """Encode what several seeds came to, or null for one."""
    if card is None:
        return None
    return {
        "seeds": card.seeds,
        "counted": list(card.counted),
        "rounds": [
            {"round": each.name, "strict": _mean(each.strict), "full": _mean(each.full)}
            for each in card.rounds
        ],
        "arms": [
            {
                "arm": each.arm,
                "points": [{"k": k, "rate": _mean(share)} for k, share in each.points],
            }
            for each in card.arms
        ],
        "blind_asr_at": [{"k": k, "rate": _mean(rate)} for k, rate in card.asr_at],
        "gains": [{"k": k, "gain": _mean(gain)} for k, gain in card.gains],
        "null_gain": _mean(card.null_gain),
        "robustness_delta": _mean(card.delta),
        "mean_tries": None if card.mean_tries is None else _mean(card.mean_tries),
        "area": {"adaptive": _mean(card.area_adaptive), "blind": _mean(card.area_blind)},
        "any_seed": {
            "strict": estimate_json(card.any_seed_strict),
            "full": estimate_json(card.any_seed_full),
        },
    }


def _mean(mean: SeedMean) -> Json:
    return {
        "value": mean.value,
        "low": mean.low,
        "high": mean.high,
        "confidence": mean.confidence,
        "method": mean.method,
        "trials": mean.trials,
        "groups": mean.groups,
        "seeds": mean.seeds,
        "by_seed": list(mean.by_seed),
        "spread": mean.spread,
        "least": mean.least,
        "most": mean.most,
        "reason": mean.reason,
    }
