"""Tries as a file: one JSON line each, without times, so that equal seeds give equal bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from guardmark.adaptive.caller import StoredAnswer, tells_of_failure
from guardmark.core.errors import IncomparableRuns, StoreError
from guardmark.core.layers import ADAPTIVE, ARMS, MODEL_LAYERS, asked_layers, first_layer
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome, ScoreKind
from guardmark.core.record import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from guardmark.adaptive.caller import Place
    from guardmark.core.record import Record
    from guardmark.store.records import RecordReader

_KIND: Final = "guardmark adaptive trace"
_VERSION: Final = 1
_compact: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_COMPLAINT: Final = "blocked with word of a failure, says the trace"
_WHERE_TRACES_ARE: Final = (
    "Next: name a trace.jsonl that guardmark adapt wrote, or what --record wrote."
)


def remembered(records: Iterable[Record]) -> dict[Place, StoredAnswer]:
    """Return stored tries as answers by their place."""
    found: dict[Place, StoredAnswer] = {}
    for record in records:
        if first_layer(record.key.layer) not in ARMS:
            continue  # of models
        note = json.loads(record.text or "{}")
        found[record.key.layer, record.key.sample, record.key.repeat] = StoredAnswer(
            decision=Decision(
                outcome=Outcome(record.outcome),
                score=record.score,
                score_kind=record.score_kind,
                error_kind=record.error_kind,
                evidence=record.evidence,
            ),
            digest=note["text"],
            is_free=note["free"],
        )
    return found


def trace_lines(reader: RecordReader, *, defenses: Iterable[str]) -> Iterator[str]:
    """Write every try as a JSON line, the first line telling how they were made."""
    names, asked = tuple(defenses), asked_layers(reader.layers())
    head = {"kind": _KIND, "version": _VERSION, "data": reader.manifest().data_sha256}
    head |= {"defenses": list(names), "settings": dict(reader.layer_settings(ADAPTIVE))}
    yield _line(head)
    ids = [sample.id for sample in reader.samples()]
    for name in names:
        for layer in (*asked, *MODEL_LAYERS):
            for record in reader.records(defense=name, stage=Stage.TRY, layer=layer):
                yield _line(_row(record, ids[record.key.sample]))


def _row(record: Record, sample_id: str) -> dict[str, Any]:
    error, evidence = record.error_kind, record.evidence
    note: dict[str, Any] = json.loads(record.text or "{}")
    # An attacker model is told why it was blocked, so a replay has to know it.
    is_told = note.get("round") == "R5" and record.key.layer == ADAPTIVE
    reason = evidence.reason if is_told and evidence is not None else ""
    # Round 0 asks whether failures count as blocks, and so does its replay.
    is_asked = note.get("round") == "R0" and record.outcome == Outcome.BLOCK.value
    is_complaint = is_asked and evidence is not None and tells_of_failure(evidence)
    return {
        "defense": record.key.defense,
        "arm": record.key.layer,
        "try": record.key.repeat,
        "sample": sample_id,
        **note,
        "outcome": record.outcome,
        "score": record.score,
        "score_kind": record.score_kind.value,
        "error": None if error is None else error.value,
        **({"reason": reason} if reason else {}),
        **({"complaint": True} if is_complaint else {}),
    }


def _line(value: Mapping[str, object]) -> str:
    return f"{_compact(value)}\n"


def read_trace(
    path: Path, *, settings: Mapping[str, object], positions: Mapping[str, int]
) -> dict[str, dict[Place, StoredAnswer]]:
    """Read the answers of a trace."""
    lines = parsed_lines(path)
    try:
        head = lines[0]
        found: dict[str, dict[Place, StoredAnswer]] = {name: {} for name in head["defenses"]}
        is_trace = head["kind"] == _KIND and head["version"] == _VERSION
    except (KeyError, IndexError, TypeError) as error:
        raise no_trace(path, "its first line is not that of a trace") from error
    if not is_trace:
        raise no_trace(path, f"it is not of version {_VERSION}")
    changed = [name for name in settings if head["settings"].get(name) != settings[name]]
    if changed:
        raise IncomparableRuns(
            f"{path} was made with another {', '.join(changed)}.\n"
            "Next: replay it with the budget, seed and version it was written with."
        )
    try:
        for row in lines[1:]:
            if first_layer(row["arm"]) not in ARMS:
                continue
            place = (row["arm"], positions[row["sample"]], row["try"])
            found[row["defense"]][place] = _answer(row)
    except (KeyError, TypeError, ValueError) as error:
        raise other_data(path) from error
    return found


def parsed_lines(path: Path) -> list[Any]:
    """Read the lines of a trace, whatever they hold."""
    lines = []
    try:
        with path.open(encoding="utf-8") as stream:
            for line in stream:
                lines.append(json.loads(line))  # noqa: PERF401 - their count says which was bad
    except OSError as error:
        raise StoreError(
            f"The trace {path} cannot be read: {error.strerror}.\n{_WHERE_TRACES_ARE}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise no_trace(path, f"line {len(lines) + 1} is no JSON") from error
    return lines


def no_trace(path: Path, why: str) -> StoreError:
    """Return the error that a file is no trace."""
    return StoreError(f"{path} is no trace of an adaptive measurement: {why}.\n{_WHERE_TRACES_ARE}")


def other_data(path: Path) -> IncomparableRuns:
    """Return the error that a trace holds tries at other samples or defenses."""
    return IncomparableRuns(
        f"{path} holds tries at samples or defenses that this run has not, or a damaged line.\n"
        "Next: replay it into a run of the same data and configuration."
    )


def _answer(row: Mapping[str, Any]) -> StoredAnswer:
    error = row["error"]
    decision = Decision(
        outcome=Outcome(row["outcome"]),
        score=row["score"],
        score_kind=ScoreKind(row["score_kind"]),
        error_kind=None if error is None else ErrorKind(error),
        evidence=_evidence(row),
    )
    return StoredAnswer(decision=decision, digest=row["text"], is_free=row["free"])


def _evidence(row: Mapping[str, Any]) -> Evidence | None:
    """What of an answer's evidence a trace holds; the words of a complaint are not in it."""
    if "reason" not in row and not row.get("complaint"):
        return None
    return Evidence(
        reason=row.get("reason", ""), message=_COMPLAINT if row.get("complaint") else ""
    )
