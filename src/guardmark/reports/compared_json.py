"""A comparison for machines: `comparison.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.comparison import caveats, recommendation
from guardmark.reports.encode import Json, best_json, difference_json, estimate_json, side_json
from guardmark.reports.layout import lay_out

if TYPE_CHECKING:
    from guardmark.analysis.compare.compared import Compared
    from guardmark.analysis.compare.comparison import PairedComparison
    from guardmark.analysis.compare.paired_details import PairDetail

SCHEMA_VERSION: Final = 1
"""Raised when a field is taken away or changes its meaning; new fields leave it as it is."""


def comparison_json(compared: Compared, *, texts: bool = True, timing: bool = True) -> str:
    """Write a comparison as JSON."""
    said = _comparison(compared, texts=texts)
    if not timing:
        for row in said["runs"]:
            del row["created_utc"]
        for row in said["pairs"]:
            row.pop("timing", None)
    return lay_out(said)


def _comparison(compared: Compared, *, texts: bool) -> Json:
    details = {(each.first, each.second): each for each in compared.details}
    return {
        "schema_version": SCHEMA_VERSION,
        "runs": [
            {
                "label": run.label,
                "created_utc": run.created_utc,
                "data_sha256": run.data_sha256,
                "state": run.state.value,
                "planned": run.planned,
                "stored": run.stored,
                "samples": run.samples,
                "unmatched": list(run.unmatched),
            }
            for run in compared.runs
        ],
        "defenses": [
            {"name": origin.name, "defense": origin.defense, "run": origin.run}
            for origin in compared.origins
        ],
        "attacks": compared.attacks,
        "benign": compared.benign,
        "is_grouped": compared.is_grouped,
        "confidence": compared.confidence,
        "margin": compared.margin,
        "caveats": list(caveats(compared)),
        "pairs": [
            _pair(pair, details.get((pair.first, pair.second)), compared, texts=texts)
            for pair in compared.comparison.pairs
        ],
        "best": {
            "attack_success_rate": best_json(compared.comparison.attacks),
            "false_positive_rate": best_json(compared.comparison.benign),
        },
        "rates": [
            {
                "defense": each.name,
                "attack_success_rate": estimate_json(each.rates.attack_success_rate),
                "false_positive_rate": estimate_json(each.rates.false_positive_rate),
            }
            for each in compared.rates
        ],
        "front": list(compared.front),
        "left_out": list(compared.comparison.left_out),
    }


def _pair(
    pair: PairedComparison, detail: PairDetail | None, compared: Compared, *, texts: bool
) -> Json:
    return {
        "first": pair.first,
        "second": pair.second,
        "verdict": pair.verdict.value,
        "recommendation": recommendation(pair, margin=compared.margin),
        "attack_success_rate": side_json(pair.attacks),
        "false_positive_rate": side_json(pair.benign),
        **({} if detail is None else _detail(detail, texts=texts)),
    }


def _detail(detail: PairDetail, *, texts: bool) -> Json:
    return {
        "categories": [
            {
                "category": each.category,
                "label": "attack" if each.is_attack else "benign",
                "is_greyed": each.is_greyed,
                **side_json(each.side),
            }
            for each in detail.categories
        ],
        "discordant": {
            "first_only": detail.first_only,
            "second_only": detail.second_only,
            "listed": [
                {
                    "id": each.sample.id,
                    "label": each.sample.label.value,
                    "category": each.sample.category,
                    "severity": each.sample.severity.value if each.sample.severity else None,
                    "erred": each.erred,
                    "sha256": each.sample.prompt.digest().hex(),
                    **({"text": each.sample.prompt.text} if texts else {}),
                }
                for each in detail.discordant
            ],
        },
        "costs": [
            {
                "label": "attack" if each.is_attack else "benign",
                "unit": each.unit.value,
                "first_mean": each.first,
                "second_mean": each.second,
                "mean_difference": difference_json(each.mean),
            }
            for each in detail.costs
        ],
        "timing": [
            {
                "label": "attack" if each.is_attack else "benign",
                "median_difference_ms": difference_json(each.median),
                "first_median_ms": each.first_ms,
                "second_median_ms": each.second_ms,
                "untimed": each.untimed,
            }
            for each in detail.latency
        ],
    }
