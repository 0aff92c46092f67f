"""A gate for a terminal, for a job summary in Markdown, and for machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from guardmark.reports.chapters.gate import check_sentence, conclusion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.gate.limits import GateResult


def gate_json(
    result: GateResult, *, run: str, baseline: str = "", caveats: Sequence[str] = ()
) -> str:
    """Write a gate as JSON."""
    said = {
        "schema_version": 1,
        "run": run,
        "baseline": baseline or None,
        "standing": result.standing.value,
        "text": conclusion(result),
        "confidence": result.confidence,
        "caveats": list(caveats),
        "checks": [
            {
                "rule": check.rule,
                "defense": check.defense,
                "subject": check.subject,
                "standing": check.standing.value,
                "unit": check.unit.value,
                "limit": check.limit,
                "value": check.value,
                "low": check.low,
                "high": check.high,
                "trials": check.trials,
                "needed": check.needed,
                "p_value": check.p_value,
                "reason": check.reason,
                "text": check_sentence(check),
            }
            for check in result.checks
        ],
    }
    return json.dumps(said, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
