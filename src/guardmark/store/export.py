"""Records as JSON lines, CSV and Parquet, for other programs.

Tries of an adaptive attacker are not among them: they are about variants, not about the samples
whose id they carry, and would be counted with them. They are exported as `trace.jsonl`.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import ConfigError
from guardmark.core.record import Stage
from guardmark.store import connect, jsonl
from guardmark.store.codes import STAGE_CODE
from guardmark.store.run_dir import whole_file
from guardmark.store.schema import DETAILS_OF_RECORDS, FACET_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from guardmark.store.reader import RecordReader

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
    f" WHERE r.stage <> {STAGE_CODE[Stage.TRY]}"
    " ORDER BY r.defense, r.stage, r.layer, r.repeat, r.sample"
)


def write_jsonl(reader: RecordReader, path: Path) -> int:
    """Write one JSON object a record, tries left out."""
    lines = 0
    with whole_file(path) as file, connect.errors_of(reader.path):
        for text in jsonl.lines_of(reader.connection, _CHUNK):
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
