"""Records as JSON lines and rows for other programs; tries go to `trace.jsonl`."""

from __future__ import annotations

import json
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, Final

from guardmark.store import schema
from guardmark.store.connect import values_of
from guardmark.store.samples import kinds_of, label_of
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from guardmark.store.connect import StoreConnection
    from guardmark.store.reader import RecordReader
    from guardmark.store.samples import Kind

    Parts = Mapping[tuple[str, ...], Mapping[str, object]]  # of defense, stage and layer

_CHUNK: Final = 250
COLUMNS: Final = (
    "defense",
    "stage",
    "layer",
    "repeat",
    "position",
    "id",
    "sha256",
    "label",
    *schema.FACET_COLUMNS,
    "group",
    "score",
    "latency_ns",
    "outcome",
    "score_kind",
    "error_kind",
    "answer_mode",
    "flags",
    "text",
)
"""Fields of a row, in order; JSON lines have `evidence` too."""


def write_jsonl(reader: RecordReader, path: Path, *, parts: Parts | None = None) -> int:
    """Write one JSON object a record, with what is told of the part that gave it."""
    lines = 0
    with whole_file(path) as file, values_of(reader.path):
        for text in _lines_of(reader.connection, parts or {}):
            lines += len(text)
            file.write("".join(text).encode())
    return lines


def record_rows(reader: RecordReader) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Yield the records as rows of `COLUMNS`, some at a time."""
    return reader.connection.chunks(schema.query("rows"), size=_CHUNK)


def _lines_of(connection: StoreConnection, parts: Parts) -> Iterator[list[str]]:
    """Yield lines, each a JSON object in ASCII with its line end."""
    of_kind = {number: _kind_part(kind) for number, kind in kinds_of(connection).items()}
    defenses, layers = (connection.names(table) for table in ("defenses", "layers"))

    @cache
    def head(defense: int, stage: int, layer: int) -> str:
        key = {"defense": defenses[defense], "stage": schema.STAGES[stage], "layer": layers[layer]}
        return json.dumps(key | dict(parts.get((*key.values(),), {})), separators=(",", ":"))[:-1]

    shared_evidence, quote = connection.shared_evidence(), encode_basestring_ascii
    for rows in connection.chunks(schema.query("lines"), size=_CHUNK):
        lines = list[str]()
        for defense, stage, layer, repeat, position, name, digest, origin, *more in rows:
            score, latency, kind, codes, shared, text, evidence = more
            sample_id = quote(name)
            lines.append(
                f'{head(defense, stage, layer)},"repeat":{repeat},"position":{position},'
                f'"id":{sample_id},"sha256":"{digest.hex()}",{of_kind[kind]},'
                f'"group":{sample_id if origin is None else quote(origin)},'
                f'"score":{"null" if score is None else repr(score)},'
                f'"latency_ns":{"null" if latency is None else latency},{_said_part(codes)},'
                f'"text":{"null" if text is None else quote(text)},'
                f'"evidence":{evidence or shared_evidence.get(shared, "null")}}}\n'
            )
        yield lines


def _kind_part(kind: Kind) -> str:
    fields = {"label": label_of(kind).value}
    fields.update(zip(schema.FACET_COLUMNS, kind[1:], strict=True))
    return json.dumps(fields, separators=(",", ":"))[1:-1]


@cache
def _said_part(codes: int) -> str:
    outcome, score_kind, error_kind, answer_mode = codes.to_bytes(8, "little")[:4]
    fields = {
        "outcome": schema.OUTCOME_NAMES[outcome],
        "score_kind": schema.SCORE_KINDS[score_kind],
        "error_kind": schema.ERROR_KINDS[error_kind - 1] if error_kind else None,
        "answer_mode": schema.ANSWER_MODES[answer_mode - 1] if answer_mode else None,
        "flags": codes >> 32,
    }
    return json.dumps(fields, separators=(",", ":"))[1:-1]
