"""Records as JSON lines, rows and Parquet for other programs; tries go to `trace.jsonl`."""

from __future__ import annotations

import json
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import ConfigError
from guardmark.store.connect import values_of
from guardmark.store.run_dir import whole_file
from guardmark.store.samples import kinds_of
from guardmark.store.schema import (
    ANSWER_MODES,
    DETAILS_OF_RECORDS,
    ERROR_KINDS,
    FACET_COLUMNS,
    OUTCOME_NAMES,
    SCORE_KINDS,
    STAGES,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from guardmark.store.connect import StoreConnection
    from guardmark.store.reader import RecordReader
    from guardmark.store.samples import Kind


_CHUNK: Final = 250
_WORD: Final = "(SELECT name FROM words WHERE kind = '{0}' AND id = r.{0})"
_SOURCES: Final = {
    "defense": "d.name",
    "stage": _WORD.format("stage"),
    "layer": "l.name",
    "repeat": "r.repeat",
    "position": "r.sample",
    "id": "s.id",
    "sha256": "lower(hex(s.digest))",
    "label": "CASE k.is_attack WHEN 1 THEN 'attack' ELSE 'benign' END",
    **{name: f"k.{name}" for name in FACET_COLUMNS},
    "group": "ifnull(s.origin, s.id)",
    "score": "r.score",
    "latency_ns": "r.latency_ns",
    **{name: _WORD.format(name) for name in ("outcome", "score_kind", "error_kind", "answer_mode")},
    "flags": "r.flags",
    "text": "x.text",
}
COLUMNS: Final = tuple(_SOURCES)
"""Fields of a row, in order; JSON lines have `evidence` too."""

_SELECT: Final = (
    f"SELECT {', '.join(_SOURCES.values())}"  # noqa: S608 - constants of ours
    " FROM records r JOIN defenses d ON d.id = r.defense JOIN layers l ON l.id = r.layer"
    " JOIN samples s ON s.position = r.sample JOIN kinds k ON k.id = s.kind"
    f"{DETAILS_OF_RECORDS}"
    " ORDER BY r.defense, r.stage, r.layer, r.repeat, r.sample"
)


def write_jsonl(reader: RecordReader, path: Path) -> int:
    """Write one JSON object a record."""
    lines = 0
    with whole_file(path) as file, values_of(reader.path):
        for text in _lines_of(reader.connection):
            lines += len(text)
            file.write("".join(text).encode())
    return lines


def record_rows(reader: RecordReader) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Yield the records as rows of `COLUMNS`, some at a time."""
    return reader.connection.chunks(_SELECT, size=_CHUNK)


def write_parquet(reader: RecordReader, path: Path) -> int:
    """Write one Parquet row a record."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ConfigError(
            "Parquet needs pyarrow.\nNext: pip install 'guardmark[parquet]'."
        ) from error
    kinds = {"score": pa.float64()}
    whole = ("repeat", "position", "latency_ns", "flags")
    kinds.update({name: pa.int64() for name in whole})
    table = pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])
    count = 0
    with whole_file(path) as file, pq.ParquetWriter(file, table) as out:
        for rows in record_rows(reader):
            columns = [
                pa.array(values, type=field.type)
                for values, field in zip(zip(*rows, strict=True), table, strict=True)
            ]
            out.write_batch(pa.record_batch(columns, schema=table))
            count += len(rows)
    return count


_PARTS: Final = (
    "SELECT DISTINCT r.defense, r.stage, r.layer, r.repeat, d.name, l.name FROM records r"
    " JOIN defenses d ON d.id = r.defense JOIN layers l ON l.id = r.layer"
    " ORDER BY 1, 2, 3, 4"
)
_HAS_DETAILS: Final = (
    "SELECT 1 FROM details WHERE defense = ? AND stage = ? AND layer = ? AND repeat = ? LIMIT 1"
)
_LEAN: Final = (
    "SELECT r.sample, s.id, s.digest, s.origin, r.score, r.latency_ns, s.kind,"
    # Small numbers travel in one, a byte each: a value handed over costs more than a shift.
    " r.outcome | (r.score_kind << 8) | ((ifnull(r.error_kind, -1) + 1) << 16)"
    " | ((ifnull(r.answer_mode, -1) + 1) << 24) | (r.flags << 32), r.said"
)
_FROM_OF_PART: Final = (
    " FROM records r JOIN samples s ON s.position = r.sample{join}"
    " WHERE r.defense = ? AND r.stage = ? AND r.layer = ? AND r.repeat = ? ORDER BY r.sample"
)


def _lines_of(connection: StoreConnection) -> Iterator[list[str]]:
    """Yield lines, each a JSON object in ASCII with its line end."""
    of_kind = {number: _kind_part(kind) for number, kind in kinds_of(connection).items()}
    shared_evidence = connection.shared_evidence()
    for *key, defense, layer in connection.rows(_PARTS):
        head = json.dumps(
            {"defense": defense, "stage": STAGES[key[1]], "layer": layer, "repeat": key[3]},
            separators=(",", ":"),
        )
        more, join = ", x.text, x.evidence", DETAILS_OF_RECORDS
        if not connection.value(_HAS_DETAILS, key):
            more, join = ", NULL, NULL", ""
        query = f"{_LEAN}{more}{_FROM_OF_PART.format(join=join)}"
        for rows in connection.chunks(query, key, size=_CHUNK):
            yield _lines(rows, head[:-1], of_kind, shared_evidence)


def _lines(
    rows: Sequence[tuple[Any, ...]],
    head: str,
    of_kind: dict[int, str],
    shared_evidence: dict[int, str],
) -> list[str]:
    quote, lines = encode_basestring_ascii, list[str]()
    for row in rows:
        position, name, digest, origin, score, latency, kind, codes, said, text, evidence = row
        sample_id = quote(name)
        lines.append(
            f'{head},"position":{position},"id":{sample_id},"sha256":"{digest.hex()}",'
            f'{of_kind[kind]},"group":{sample_id if origin is None else quote(origin)},'
            f'"score":{"null" if score is None else repr(score)},'
            f'"latency_ns":{"null" if latency is None else latency},{_said_part(codes)},'
            f'"text":{"null" if text is None else quote(text)},'
            f'"evidence":{evidence or shared_evidence.get(said, "null")}}}\n'
        )
    return lines


def _kind_part(kind: Kind) -> str:
    said = {"label": "attack" if kind[0] else "benign"}
    said.update(zip(FACET_COLUMNS, kind[1:], strict=True))
    return json.dumps(said, separators=(",", ":"))[1:-1]


@cache
def _said_part(codes: int) -> str:
    outcome, score_kind, error_kind, answer_mode = codes.to_bytes(8, "little")[:4]
    said = {
        "outcome": OUTCOME_NAMES[outcome],
        "score_kind": SCORE_KINDS[score_kind],
        "error_kind": ERROR_KINDS[error_kind - 1] if error_kind else None,
        "answer_mode": ANSWER_MODES[answer_mode - 1] if answer_mode else None,
        "flags": codes >> 32,
    }
    return json.dumps(said, separators=(",", ":"))[1:-1]
