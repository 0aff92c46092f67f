"""Answers of the target model as a file of JSON lines: what came of them, never the words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from guardmark.adaptive.trace import no_trace, other_data, parsed_lines
from guardmark.core.errors import IncomparableRuns
from guardmark.core.layers import CANARY_REPLIES, TARGET, is_target_layer
from guardmark.core.outcome import AnswerMode, ErrorKind
from guardmark.core.record import Record, RecordKey, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from guardmark.store.records import RecordReader

_SETTINGS: Final = "settings"


def stored_answers(reader: RecordReader) -> dict[RecordKey, Record]:
    """Return what the target model and its judges said already."""
    return {record.key: record for record in _records(reader)}


def _records(reader: RecordReader) -> Iterator[Record]:
    for layer in reader.layers():
        if is_target_layer(layer):
            yield from reader.records(stage=Stage.TRY, layer=layer)


def target_lines(reader: RecordReader) -> Iterator[str]:
    """Write every answer of the target model and its judges as a JSON line."""
    settings = dict(reader.layer_settings(TARGET))
    if not settings:
        return
    yield _line({"arm": TARGET, _SETTINGS: settings})
    ids = [sample.id for sample in reader.samples()]
    for record in _records(reader):
        key, error, mode = record.key, record.error_kind, record.answer_mode
        yield _line(
            {
                "defense": key.defense,
                "arm": key.layer,
                "try": key.repeat,
                "sample": None if key.layer == CANARY_REPLIES else ids[key.sample],
                **json.loads(record.text or "{}"),
                "outcome": record.outcome,
                "score": record.score,
                "mode": None if mode is None else mode.value,
                "error": None if error is None else error.value,
            }
        )


def read_target_trace(
    path: Path, *, settings: Mapping[str, object], positions: Mapping[str, int]
) -> dict[RecordKey, Record]:
    """Read what a trace says of the target model."""
    lines = parsed_lines(path)
    try:
        said = lines[0][_SETTINGS]
    except (LookupError, TypeError) as error:
        raise no_trace(path, "its first line names no target model") from error
    if said != json.loads(json.dumps(dict(settings))):
        raise IncomparableRuns(
            f"{path} was made with another target model, other judges or other canaries.\n"
            "Next: replay it with the configuration it was written with."
        )
    try:
        records = [_record(row, positions) for row in lines[1:]]
    except (KeyError, TypeError, ValueError) as error:
        raise other_data(path) from error
    return {record.key: record for record in records}


def _record(row: Mapping[str, Any], positions: Mapping[str, int]) -> Record:
    known = {"defense", "arm", "try", "sample", "outcome", "score", "mode", "error"}
    mode, error = row["mode"], row["error"]
    return Record(
        key=RecordKey(
            defense=row["defense"],
            sample=0 if row["sample"] is None else positions[row["sample"]],
            repeat=row["try"],
            stage=Stage.TRY,
            layer=row["arm"],
        ),
        outcome=row["outcome"],
        score=row["score"],
        answer_mode=None if mode is None else AnswerMode(mode),
        error_kind=None if error is None else ErrorKind(error),
        text=_compact({name: value for name, value in row.items() if name not in known}),
    )


def _line(value: Mapping[str, object]) -> str:
    return _compact(value) + "\n"


def _compact(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
