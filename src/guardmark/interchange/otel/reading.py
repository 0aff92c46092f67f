"""Decisions in spans of OpenTelemetry: OTLP as JSON, one request a line.

Read are spans of guards as the proposal for GenAI guardrails names them
(semantic-conventions-genai, pull request 427, as of September 2026), and by the earlier
names of semantic-conventions, pull request 3233. A span without a verdict is no decision.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLE_ID: Final = "guardmark.sample.id"
LABEL: Final = "guardmark.label"
OUTCOME: Final = "guardmark.outcome"
VERDICTS: Final = ("gen_ai.security.verdict.type", "gen_ai.security.decision.type")
NAMES: Final = (
    *("gen_ai.security.guardrail.name", "gen_ai.guardian.name"),
    *("gen_ai.security.guardrail.id", "gen_ai.guardian.id"),
)
OUTCOMES: Final = {
    **dict.fromkeys(("allow", "allowed", "pass", "passed", "audit", "warn", "flag"), "allow"),
    **dict.fromkeys(("block", "blocked", "deny", "denied", "reject"), "block"),
    "malformed": "malformed",
    "error": "error",
}
"""Word of a verdict to outcome. What a guard only warns of goes on, so it was allowed; a verdict of
`modify` is neither, and its line is counted as one that cannot be used."""

_STATUS_ERROR: Final = (2, "STATUS_CODE_ERROR")
_OPERATIONS: Final = ("run_guardrail", "apply_guardrail")


def decision_lines(line: bytes) -> Iterator[bytes]:
    """Turn a request of OTLP into lines that `watch` reads, one a guard's span.

    A line that is no request yields itself, so that it is counted as one that cannot be used.
    """
    try:
        request = json.loads(line)
        spans = list(_spans(request))
    except (ValueError, TypeError, AttributeError, RecursionError):
        yield line
        return
    for span in spans:
        row = _decision(span)
        if row is not None:
            yield json.dumps(row).encode()


def _spans(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in request["resourceSpans"] if "resourceSpans" in request else _refuse():
        for scope in resource.get("scopeSpans", []):
            for span in scope.get("spans", []):
                if not isinstance(span, dict):
                    raise TypeError("a span that is no object")
                yield span


def _refuse() -> list[dict[str, Any]]:
    raise ValueError("no request of OTLP")


def _decision(span: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a span says a guard decided; None where it is of something else."""
    attributes = _attributes(span.get("attributes", []))
    verdict = next((attributes[name] for name in VERDICTS if name in attributes), None)
    is_guard = attributes.get("gen_ai.operation.name") in _OPERATIONS
    if verdict is None and not is_guard:
        return None
    status = span.get("status") or {}
    failed = "error.type" in attributes or status.get("code") in _STATUS_ERROR
    outcome = OUTCOMES.get(str(verdict).casefold(), str(verdict))
    if attributes.get(OUTCOME) in {"malformed", "error"}:
        outcome = attributes[OUTCOME]
    elif failed:
        outcome = "error"
    row: dict[str, Any] = {
        "id": attributes.get(SAMPLE_ID) or span.get("spanId"),
        "defense": next((attributes[name] for name in NAMES if name in attributes), "traffic"),
        "outcome": outcome,
    }
    if LABEL in attributes:
        row["label"] = attributes[LABEL]
    return row


def _attributes(listed: list[dict[str, Any]]) -> dict[str, Any]:
    """Return attributes by name, their values without the wrapping of their types."""
    found = {}
    for each in listed:
        value = each.get("value") or {}
        found[str(each.get("key"))] = next(iter(value.values()), None)
    return found
