"""Tries as files: one JSON line each, without times, so that equal seeds give equal bytes."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from guardmark.adaptive.asker import by_key
from guardmark.adaptive.defense_asker import tells_of_failure
from guardmark.adaptive.state import MODEL_ROUND, SENT
from guardmark.core.errors import IncomparableRuns, StoreError
from guardmark.core.limits import LONGEST_CASSETTE_LINE
from guardmark.core.outcome import AnswerMode, ErrorKind, Evidence, Outcome, ScoreKind
from guardmark.store.layers import (
    ADAPTIVE,
    ARMS,
    CANARY_REPLIES,
    MODEL_LAYERS,
    TARGET,
    asked_layers,
    first_layer,
    is_target_layer,
)
from guardmark.store.schema import OUTCOME_CODE
from guardmark.store.tries import TryRecord, TrySubject, read_tries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from guardmark.adaptive.asker import TryKey
    from guardmark.store.reader import RecordReader

_KIND: Final = "guardmark adaptive trace"
_VERSION: Final = 1
_SETTINGS: Final = "settings"
_COMPLAINT: Final = "blocked with word of a failure, says the trace"
_WHERE_TRACES_ARE: Final = (
    "Next: name a trace.jsonl that guardmark adapt wrote, or what --record wrote."
)
_OF_ROW: Final = frozenset(
    (
        "defense",
        "arm",
        "try",
        "sample",
        "account",
        "round",
        "chain",
        "tier",
        "text",
        "size",
        "free",
        "decoded",
        "outcome",
        "score",
        "score_kind",
        "mode",
        "error",
        "reason",
        "complaint",
    )
)
_compact: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def trace_lines(reader: RecordReader, *, defenses: Iterable[str]) -> Iterator[str]:
    """Write every try as a JSON line, the first line telling how they were made."""
    names, asked = tuple(defenses), asked_layers(reader.layers())
    head = {"kind": _KIND, "version": _VERSION, "data": reader.manifest().data_sha256}
    head |= {"defenses": list(names), _SETTINGS: dict(reader.layer_settings(ADAPTIVE))}
    yield _line(head)
    ids = [sample.id for sample in reader.samples()]
    for name in names:
        for layer in (*asked, *MODEL_LAYERS):
            for record in read_tries(reader, defense=name, layer=layer):
                yield _line(_row(record, ids[record.sample]))


def _row(record: TryRecord, sample_id: str) -> dict[str, Any]:
    evidence, round_ = record.evidence, record.subject.round
    row = _shared(record, sample_id, score_kind=record.score_kind.value)
    if evidence is None:
        return row
    # An attacker model is told why it was blocked, so a replay has to know it.
    if round_ == MODEL_ROUND and record.layer == ADAPTIVE and evidence.reason:
        row["reason"] = evidence.reason
    # Round 0 asks whether failures count as blocks, and so does its replay.
    if round_ == "R0" and record.outcome == Outcome.BLOCK.value and tells_of_failure(evidence):
        row["complaint"] = True
    return row


def target_lines(reader: RecordReader) -> Iterator[str]:
    """Write every answer of the target model and its judges as a JSON line, never its words."""
    settings = dict(reader.layer_settings(TARGET))
    if not settings:
        return
    yield _line({"arm": TARGET, _SETTINGS: settings})
    ids = [sample.id for sample in reader.samples()]
    for layer in filter(is_target_layer, reader.layers()):
        for record in read_tries(reader, layer=layer):
            sample_id = None
            if layer != CANARY_REPLIES:
                sample_id = ids[record.sample]
            yield _line(_shared(record, sample_id, mode=record.answer_mode))


def _shared(record: TryRecord, sample_id: str | None, **kind: str | None) -> dict[str, Any]:
    """Tell where a try stands, what it is about, and what came of it."""
    subject = record.subject
    known = {
        "chain": subject.chain,
        "tier": subject.tier,
        "text": subject.digest,
        "size": subject.size,
        "free": record.is_free,
        "decoded": subject.decoded,
    }
    about = {name: value for name, value in known.items() if value is not None}
    details = {name: value for name, value in subject.details.items() if name != SENT}
    return {
        "defense": record.defense,
        "arm": record.layer,
        "try": record.number,
        "sample": sample_id,
        "account": subject.account,
        "round": subject.round,
        **({**details, **about} if subject.chain is None else {**about, **details}),
        "outcome": record.outcome,
        "score": record.score,
        **kind,
        "error": record.error_kind,
    }


def _line(value: Mapping[str, object]) -> str:
    return f"{_compact(value)}\n"


def read_trace(
    path: Path, *, settings: Mapping[str, object], positions: Mapping[str, int]
) -> dict[TryKey, TryRecord]:
    """Read what defenses answered by a trace; replies of models are not read."""
    lines = _parsed_lines(path)
    try:
        head = lines[0]
        names = set(head["defenses"])
        is_trace = head["kind"] == _KIND and head["version"] == _VERSION
    except (KeyError, IndexError, TypeError) as error:
        raise _no_trace(path, "its first line is not that of a trace") from error
    if not is_trace:
        raise _no_trace(path, f"it is not of version {_VERSION}")
    changed = [name for name in settings if head[_SETTINGS].get(name) != settings[name]]
    if changed:  # another search, whose tries would not be these
        raise IncomparableRuns(
            f"{path} was made with another {', '.join(changed)}.\n"
            "Next: replay it with the budget, seed and version it was written with."
        )
    with _errors_of_rows(path):
        rows = [row for row in lines[1:] if first_layer(row["arm"]) in ARMS]
        for row in rows:
            if row["defense"] not in names:
                raise ValueError(names)
        return by_key(_of_row(row, positions) for row in rows)


def read_target_trace(
    path: Path, *, settings: Mapping[str, object], positions: Mapping[str, int]
) -> dict[TryKey, TryRecord]:
    """Read what a trace holds of the target model."""
    lines = _parsed_lines(path)
    try:
        before = lines[0][_SETTINGS]
    except (LookupError, TypeError) as error:
        raise _no_trace(path, "its first line names no target model") from error
    if before != json.loads(json.dumps(dict(settings))):
        raise IncomparableRuns(
            f"{path} was made with another target model, other judges or other canaries.\n"
            "Next: replay it with the configuration it was written with."
        )
    with _errors_of_rows(path):
        return by_key(_of_row(row, positions) for row in lines[1:])


@contextmanager
def _errors_of_rows(path: Path) -> Iterator[None]:
    """Turn errors about a row into one that says that it is not about this run."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise IncomparableRuns(
            f"{path} holds tries at samples or defenses that this run has not, or a damaged "
            "line.\nNext: replay it into a run of the same data and configuration."
        ) from error


