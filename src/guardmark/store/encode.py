"""A record as the columns of a row, and back."""

from __future__ import annotations

from typing import Any, Final

from guardmark.core.record import Record, RecordKey
from guardmark.store.codec import evidence_from_json, evidence_to_json
from guardmark.store.codes import (
    ANSWER_MODE_CODE,
    ANSWER_MODES,
    ERROR_KIND_CODE,
    ERROR_KINDS,
    FLAG_AMORTISED,
    FLAG_CACHED,
    FLAG_TRUNCATED,
    OUTCOME_CODE,
    OUTCOME_NAMES,
    SCORE_KIND_CODE,
    SCORE_KINDS,
    STAGES,
)
from guardmark.store.schema import DETAILS_OF_RECORDS, EVIDENCE_OF_RECORDS

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
