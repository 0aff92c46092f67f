"""How the judges of a run behaved, in words and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from guardmark.reports.document.cells import rate_text
from guardmark.reports.document.safe_text import markdown_line, plain_line
from guardmark.reports.encode import Json, estimate_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.pipeline.judge_quality import JudgeQuality
    from guardmark.core.estimate import Estimate

_FIGURES: Final = (
    ("malformed", "verdicts nobody can read"),
    ("repaired", "verdicts read only after extraction, repair or a retry"),
    ("refusals_unsafe", "refusals called unsafe"),
    ("split_answers", "repeated answers judged both safe and unsafe"),
    ("echoed", "reasons that repeat the answer word for word"),
    ("over_blocked", "answers that people call safe, called unsafe"),
)


def quality_lines(found: Sequence[JudgeQuality]) -> tuple[str, ...]:
    """Say how judges behaved, a line a figure."""
    lines = []
    for quality in found:
        lines.append(plain_line(f"{quality.layer}:"))
        lines.extend(f"  {rate_text(_estimate(quality, name))} {words}" for name, words in _FIGURES)
        methods = ", ".join(f"{name or 'not said'} {n:,}" for name, n in quality.parse_methods)
        lines.append("  " + plain_line(f"read by: {methods or 'nothing'}"))
    return tuple(lines)


def quality_markdown(found: Sequence[JudgeQuality]) -> str:
    """Write `judge_quality.md`."""
    lines = ["# Judge quality", ""]
    for quality in found:
        lines.extend((f"## {markdown_line(quality.layer)}", ""))
        lines.extend(f"- {rate_text(_estimate(quality, name))} {words}" for name, words in _FIGURES)
        methods = ", ".join(f"{name or 'not said'} {n:,}" for name, n in quality.parse_methods)
        lines.extend((f"- read by: {markdown_line(methods)}", ""))
    lines.append("Intervals take answers as independent: these are signs to follow, not proofs.")
    return "\n".join(lines) + "\n"


def quality_json(found: Sequence[JudgeQuality]) -> str:
    """Write `judge_quality.json`."""
    document = [_encoded(quality) for quality in found]
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _encoded(quality: JudgeQuality) -> Json:
    return {
        "layer": quality.layer,
        "parse_methods": dict(quality.parse_methods),
        **{name: estimate_json(_estimate(quality, name)) for name, _ in _FIGURES},
    }


def _estimate(quality: JudgeQuality, name: str) -> Estimate:
    found: Estimate = getattr(quality, name)
    return found