def _of_row(row: Mapping[str, Any], positions: Mapping[str, int]) -> TryRecord:
    """Read one try; an unknown word or sample raises ValueError or KeyError."""
    if row["outcome"] not in OUTCOME_CODE:
        raise ValueError(row["outcome"])
    sample, error_kind, answer_mode, evidence = 0, None, None, None
    if row["sample"] is not None:
        sample = positions[row["sample"]]
    if row["error"] is not None:
        error_kind = ErrorKind(row["error"])
    if row.get("mode") is not None:
        answer_mode = AnswerMode(row["mode"])
    if row.get("complaint"):  # its words are not in a trace
        evidence = Evidence(reason=row.get("reason", ""), message=_COMPLAINT)
    elif row.get("reason", ""):
        evidence = Evidence(reason=row["reason"])
    return TryRecord(
        defense=row["defense"],
        layer=row["arm"],
        sample=sample,
        number=row["try"],
        subject=TrySubject(
            account=row["account"],
            round=row["round"],
            digest=row["text"],
            chain=row["chain"],
            tier=row["tier"],
            details={name: value for name, value in row.items() if name not in _OF_ROW},
        ),
        is_free=row["free"],
        outcome=row["outcome"],
        score=row["score"],
        score_kind=ScoreKind(row.get("score_kind", ScoreKind.NONE)),
        error_kind=error_kind,
        answer_mode=answer_mode,
        latency_ns=None,
        evidence=evidence,
    )


def _parsed_lines(path: Path) -> list[Any]:
    """Read the lines of a trace, whatever they hold."""
    lines: list[Any] = []
    if path.exists() and not path.is_file():
        raise _no_trace(path, "it is not a file")
    try:
        with path.open("rb") as stream:
            while line := stream.readline(LONGEST_CASSETTE_LINE + 1):
                if len(line) > LONGEST_CASSETTE_LINE:
                    most = f"{LONGEST_CASSETTE_LINE >> 20} MiB"
                    raise _no_trace(path, f"line {len(lines) + 1} has more than {most}")
                lines.append(json.loads(line))
    except OSError as error:
        raise StoreError(
            f"The trace {path} cannot be read: {error.strerror}.\n{_WHERE_TRACES_ARE}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise _no_trace(path, f"line {len(lines) + 1} is not JSON") from error
    return lines


def _no_trace(path: Path, why: str) -> StoreError:
    """Return the error that a file is no trace."""
    return StoreError(f"{path} is not a trace of adaptive rounds: {why}.\n{_WHERE_TRACES_ARE}")
