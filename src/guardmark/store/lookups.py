"""What a run asks of its records while it goes: what is stored, what is missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from guardmark.store import connect
from guardmark.store.samples import chunk_of, count, kinds_of
from guardmark.store.schema import ERROR_KIND_CODE, OUTCOME_NAMES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from guardmark.store.record_batch import RecordBatch
    from guardmark.store.samples import Chunk


_CHUNK: Final = 250
_OUTCOMES: Final = len(OUTCOME_NAMES)
_OF_PART: Final = "r.defense = ? AND r.stage = ? AND r.layer = ? AND r.repeat = ?"
_RANGE: Final = (
    "SELECT position, kind, text, prompt FROM samples s WHERE position >= ? AND position < ?"
)
_PICKED: Final = (
    "SELECT position, kind, text, prompt FROM samples s"
    " WHERE position IN (SELECT value FROM json_each(?))"
)
_GAP: Final = (
    "NOT EXISTS (SELECT 1 FROM records r WHERE r.sample = s.position AND r.defense = ?"
    " AND r.stage = ? AND r.layer = ? AND r.repeat = ?)"
)


class Stored:
    """Questions about what is committed; rows a batch has only taken do not count."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    @property
    def is_complete(self) -> bool:
        """Whether the run came to its end."""
        with connect.errors_of(self._path):
            return meta(self._connection, "state") == "complete"

    def count(self, batch: RecordBatch) -> int:
        """Count the records of a part."""
        query = f"SELECT count(*) FROM records r WHERE {_OF_PART}"  # noqa: S608 - a constant of ours
        return int(self._all(query, batch.key)[0][0])

    def has_tries(self, layer: str) -> bool:
        """Tell whether anything stands in a layer of tries."""
        query = "SELECT 1 FROM tries WHERE layer = (SELECT id FROM layers WHERE name = ?) LIMIT 1"
        return bool(self._all(query, (layer,)))

    def count_by_outcome(self, batch: RecordBatch) -> list[int]:
        """Count the records of a part by outcome, benign samples first, then attacks."""
        query = (
            "SELECT k.is_attack, r.outcome, count(*) FROM records r"  # noqa: S608 - a constant of ours
            " JOIN samples s ON s.position = r.sample JOIN kinds k ON k.id = s.kind"
            f" WHERE {_OF_PART} GROUP BY 1, 2"
        )
        counts = [0] * (2 * _OUTCOMES)
        for is_attack, outcome, number in self._all(query, batch.key):
            counts[outcome + _OUTCOMES * is_attack] = number
        return counts

    def outcomes(self, batch: RecordBatch, positions: Sequence[int]) -> dict[int, int]:
        """Return the outcome codes of some samples in a part."""
        query = (
            f"SELECT sample, outcome FROM records r WHERE {_OF_PART}"  # noqa: S608 - a constant of ours
            " AND sample IN (SELECT value FROM json_each(?))"
        )
        return dict(self._all(query, (*batch.key, json.dumps(positions))))

    def texts(self, batch: RecordBatch, positions: Sequence[int]) -> dict[int, str]:
        """Return the stored answers of some samples in a part."""
        query = (
            f"SELECT sample, text FROM details r WHERE {_OF_PART} AND text IS NOT NULL"  # noqa: S608 - a constant of ours
            " AND sample IN (SELECT value FROM json_each(?))"
        )
        return dict(self._all(query, (*batch.key, json.dumps(positions))))

    def pending(
        self, batch: RecordBatch | None, *, size: int = _CHUNK, order: Sequence[int] | None = None
    ) -> Iterator[Chunk]:
        """Yield the samples that have no record of a part."""
        with connect.errors_of(self._path):
            total = count(self._connection)
            attacks = {n for n, kind in kinds_of(self._connection).items() if kind[0]}
        found = 0 if batch is None else self.count(batch)
        if found >= total and batch is not None:
            return
        gap, key = (f" AND {_GAP}", batch.key) if batch is not None and found else ("", ())
        for start in range(0, total, size):
            rows: list[Any]
            if order is None:
                end = min(start + size, total)
                rows = self._all(f"{_RANGE}{gap} ORDER BY position", (start, end, *key))
            else:
                wanted = list(order[start : start + size])
                found_rows = self._all(f"{_PICKED}{gap}", (json.dumps(wanted), *key))
                by_position = {row[0]: row for row in found_rows}
                rows = [by_position[position] for position in wanted if position in by_position]
            if rows:
                yield chunk_of(rows, attacks)

    def _all(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        with connect.errors_of(self._path):
            return self._connection.execute(query, values).fetchall()


def meta(connection: sqlite3.Connection, key: str) -> str | None:
    """Return one value of the table of single values."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def put_meta(connection: sqlite3.Connection, key: str, value: str) -> None:
    """Store one value in the table of single values."""
    connection.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = ?",
        (key, value, value),
    )


def count_superseded(connection: sqlite3.Connection) -> int:
    """Count the errors that were asked about again."""
    if not has_superseded(connection):
        return 0
    query = "SELECT count(*) FROM superseded WHERE error_kind IS NOT ?"
    return int(connection.execute(query, (ERROR_KIND_CODE["skipped"],)).fetchone()[0])


def has_superseded(connection: sqlite3.Connection) -> bool:
    """Tell whether a file has the table; it is made when errors are first asked about again."""
    query = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'superseded'"
    return connection.execute(query).fetchone() is not None
