"""Records as JSON lines, CSV and Parquet, for other programs.

Tries of an adaptive attacker are not among them: they are about variants, not about the samples
whose id they carry, and would be counted with them. They are exported as `trace.jsonl`.
"""

from __future__ import annotations

import csv
import io
import json
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import ConfigError
from guardmark.store import connect
from guardmark.store.record_batch import read_shared_evidence
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
    import sqlite3
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from guardmark.store.reader import RecordReader
    from guardmark.store.samples import Kind


_CHUNK: Final = 250
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
COLUMNS: Final = (
    "defense",
    "stage",
    "layer",
    "repeat",
    "position",
    "id",
    "sha256",
    "label",
    *FACET_COLUMNS,
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

_WORD: Final = "(SELECT name FROM words WHERE kind = '{0}' AND id = r.{0})"
_SOURCES: Final[dict[str, str]] = {
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
    "outcome": _WORD.format("outcome"),
    "score": "r.score",
    "score_kind": _WORD.format("score_kind"),
    "error_kind": _WORD.format("error_kind"),
    "answer_mode": _WORD.format("answer_mode"),
    "latency_ns": "r.latency_ns",
    "flags": "r.flags",
    "text": "x.text",
}
_FROM: Final = (
    " FROM records r JOIN defenses d ON d.id = r.defense JOIN layers l ON l.id = r.layer"
    " JOIN samples s ON s.position = r.sample JOIN kinds k ON k.id = s.kind"
    f"{DETAILS_OF_RECORDS}"
    " ORDER BY r.defense, r.stage, r.layer, r.repeat, r.sample"
)


def write_jsonl(reader: RecordReader, path: Path) -> int:
    """Write one JSON object a record, tries left out."""
    lines = 0
    with whole_file(path) as file, connect.errors_of(reader.path):
        for text in _lines_of(reader.connection, _CHUNK):
            lines += len(text)
            file.write("".join(text).encode())
    return lines


def write_csv(reader: RecordReader, path: Path) -> int:
    """Write one CSV row a record, tries left out, safe in a spreadsheet.

    A text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    count = 0
    with whole_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        out = csv.writer(text)
        out.writerow(COLUMNS)
        for rows in _rows(reader):
            out.writerows([[_inert(value) for value in row] for row in rows])
            count += len(rows)
        text.flush()
        text.detach()
    return count


def write_parquet(reader: RecordReader, path: Path) -> int:
    """Write one Parquet row a record, tries left out."""
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
        for rows in _rows(reader):
            columns = [
                pa.array(values, type=field.type)
                for values, field in zip(zip(*rows, strict=True), table, strict=True)
            ]
            out.write_batch(pa.record_batch(columns, schema=table))
            count += len(rows)
    return count


def _rows(reader: RecordReader) -> Iterator[list[tuple[Any, ...]]]:
    fields = ", ".join(_SOURCES[name] for name in COLUMNS)
    with connect.errors_of(reader.path):
        cursor = reader.connection.execute(f"SELECT {fields}{_FROM}")
        while rows := cursor.fetchmany(_CHUNK):
            yield rows


def _inert(value: object) -> object:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


_PARTS: Final = (
    "SELECT DISTINCT r.defense, r.stage, r.layer, r.repeat, d.name, l.name FROM records r"
    " JOIN defenses d ON d.id = r.defense JOIN layers l ON l.id = r.layer"
    " ORDER BY 1, 2, 3, 4"
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


def _lines_of(connection: sqlite3.Connection, size: int) -> Iterator[list[str]]:
    """Yield lines, each a JSON object in ASCII with its line end.

    Tries of an adaptive attacker are left out: they are about texts that the data do not hold.
    """
    of_kind = {number: _kind_part(kind) for number, kind in kinds_of(connection).items()}
    shared_evidence = read_shared_evidence(connection)
    for *key, defense, layer in connection.execute(_PARTS).fetchall():
        head = json.dumps(
            {"defense": defense, "stage": STAGES[key[1]], "layer": layer, "repeat": key[3]},
            separators=(",", ":"),
        )
        has_details = connection.execute(
            "SELECT 1 FROM details WHERE defense = ? AND stage = ? AND layer = ? AND repeat = ?"
            " LIMIT 1",
            key,
        ).fetchone()
        more, join = (", x.text, x.evidence", DETAILS_OF_RECORDS)
        if not has_details:
            more, join = (", NULL, NULL", "")
        cursor = connection.execute(f"{_LEAN}{more}{_FROM_OF_PART.format(join=join)}", key)
        while rows := cursor.fetchmany(size):
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
