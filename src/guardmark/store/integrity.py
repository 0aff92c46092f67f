"""The hash chain over committed batches, and whether records are what was committed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.sample import Prompt
from guardmark.store import connect, lookups, samples
from guardmark.store.migrations import AS_DETAILS, AS_RECORDS, changed_tries
from guardmark.store.schema import OUTCOME_CODE, WORDS
from guardmark.store.tries import COLUMNS, CONFIRMATION_COLUMNS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


_ROWS: Final = (
    "SELECT batch, defense, stage, layer, repeat, score_kind, ifnull(error_kind, -1),"
    " ifnull(answer_mode, -1), flags, said IS NOT NULL, sample, outcome, score, latency_ns, said"
    " FROM"
)
_ROWS_BY: Final = "ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11"
_OLD_ROWS: Final = "(SELECT *, NULL AS said FROM superseded)"  # errors: they share no words
_DETAILS: Final = "SELECT batch, defense, stage, layer, repeat, sample, text, evidence FROM"
_DETAILS_BY: Final = "ORDER BY 1, 2, 3, 4, 5, 6"
_SAYS: Final = "WHERE text IS NOT NULL OR evidence IS NOT NULL"
_TRIES: Final = (
    (
        f"SELECT batch, defense, layer, {COLUMNS} FROM tries"  # noqa: S608 - constants of ours
        " WHERE note IS NULL ORDER BY 1, 2, 3, 4, 5"
    ),
    (
        # What older tries came to was derived from them, and is checked by deriving it again.
        f"SELECT batch, defense, layer, {CONFIRMATION_COLUMNS} FROM confirmations c"  # noqa: S608 - constants of ours
        " WHERE NOT EXISTS (SELECT 1 FROM tries t WHERE t.note IS NOT NULL AND t.batch = c.batch)"
        " ORDER BY 1, 2, 3, 4, 5"
    ),
)
_PLANNED: Final = (
    "SELECT count(*) FROM records r JOIN words w ON w.kind = 'stage' AND w.id = r.stage"
    " WHERE w.name <> 'warmup'"
    " AND r.layer IN (SELECT id FROM layers WHERE name = 'run' OR name LIKE 'run/%')"
)
_MOST: Final = 5  # findings of one sort that are listed one by one


def check(path: Path) -> list[str]:
    """Compare the records of a run with their seals and their hash chain.

    A person who may write the file can also compute new seals, so this finds accidents and
    careless changes; keep the head of the chain elsewhere to find the others.
    """
    connection = connect.open_to_read(path)
    try:
        with connect.errors_of(path):
            return [
                *_file(connection),
                *_samples(connection),
                *_batches(connection),
                *_strays(connection),
                *_superseded(connection),
                *_old_tries(connection),
                *_end(connection),
            ]
    finally:
        connect.close_reading(connection, path)


def _file(connection: sqlite3.Connection) -> Iterator[str]:
    for (said,) in connection.execute("PRAGMA integrity_check(5)").fetchall():
        if said != "ok":
            yield f"The file is damaged: {said}."
    known = [(kind, code, name) for kind, names in WORDS.items() for code, name in enumerate(names)]
    query = "SELECT kind, id, name FROM words"
    if sorted(known) != sorted(connection.execute(query).fetchall()):
        yield "The table of words was changed: its integers no longer mean what was written."


def _samples(connection: sqlite3.Connection) -> Iterator[str]:
    seal = lookups.meta(connection, "samples")
    if seal is None:
        yield "The samples were never stored completely."
        return
    if samples.seal_of(connection) != seal:
        yield "The samples are not those of the run: an id, label, facet or hash was changed."
    wrong = 0
    query = "SELECT id, digest, text, prompt, length FROM samples ORDER BY position"
    for sample_id, digest, text, conversation, length in connection.execute(query):
        prompt = samples.prompt_from_json(conversation) if conversation else Prompt.of_text(text)
        if prompt.digest() != digest or prompt.text != text or len(text) != length:
            wrong += 1
            if wrong <= _MOST:
                yield f"The text of sample {sample_id!r} is not the one that was sent."
    if wrong > _MOST:
        yield f"The texts of {wrong} samples are not those that were sent."


def _batches(connection: sqlite3.Connection) -> Iterator[str]:
    names = dict(connection.execute("SELECT id, name FROM defenses").fetchall())
    layers = dict(connection.execute("SELECT id, name FROM layers").fetchall())
    committed = connection.execute("SELECT id, rows, hash FROM batches ORDER BY id").fetchall()
    rows_too, details_too = f"UNION ALL {AS_RECORDS}", f"UNION ALL {AS_DETAILS}"
    # A record that a second attempt replaced still belongs to the batch it came with.
    if lookups.has_superseded(connection):
        rows_too += f" UNION ALL {_ROWS} {_OLD_ROWS}"
        details_too += f" UNION ALL {_DETAILS} superseded {_SAYS}"
    rows = _Groups(connection.execute(f"{_ROWS} records {rows_too} {_ROWS_BY}"))
    query = f"{_DETAILS} details {details_too} {_DETAILS_BY}"
    details = _Groups(connection.cursor().execute(query))
    manifest = lookups.meta(connection, "manifest") or ""
    query = "SELECT batch, id, evidence FROM sayings ORDER BY batch, id"
    shared_evidence = _Groups(connection.cursor().execute(query))
    tries, confirmations = (_Groups(connection.cursor().execute(each)) for each in _TRIES)
    head = genesis(manifest, lookups.meta(connection, "samples") or "")
    for place, (number, count, wanted) in enumerate(committed, 1):
        if number != place:
            yield f"Batch {place} is missing."
            return
        found = rows.of(number)
        tried, confirmed = tries.of(number), confirmations.of(number)
        there = len(found) + len(tried) + len(confirmed)
        if there != count:
            yield f"Batch {number} has {there} records; {count} were committed."
        said = _parts(found, details.of(number), names=names, layers=layers)
        tried_at = _tries(tried, confirmed, names=names, layers=layers)
        evidence = shared_evidence.of(number)
        if link(head, said, shared_evidence=evidence, tries=tried_at) != wanted:
            what = "A record" if number > 1 else "The manifest, a seal or a record"
            yield f"{what} of batch {number} was changed, exchanged, added or taken away."
        head = wanted


class _Groups:
    """Rows of one batch after the other, so that memory stays flat."""

    def __init__(self, cursor: Iterator[tuple[Any, ...]]) -> None:
        self._groups = groupby(cursor, key=lambda row: row[0])
        self._ahead = next(self._groups, None)

    def of(self, batch: int) -> list[tuple[Any, ...]]:
        while self._ahead is not None and self._ahead[0] < batch:
            self._ahead = next(self._groups, None)
        if self._ahead is None or self._ahead[0] != batch:
            return []
        rows = [row[1:] for row in self._ahead[1]]
        self._ahead = next(self._groups, None)
        return rows


def _parts(
    rows: list[tuple[Any, ...]],
    details: list[tuple[Any, ...]],
    *,
    names: dict[int, str],
    layers: dict[int, str],
) -> Iterator[BatchRows]:
    said: dict[tuple[int, ...], list[tuple[Any, ...]]] = {}
    for row in details:
        said.setdefault(row[:4], []).append(row[4:])
    for key, part in groupby(rows, key=lambda row: row[:4]):
        groups: list[Group] = []
        with_shared: list[Group] = []
        for (*shared, is_shared_one), group in groupby(part, key=lambda row: row[4:9]):
            if is_shared_one:
                with_shared.append((shared, [row[9:] for row in group]))
            else:
                groups.append((shared, [row[9:-1] for row in group]))
        yield BatchRows(
            defense=names.get(key[0], ""),
            stage=key[1],
            layer=layers.get(key[2], ""),
            repeat=key[3],
            groups=groups,
            details=said.get(key, []),
            said=with_shared,
        )


def _tries(
    tries: list[tuple[Any, ...]],
    confirmations: list[tuple[Any, ...]],
    *,
    names: dict[int, str],
    layers: dict[int, str],
) -> list[TryRows]:
    lanes: dict[tuple[int, int], tuple[list[Any], list[Any]]] = {}
    for at, rows in enumerate((tries, confirmations)):
        for defense, layer, *row in rows:
            lanes.setdefault((defense, layer), ([], []))[at].append(row)
    return [
        (names.get(defense, ""), layers.get(layer, ""), *rows)
        for (defense, layer), rows in sorted(lanes.items())
    ]


def _strays(connection: sqlite3.Connection) -> Iterator[str]:
    for what, query in (
        (
            "records belong to no batch",
            "SELECT count(*) FROM records WHERE batch NOT IN (SELECT id FROM batches)",
        ),
        (
            "records belong to no sample",
            "SELECT count(*) FROM records WHERE sample NOT IN (SELECT position FROM samples)",
        ),
        (
            "tries belong to no batch or no sample",
            (
                "SELECT count(*) FROM tries WHERE batch NOT IN (SELECT id FROM batches)"
                " OR sample NOT IN (SELECT position FROM samples)"
            ),
        ),
        (
            "records rest on words that are not stored",
            (
                "SELECT count(*) FROM records WHERE said IS NOT NULL"
                " AND said NOT IN (SELECT id FROM sayings)"
            ),
        ),
        (
            "details belong to no record",
            (
                "SELECT count(*) FROM details x WHERE NOT EXISTS (SELECT 1 FROM records r"
                " WHERE r.defense = x.defense AND r.stage = x.stage AND r.layer = x.layer"
                " AND r.repeat = x.repeat AND r.sample = x.sample AND r.batch = x.batch)"
            ),
        ),
    ):
        (count,) = connection.execute(query).fetchone()
        if count:
            yield f"{count} {what}."


def _superseded(connection: sqlite3.Connection) -> Iterator[str]:
    if not lookups.has_superseded(connection):
        return
    query = "SELECT count(*) FROM superseded WHERE outcome != ?"
    (count,) = connection.execute(query, (OUTCOME_CODE["error"],)).fetchone()
    if count:
        yield f"{count} records were set aside for a second attempt and are no errors."


def _old_tries(connection: sqlite3.Connection) -> Iterator[str]:
    if count := changed_tries(connection):
        yield f"{count} tries of an older version do not say what was committed."


def _end(connection: sqlite3.Connection) -> Iterator[str]:
    state, noted = lookups.meta(connection, "state"), lookups.meta(connection, "head")
    if noted is None or state == "running":
        return  # killed, or under way: what was committed last is not noted
    last = connection.execute("SELECT id, hash FROM batches ORDER BY id DESC LIMIT 1").fetchone()
    number, head = last or (0, b"")
    if noted != f"{number}:{head.hex()}":
        yield f"The run ended with batch {noted.partition(':')[0]}; the last one here is {number}."
    planned = int(lookups.meta(connection, "planned") or 0)
    (stored,) = connection.execute(_PLANNED).fetchone()
    if state == "complete" and stored != planned:
        yield f"The run is marked complete with {stored} of {planned} records."


Row = tuple[Any, ...]
Group = tuple["Sequence[int]", "Sequence[Row]"]
TryRows = tuple[str, str, "Sequence[Row]", "Sequence[Row]"]
"""Names of a defense and a layer, the tries there, and what came of their re-sends."""


def genesis(manifest: str, samples_seal: str) -> bytes:
    """Hash what stands before the first batch."""
    return sha256(json.dumps(["guardmark records 1", manifest, samples_seal]).encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRows:
    """The part of a batch that belongs to one part in one repeat."""

    defense: str
    stage: int
    layer: str
    repeat: int
    groups: Sequence[Group]
    details: Sequence[Row]
    said: Sequence[Group] = ()


def link(
    before: bytes,
    parts: Iterable[BatchRows],
    *,
    shared_evidence: Sequence[tuple[int, str]] = (),
    tries: Sequence[TryRows] = (),
) -> bytes:
    """Hash one batch together with everything before it."""
    said: list[Sequence[object]] = [
        (
            *(part.defense, part.stage, part.layer, part.repeat, part.groups, part.details),
            *([part.said] if part.said else []),
        )
        for part in parts
    ]
    if shared_evidence:
        said.append(shared_evidence)
    if tries:
        said.append(("tries", *tries))
    return sha256(before + json.dumps(said, separators=(",", ":")).encode()).digest()
