"""How the judges of a run behaved, in words and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from guardmark.reports.chapters.judge_quality import QUALITY_FIGURES
from guardmark.reports.encode import Json, estimate_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.pipeline.judge_quality import JudgeQuality
    from guardmark.core.estimate import Estimate


def quality_json(found: Sequence[JudgeQuality]) -> str:
    """Write `judge_quality.json`."""
    document = [_encoded(quality) for quality in found]
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _encoded(quality: JudgeQuality) -> Json:
    return {
        "layer": quality.layer,
        "parse_methods": dict(quality.parse_methods),
        **{name: estimate_json(_estimate(quality, name)) for name, _ in QUALITY_FIGURES},
    }


def _estimate(quality: JudgeQuality, name: str) -> Estimate:
    found: Estimate = getattr(quality, name)
    return found
