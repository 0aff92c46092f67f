"""How far small slices of a run would have misled, in words and as JSON."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from guardmark.core.estimate import Estimate
from guardmark.reports.chapters.small_slices import stability_warnings
from guardmark.reports.encode import Json, estimate_json, ratio_json
from guardmark.reports.summary import summary_schema

if TYPE_CHECKING:
    from guardmark.analysis.pipeline.small_slices import (
        SliceFigure,
        SliceStability,
    )

SCHEMA_VERSION: Final = 1


def stability_schema() -> str:
    """Return the JSON Schema of `slice_stability.json`; estimates are those of `summary.json`."""
    path = files("guardmark.reports").joinpath("slice_stability.schema.json")
    schema: Json = json.loads(path.read_text(encoding="utf-8"))
    shared = json.loads(summary_schema())["$defs"]
    schema["$defs"] |= {name: shared[name] for name in ("estimate", "ratio")}
    return json.dumps(schema, indent=2) + "\n"


def stability_json(found: SliceStability) -> str:
    """Write `slice_stability.json`."""
    request = found.request
    document: Json = {
        "schema_version": SCHEMA_VERSION,
        "run": found.run,
        "attacks": request.attacks,
        "benign": request.benign,
        "seeds": list(request.seeds),
        "confidence": found.confidence,
        "variants": [
            {
                "variant": each.variant,
                "attacks": each.attacks,
                "benign": each.benign,
                "drawn_attacks": each.drawn_attacks,
                "drawn_benign": each.drawn_benign,
            }
            for each in found.variants
        ],
        "cards": [
            {
                "arm": card.arm,
                "scope": card.scope,
                "variant": card.variant,
                "figures": [_figure_json(figure) for figure in card.figures],
            }
            for card in found.cards
        ],
        "warnings": list(stability_warnings(found)),
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _figure_json(figure: SliceFigure) -> Json:
    whole = figure.whole
    return {
        "name": figure.name,
        "whole": estimate_json(whole) if isinstance(whole, Estimate) else ratio_json(whole),
        "mean": figure.mean,
        "half_width": figure.half_width,
        "standard_deviation": figure.standard_deviation,
        "low": figure.low,
        "high": figure.high,
        "farthest": figure.farthest,
        "values": list(figure.values),
        "trials": list(figure.trials),
    }
