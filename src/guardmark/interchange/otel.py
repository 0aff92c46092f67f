"""Decisions as spans of OpenTelemetry, read and written: OTLP as JSON, a request a line.

Names follow the proposal for GenAI guardrails (semantic-conventions-genai, pull request 427, as of
September 2026) and the event `gen_ai.evaluation.result`; earlier names of semantic-conventions,
pull request 3233, are read too, and what neither has a word for begins with `guardmark.`. A span
without a verdict is no decision. Nothing that is written holds a text of a sample.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.outcome import Outcome
from guardmark.core.record import Stage
from guardmark.core.sample import Label
from guardmark.core.version import VERSION
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from guardmark.core.manifest import PartManifest
    from guardmark.core.record import Record
    from guardmark.store.reader import RecordReader


SAMPLE_ID: Final = "guardmark.sample.id"
LABEL: Final = "guardmark.label"
OUTCOME: Final = "guardmark.outcome"
VERDICTS: Final = ("gen_ai.security.verdict.type", "gen_ai.security.decision.type")
NAMES: Final = (
    "gen_ai.security.guardrail.name",
    "gen_ai.guardian.name",
    "gen_ai.security.guardrail.id",
    "gen_ai.guardian.id",
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
    if "resourceSpans" not in request:
        raise ValueError("no request of OTLP")
    for resource in request["resourceSpans"]:
        for scope in resource.get("scopeSpans", []):
            for span in scope.get("spans", []):
                if not isinstance(span, dict):
                    raise TypeError("a span that is no object")
                yield span


def _decision(span: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a span says a guard decided; None where it is of something else."""
    attributes = _values_of(span.get("attributes", []))
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


def _values_of(listed: list[dict[str, Any]]) -> dict[str, Any]:
    """Return attributes by name, their values without the wrapping of their types."""
    found = {}
    for each in listed:
        value = each.get("value") or {}
        found[str(each.get("key"))] = next(iter(value.values()), None)
    return found


_AT_ONCE: Final = 500
_INTERNAL: Final = 1
_CLIENT: Final = 3
_UNSET, _ERROR = 0, 2
_SERVICES: Final = frozenset({"http", "guard-model"})
_VERDICTS: Final = {Outcome.ALLOW.value: "allow", Outcome.BLOCK.value: "block"}
_SCHEMA: Final = "https://opentelemetry.io/schemas/1.40.0"


def write_otel(reader: RecordReader, path: Path) -> int:
    """Write every decision of a run as a span; return how many there are."""
    manifest = reader.manifest()
    parts = {part.name: part for part in manifest.parts}
    samples = [(sample.id, sample.label) for sample in reader.samples()]
    start = _nanoseconds(manifest.created_utc)
    head = reader.status().head
    spans = (
        _span(
            record,
            parts.get(record.key.defense),
            *samples[record.key.sample],
            head=head,
            start=start,
        )
        for record in reader.records(stage=Stage.DEFENSE)
    )
    resource = {
        "attributes": _attributes(
            {
                "service.name": "guardmark",
                "service.version": VERSION,
                "guardmark.run.name": manifest.name,
                "guardmark.run.head": head,
                "guardmark.data.sha256": manifest.data_sha256,
            }
        )
    }
    written = 0
    with whole_file(path) as file:
        for some in _in_batches(spans):
            request = {
                "resourceSpans": [
                    {
                        "resource": resource,
                        "scopeSpans": [
                            {"scope": {"name": "guardmark", "version": VERSION}, "spans": some}
                        ],
                        "schemaUrl": _SCHEMA,
                    }
                ]
            }
            file.write(json.dumps(request, ensure_ascii=True).encode() + b"\n")
            written += len(some)
    return written


def _in_batches(spans: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    some: list[dict[str, Any]] = []
    for span in spans:
        some.append(span)
        if len(some) == _AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _span(
    record: Record,
    part: PartManifest | None,
    sample_id: str,
    label: Label | None,
    *,
    head: str,
    start: int,
) -> dict[str, Any]:
    key = record.key
    trace = sha256(f"{head} {sample_id} {key.repeat}".encode()).hexdigest()[:32]
    span = sha256(f"{trace} {key.defense} {key.layer}".encode()).hexdigest()[:16]
    failed = record.outcome in {Outcome.ERROR.value, Outcome.MALFORMED.value}
    attributes: dict[str, object] = {
        "gen_ai.operation.name": "run_guardrail",
        "gen_ai.security.guardrail.name": key.defense,
        "gen_ai.security.target.type": "llm_input",
        SAMPLE_ID: sample_id,
        OUTCOME: record.outcome,
        "guardmark.repeat": key.repeat,
    }
    if part is not None and part.version:
        attributes["gen_ai.security.guardrail.version"] = part.version
    if record.outcome in _VERDICTS:
        attributes["gen_ai.security.verdict.type"] = _VERDICTS[record.outcome]
    if record.score is not None:
        attributes["gen_ai.security.risk.score"] = record.score
    if label is not None:
        attributes[LABEL] = str(label)
    if failed:
        attributes["error.type"] = record.error_kind or record.outcome
    latency = record.latency_ns or 0
    made: dict[str, Any] = {
        "traceId": trace,
        "spanId": span,
        "name": f"run_guardrail {key.defense}",
        "kind": _CLIENT if part is not None and part.type in _SERVICES else _INTERNAL,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + latency),
        "attributes": _attributes(attributes),
        "status": {"code": _ERROR if failed else _UNSET},
    }
    if label is not None and record.outcome in _VERDICTS:
        is_right = (record.outcome == Outcome.BLOCK.value) == (label == Label.ATTACK)
        told = {
            "gen_ai.evaluation.name": "guardmark.decision",
            "gen_ai.evaluation.score.label": "pass" if is_right else "fail",
            "gen_ai.evaluation.score.value": float(is_right),
        }
        made["events"] = [
            {
                "timeUnixNano": str(start + latency),
                "name": "gen_ai.evaluation.result",
                "attributes": _attributes(told),
            }
        ]
    return made


def _attributes(values: Mapping[str, object]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: object) -> dict[str, Any]:
    """Wrap a value in its type, as OTLP has it: whole numbers are texts in JSON."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}


def _nanoseconds(when: str) -> int:
    """Return nanoseconds since 1970; 0 where a run states no time."""
    try:
        moment = datetime.fromisoformat(when)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000_000
