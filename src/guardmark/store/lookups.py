"""What a run asks of its records while it goes: what is stored, what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.store.samples import chunk_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from guardmark.store.lanes import Lane
    from guardmark.store.samples import Chunk

_LANE: Final = "r.defense = ? AND r.stage = ? AND r.layer = ? AND r.repeat = ?"
_ALL: Final = (
    "SELECT position, is_attack, text, prompt FROM samples s WHERE position >= ? AND position < ?"
)
_GAP: Final = (
    "NOT EXISTS (SELECT 1 FROM records r WHERE r.sample = s.position AND r.defense = ?"
    " AND r.stage = ? AND r.layer = ? AND r.repeat = ?)"
)


def stored(connection: sqlite3.Connection, lane: Lane) -> int:
    """Count the committed records of a lane.

    Args:
        connection: Any.
        lane: Which part's answers.

    Returns:
        Rows on disk.
    """
    query = f"SELECT count(*) FROM records r WHERE {_LANE}"  # noqa: S608 - a constant of ours
    return int(connection.execute(query, lane.key).fetchone()[0])


def tally(connection: sqlite3.Connection, lane: Lane) -> list[int]:
    """Count the committed records of a lane by label and outcome.

    Args:
        connection: Any.
        lane: Which part's answers.

    Returns:
        Fourteen counts: index `outcome + 7 * is_attack`.
    """
    query = (
        "SELECT s.is_attack, r.outcome, count(*) FROM records r"  # noqa: S608 - a constant of ours
        f" JOIN samples s ON s.position = r.sample WHERE {_LANE} GROUP BY 1, 2"
    )
    counts = [0] * 14
    for is_attack, outcome, count in connection.execute(query, lane.key):
        counts[outcome + 7 * is_attack] = count
    return counts


def pending(
    connection: sqlite3.Connection, lane: Lane, *, total: int, size: int
) -> Iterator[Chunk]:
    """Yield the samples that have no committed record in a lane.

    Args:
        connection: Any.
        lane: Which part's answers.
        total: Number of samples.
        size: Most samples of a chunk.

    Yields:
        Chunks in order of position, each read when it is asked for.
    """
    found = stored(connection, lane)
    if found >= total:
        return
    query = f"{_ALL} AND {_GAP} ORDER BY position" if found else f"{_ALL} ORDER BY position"
    for start in range(0, total, size):
        # Short queries: one long read would keep the log from being cut.
        bounds = (start, min(start + size, total))
        rows = connection.execute(query, (*bounds, *lane.key) if found else bounds).fetchall()
        if rows:
            yield chunk_of(rows)


def meta(connection: sqlite3.Connection, key: str) -> str | None:
    """Return one value of the table of single values.

    Args:
        connection: Any.
        key: Its name.

    Returns:
        The value, or None.
    """
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def put_meta(connection: sqlite3.Connection, key: str, value: str) -> None:
    """Store one value in the table of single values.

    Args:
        connection: A writable one.
        key: Its name.
        value: What to store; an earlier value is replaced.
    """
    connection.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = ?",
        (key, value, value),
    )
