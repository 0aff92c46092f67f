"""Values as they are stored, and back: evidence and manifests as JSON, records as rows."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.manifest import DataManifest, LatencyMode, PartManifest, Policy, RunManifest
from guardmark.core.outcome import Attempt, CategoryFinding, Evidence
from guardmark.core.record import Record, RecordKey
from guardmark.core.usage import Usage
from guardmark.store.schema import (
    ANSWER_MODE_CODE,
    ANSWER_MODES,
    DETAILS_OF_RECORDS,
    ERROR_KIND_CODE,
    ERROR_KINDS,
    EVIDENCE_OF_RECORDS,
    FLAG_AMORTISED,
    FLAG_CACHED,
    FLAG_TRUNCATED,
    OUTCOME_CODE,
    OUTCOME_NAMES,
    SCORE_KIND_CODE,
    SCORE_KINDS,
    STAGES,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


_EVIDENCE_DEFAULTS: Final = Evidence()
_PLAIN: Final = tuple(
    field.name
    for field in fields(Evidence)
    if field.name not in {"categories", "usage", "attempts"}
)

_TYPES: Final = {
    name: float | int if name == "label_mass" else type(getattr(_EVIDENCE_DEFAULTS, name))
    for name in _PLAIN
}


def _values(value: object) -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]  # called with dataclasses only


@lru_cache(maxsize=256)  # a rule says the same of every sample it blocks
def evidence_to_json(evidence: Evidence) -> str:
    """Write evidence as compact JSON, leaving out what is not said."""
    said: dict[str, object] = {
        name: value
        for name in _PLAIN
        if (value := getattr(evidence, name)) != getattr(_EVIDENCE_DEFAULTS, name)
    }
    for name, value in said.items():
        if not isinstance(value, _TYPES[name]):
            raise TypeError(f"{name} is {value!r:.80}")
    if evidence.categories:
        said["categories"] = [[c.name, c.flagged, c.score] for c in evidence.categories]
    if evidence.usage is not None:
        said["usage"] = _usage(evidence.usage)
    if evidence.attempts:
        said["attempts"] = [[a.service_ns, a.status, a.error, a.wait_ns] for a in evidence.attempts]
    return json.dumps(said, separators=(",", ":"))


def _usage(usage: Usage) -> list[int | float | None]:
    """Usage as a list of numbers that can be added up."""
    tokens, cost = (usage.prompt_tokens, usage.completion_tokens), usage.cost
    is_whole = all(count is None or type(count) is int for count in tokens)
    if not is_whole or not (cost is None or (type(cost) in {int, float} and isfinite(cost))):
        raise TypeError(f"usage is {usage!r:.200}")
    return [*tokens, cost]


@lru_cache(maxsize=256)  # for the same reason; nobody can change what is returned
def evidence_from_json(text: str) -> Evidence:
    """Read evidence back."""
    said: dict[str, Any] = json.loads(text)
    if "categories" in said:
        said["categories"] = tuple(
            CategoryFinding(name=name, flagged=flagged, score=score)
            for name, flagged, score in said["categories"]
        )
    if "usage" in said:
        read, written, cost = said["usage"]
        said["usage"] = Usage(prompt_tokens=read, completion_tokens=written, cost=cost)
    if "attempts" in said:
        said["attempts"] = tuple(
            Attempt(service_ns=service, status=status, error=error, wait_ns=wait)
            for service, status, error, wait in said["attempts"]
        )
    return Evidence(**said)


def manifest_to_json(manifest: RunManifest) -> str:
    """Write a manifest as JSON with sorted keys, so that equal manifests give equal bytes."""
    values = _values(manifest)
    values["parts"] = [_values(part) for part in manifest.parts]
    values["data"] = [_values(data) for data in manifest.data]
    return json.dumps(values, ensure_ascii=False, sort_keys=True, default=_mapping)


def _mapping(value: object) -> object:
    from collections.abc import Mapping as AnyMapping

    if isinstance(value, AnyMapping):
        return dict(value)
    raise TypeError(f"{value!r} is not a JSON value")


def manifest_from_json(text: str) -> RunManifest:
    """Read a manifest back."""
    values: dict[str, Any] = json.loads(text)
    values["parts"] = tuple(PartManifest(**part) for part in values["parts"])
    values["data"] = tuple(DataManifest(**data) for data in values["data"])
    values["on_malformed"] = Policy(values["on_malformed"])
    values["on_error"] = Policy(values["on_error"])
    values["latency_mode"] = LatencyMode(values["latency_mode"])
    categories: Mapping[str, list[str]] = values["categories"]
    values["categories"] = {name: tuple(subs) for name, subs in categories.items()}
    values["shared_answers"] = tuple(values.get("shared_answers", ()))
    return RunManifest(**values)


SELECT_RECORDS: Final = (
    "SELECT d.name, r.stage, l.name, r.repeat, r.sample, r.outcome, r.score, r.score_kind,"  # noqa: S608 - constants of ours
    f" r.error_kind, r.answer_mode, r.latency_ns, r.flags, x.text, {EVIDENCE_OF_RECORDS}"
    " FROM records r JOIN defenses d ON d.id = r.defense JOIN layers l ON l.id = r.layer"
    f"{DETAILS_OF_RECORDS}"
)
"""What `record_of` reads; a WHERE clause may follow."""


def shared_of(record: Record) -> tuple[int, int, int, int]:
    """Encode what many records share."""
    evidence = record.evidence
    flags = FLAG_AMORTISED if record.amortised else 0
    if evidence is not None:
        flags |= FLAG_CACHED if evidence.from_cache else 0
        flags |= FLAG_TRUNCATED if evidence.truncated else 0
    return (
        SCORE_KIND_CODE[record.score_kind],
        -1 if record.error_kind is None else ERROR_KIND_CODE[record.error_kind],
        -1 if record.answer_mode is None else ANSWER_MODE_CODE[record.answer_mode],
        flags,
    )


def row_of(record: Record) -> tuple[int, int, float | None, int | None]:
    """Encode what each record has of its own."""
    score = None if record.score is None else float(record.score)
    return record.key.sample, OUTCOME_CODE[record.outcome], score, record.latency_ns


def details_of(record: Record) -> tuple[str | None, str | None] | None:
    """Encode the text and evidence of a record."""
    said = "{}" if record.evidence is None else evidence_to_json(record.evidence)
    if record.text is None and said == "{}":
        return None
    return record.text, None if said == "{}" else said


def record_of(row: tuple[Any, ...]) -> Record:
    """Decode one row of `SELECT_RECORDS`."""
    defense, stage, layer, repeat, sample = row[:5]
    outcome, score, score_kind, error_kind, answer_mode, latency_ns, flags = row[5:12]
    text, evidence = row[12:]
    return Record(
        key=RecordKey(
            defense=defense, sample=sample, repeat=repeat, stage=STAGES[stage], layer=layer
        ),
        outcome=OUTCOME_NAMES[outcome],
        score=score,
        score_kind=SCORE_KINDS[score_kind],
        error_kind=None if error_kind is None else ERROR_KINDS[error_kind],
        answer_mode=None if answer_mode is None else ANSWER_MODES[answer_mode],
        latency_ns=latency_ns,
        amortised=bool(flags & FLAG_AMORTISED),
        text=text,
        evidence=None if evidence is None else evidence_from_json(evidence),
    )
