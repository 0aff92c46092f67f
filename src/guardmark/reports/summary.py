"""The figures of a run for machines: `summary.json`, described by `summary.schema.json`."""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.advice import advice_sentence
from guardmark.reports.chapters.comparison import pair_sentence
from guardmark.reports.chapters.headlines import write_verdicts
from guardmark.reports.encode import (
    Json,
    advice_json,
    best_json,
    counts_json,
    estimate_json,
    pair_json,
    quantile_json,
    ratio_json,
    side_json,
    stability_json,
    thresholds_json,
)
from guardmark.reports.layout import lay_out
from guardmark.reports.pipeline_json import pipeline_json
from guardmark.reports.scores_json import (
    area_json,
    deployment_json,
    scores_json,
    stops_json,
)

if TYPE_CHECKING:
    from guardmark.analysis.compare.comparison import RunComparison
    from guardmark.analysis.defense.latency import SideLatency
    from guardmark.analysis.defense.slices import SliceTable
    from guardmark.analysis.run import DefenseAnalysis, RunAnalysis

SCHEMA_VERSION: Final = 1
"""Raised when a field is taken away or changes its meaning; new fields leave it as it is."""


def summary_json(analysis: RunAnalysis) -> str:
    """Write the figures of a run as JSON.

    Everything that depends on clocks stands in the block `timing` alone.
    """
    return lay_out(_summary(analysis))


def summary_schema() -> str:
    """Return the JSON Schema of `summary.json`."""
    return files("guardmark.reports").joinpath("summary.schema.json").read_text(encoding="utf-8")


def _summary(analysis: RunAnalysis) -> Json:
    return {
        "schema_version": SCHEMA_VERSION,
        "run": _run(analysis),
        "data": [
            {
                "name": data.name,
                "version": data.version,
                "sha256": data.sha256,
                "attacks": data.attacks,
                "benign": data.benign,
            }
            for data in analysis.manifest.data
        ],
        "samples": {
            "attacks": analysis.samples.attacks,
            "benign": analysis.samples.benign,
            "groups": analysis.samples.groups,
            "is_grouped": analysis.samples.is_grouped,
            "languages": list(analysis.samples.languages),
        },
        "verdicts": {each.defense: each.sentence for each in write_verdicts(analysis)},
        "defenses": [_defense(each) for each in analysis.defenses],
        "coverage": _coverage(analysis),
        "comparison": _comparison(analysis.comparison),
        "areas": [area_json(pair) for pair in analysis.areas],
        "pipeline": pipeline_json(analysis.pipeline),
        **_adaptive(analysis),
        "spending": [asdict(each) for each in analysis.spending],
        "worst": _worst(analysis),
        "recommendations": [
            advice_json(advice, advice_sentence(advice)) for advice in analysis.advice
        ],
        "timing": _timing(analysis),
    }


def _run(analysis: RunAnalysis) -> Json:
    manifest, settings = analysis.manifest, analysis.settings
    return {
        "name": manifest.name,
        "state": analysis.status.state.value,
        "planned": analysis.status.planned,
        "stored": analysis.status.stored,
        "retried": analysis.status.retried,
        "guardmark_version": manifest.guardmark_version,
        "config_sha256": manifest.config_sha256,
        "data_sha256": manifest.data_sha256,
        "evaluator": manifest.evaluator,
        "seed": manifest.seed,
        "repeats": manifest.repeats,
        "confidence": settings.confidence,
        "min_per_category": settings.min_per_category,
        "margin": settings.margin,
        "on_malformed": manifest.on_malformed.value,
        "on_error": manifest.on_error.value,
    }


def _defense(defense: DefenseAnalysis) -> Json:
    part, card = defense.part, defense.card
    return {
        "name": part.name,
        "type": part.type,
        "version": part.version,
        "fingerprint": part.fingerprint,
        "view": part.view,
        "threshold": defense.threshold,
        "is_baseline": defense.is_baseline,
        "is_redecided": defense.is_redecided,
        "counts": {
            "attacks": counts_json(card.confusion.attacks),
            "benign": counts_json(card.confusion.benign),
            "error_kinds": dict(card.confusion.error_kinds),
        },
        "rates": {
            "attack_success_rate": estimate_json(card.attack_success_rate),
            "true_positive_rate": estimate_json(card.true_positive_rate),
            "false_positive_rate": estimate_json(card.false_positive_rate),
            "false_negative_rate": estimate_json(card.false_negative_rate),
            "answered_attacks": estimate_json(card.answered_attacks),
            "answered_benign": estimate_json(card.answered_benign),
            "answered": estimate_json(card.answered),
            "any_bypass": None if card.any_bypass is None else estimate_json(card.any_bypass),
        },
        "ratios": _ratios(defense),
        "bounds": {
            "fail_open": pair_json(card.fail_open),
            "fail_closed": pair_json(card.fail_closed),
        },
        "under_policy": pair_json(card.under_policy),
        "predictive": [
            {
                "prevalence": each.prevalence,
                "positive": ratio_json(each.positive),
                "negative": ratio_json(each.negative),
            }
            for each in card.predictive
        ],
        "widths": [
            {
                "rate": width.name,
                "half_width": width.half_width,
                "wanted": width.wanted,
                "trials": width.trials,
                "needed": width.needed,
            }
            for width in defense.widths
        ],
        "categories": {each.category: each.standing.value for each in defense.standings},
        "slices": [_slices(table) for table in defense.slices if table.rates],
        "thresholds": thresholds_json(defense.thresholds),
        "stability": stability_json(defense.stability),
        "scores": scores_json(defense.scores),
        "deployment": deployment_json(defense.deployment),
        "stopped_early": stops_json(defense.stopped),
    }


