"""A gate for a terminal, for a job summary in Markdown, and for machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from guardmark.analysis.gate.limits import GateStatus
from guardmark.reports.document.safe_text import markdown_code, markdown_line, plain_line
from guardmark.reports.document.wording import count_text, value_text
from guardmark.reports.gate_words import UNITS, WORDS, check_sentence, conclusion, figure_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.gate.limits import GateCheck, GateResult

_ORDER = (GateStatus.BROKEN, GateStatus.OPEN, GateStatus.HELD)
_METHOD = (
    "A limit is held when the whole {confidence} interval lies on its good side, broken when the "
    "whole interval lies beyond it, open otherwise. A regression is broken when it is significant "
    "(Holm) and larger than the margin."
)


def render_gate(result: GateResult, *, caveats: Sequence[str] = ()) -> str:
    """Render a gate for a terminal."""
    lines = [
        f"{WORDS[check.standing]}  {check.rule}  {plain_line(check_sentence(check))}"
        for check in worst_first(result)
    ]
    lines.extend(f"Beware: {plain_line(line)}" for line in caveats)
    return "\n".join([*lines, conclusion(result)]) + "\n"


def gate_markdown(result: GateResult, *, run: str, caveats: Sequence[str] = ()) -> str:
    """Render a gate as Markdown, for a job summary or a comment."""
    lines = [
        "<!-- guardmark-gate -->",
        f"### Guard gate: {_HEADINGS[result.standing]}",
        "",
        f"{markdown_code(run)}: {markdown_line(conclusion(result))}",
        "",
        "| | Rule | Defense | Of | Figure | Limit | n | n that would decide |",
        "|---|---|---|---|---:|---:|---:|---:|",
    ]
    lines.extend(_row(check) for check in worst_first(result))
    telling = [check for check in worst_first(result) if check.standing is not GateStatus.HELD]
    if telling:
        lines.append("")
        lines.extend(f"- {markdown_line(check_sentence(check))}." for check in telling)
    if caveats:
        lines.append("")
        lines.extend(f"- **Beware:** {markdown_line(line)}" for line in caveats)
    method = _METHOD.format(confidence=f"{100 * result.confidence:g} %")
    lines.extend(("", f"<sub>{method}</sub>"))
    return "\n".join(lines) + "\n"


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


_HEADINGS = {
    GateStatus.HELD: "passed",
    GateStatus.BROKEN: "failed",
    GateStatus.OPEN: "the data cannot decide",
}


def worst_first(result: GateResult) -> list[GateCheck]:
    """Return the checks, broken ones before open ones before those that hold."""
    return sorted(result.checks, key=lambda check: _ORDER.index(check.standing))


def _row(check: GateCheck) -> str:
    cells = (
        f"**{WORDS[check.standing]}**",
        f"`{check.rule}`",
        markdown_code(check.defense, in_table=True),
        markdown_line(check.subject),
        figure_text(check),  # words of our own
        value_text(check.limit, UNITS[check.unit]),
        count_text(check.trials),
        "" if check.needed is None else count_text(check.needed),
    )
    return f"| {' | '.join(cells)} |"