def _ratios(defense: DefenseAnalysis) -> Json:
    card = defense.card
    return {
        "prevalence": card.ratios.prevalence,
        "precision": ratio_json(card.ratios.precision),
        "recall": estimate_json(card.true_positive_rate),
        "f1": ratio_json(card.ratios.f1),
        "balanced_error": ratio_json(card.ratios.balanced_error),
        "youden": ratio_json(card.ratios.youden),
        "matthews_correlation": ratio_json(card.ratios.correlation),
    }


def _slices(table: SliceTable) -> Json:
    return {
        "facet": table.facet,
        "label": "attack" if table.is_attack else "benign",
        "rates": [
            {
                "name": entry.name,
                "asked": entry.asked,
                "folded": entry.folded,
                "is_greyed": entry.is_greyed,
                "rate": estimate_json(entry.rate),
            }
            for entry in table.rates
        ],
    }


def _coverage(analysis: RunAnalysis) -> Json:
    taxonomy = analysis.taxonomy
    return {
        "declared": taxonomy.declared,
        "tested": taxonomy.tested,
        "categories": {each.name: each.attacks for each in taxonomy.categories},
        "subcategories": {each.name: each.attacks for each in taxonomy.subcategories},
        "gaps": list(taxonomy.gaps),
        "undeclared": list(taxonomy.undeclared),
    }


def _comparison(comparison: RunComparison | None) -> Json | None:
    if comparison is None:
        return None
    return {
        "pairs": [
            {
                "first": pair.first,
                "second": pair.second,
                "verdict": pair.verdict.value,
                "text": pair_sentence(pair),
                "attack_success_rate": side_json(pair.attacks),
                "false_positive_rate": side_json(pair.benign),
            }
            for pair in comparison.pairs
        ],
        "best": {
            "attack_success_rate": best_json(comparison.attacks),
            "false_positive_rate": best_json(comparison.benign),
        },
        "left_out": list(comparison.left_out),
    }


def _worst(analysis: RunAnalysis) -> Json:
    return {
        "counts": {each.flaw.value: each.total for each in analysis.worst.counts},
        "most_impactful_bypasses": {
            defense: [each.sample.id for each in found] for defense, found in analysis.worst.top
        },
    }


def _adaptive(analysis: RunAnalysis) -> Json:
    left_out = [
        {"defense": name, "view": view} for name, view in analysis.adaptive_left_out.items()
    ]
    cards, pairs = list[Json](), list[Json]()
    if analysis.adaptive:  # most runs were not attacked
        from guardmark.reports.adaptive.card_json import adaptive_json
        from guardmark.reports.adaptive.pairs import pairs_json

        cards, pairs = adaptive_json(analysis.adaptive), pairs_json(analysis.adaptive_pairs)
    return {"adaptive": cards, "adaptive_left_out": left_out, "adaptive_pairs": pairs}


def _adaptive_seconds(analysis: RunAnalysis) -> Json:
    if not analysis.adaptive:
        return {}
    from guardmark.reports.adaptive.costs import seconds_json

    return {card.name: seconds_json(card.costs) for card in analysis.adaptive}


def _timing(analysis: RunAnalysis) -> Json:
    attacked = _adaptive_seconds(analysis)
    return {
        "created_utc": analysis.manifest.created_utc,
        "defenses": {each.name: _latency(each) for each in analysis.defenses},
        **({"adaptive": attacked} if attacked else {}),
    }


def _latency(defense: DefenseAnalysis) -> Json:
    latency = defense.latency
    return {
        "mode": latency.mode.value,
        "concurrency": latency.concurrency,
        "warmup": latency.warmup,
        "cold_ms": list(latency.cold_ms),
        "is_amortised": latency.is_amortised,
        "is_from_plan": latency.is_from_plan,
        "cached": latency.cached,
        "attacks": _side(latency.attacks),
        "benign": _side(latency.benign),
        "slice_medians": [
            {
                "facet": table.facet,
                "label": "attack" if table.is_attack else "benign",
                "median_ms": {entry.name: entry.median_latency_ms for entry in table.rates},
            }
            for table in defense.slices
            if table.rates
        ],
    }


def _side(side: SideLatency) -> Json:
    return {
        "timed": side.timed,
        "timeouts": side.timeouts,
        "quantiles": [quantile_json(quantile) for quantile in side.quantiles],
    }
