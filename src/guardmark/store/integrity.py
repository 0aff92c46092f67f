"""The hash chain over committed batches, and whether records are what was committed."""

from __future__ import annotations

import json
from collections import defaultdict
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from guardmark.store import connect, samples
from guardmark.store.schema import ADDED_WORDS, OUTCOME_CODE, WORDS, query, table_of
from guardmark.store.tries import COLUMNS, CONFIRMATION_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from guardmark.store.connect import StoreConnection

Row = tuple[Any, ...]

_MOST: Final = 5  # findings of one sort that are listed one by one


def check(path: Path) -> list[str]:
    """List where the records of a run are not what their seals and their hash chain say."""
    connection = connect.open_to_read(path)
    try:
        with connect.errors_of(path), connect.values_of(path):
            return [line for each in _CHECKS for line in each(connection)]
    finally:
        connect.close_reading(connection, path)


def _file(connection: StoreConnection) -> Iterator[str]:
    for (message,) in connection.rows("PRAGMA integrity_check(5)"):
        if message != "ok":
            yield f"The file is damaged: {message}."
    known = {(kind, code, name) for kind, names in WORDS.items() for code, name in enumerate(names)}
    rows = [tuple(row) for row in connection.rows("SELECT kind, id, name FROM words")]
    if len(set(rows)) < len(rows) or not known - ADDED_WORDS <= set(rows) <= known:
        yield "The table of words was changed: its integers no longer mean what was written."


def _samples(connection: StoreConnection) -> Iterator[str]:
    seal = connection.meta("samples")
    if seal is None:
        yield "The samples were never stored completely."
        return
    if samples.seal_of(connection) != seal:
        yield "The samples are not those of the run: an id, label, facet or hash was changed."
    wrong = 0
    query = "SELECT id, digest, text, prompt, length FROM samples ORDER BY position"
    for sample_id, digest, text, conversation, length in connection.execute(query):
        prompt = samples.prompt_of(text, conversation, connection.path)
        if prompt.digest() != digest or prompt.text != text or len(text) != length:
            wrong += 1
            if wrong <= _MOST:
                yield f"The text of sample {sample_id!r} is not the one that was sent."
    if wrong > _MOST:
        yield f"The texts of {wrong} samples are not those that were sent."


def _batches(connection: StoreConnection) -> Iterator[str]:
    committed = connection.rows("SELECT id, rows, hash FROM batches ORDER BY id")
    rows_too, details_too = "", ""
    # A record that a second attempt replaced still belongs to the batch it came with.
    if connection.has_superseded:
        rows_too = f"UNION ALL {query('superseded_by_batch')}"
        details_too = f"UNION ALL {query('superseded_details')}"
    streams = [
        _Groups(connection.execute(each))
        for each in (
            query("records_by_batch").format(too=rows_too),
            query("details_by_batch").format(too=details_too),
            query("evidence_by_batch"),
            query("tries_by_batch").format(columns=COLUMNS),
            query("confirmations_by_batch").format(columns=CONFIRMATION_COLUMNS),
        )
    ]
    names = connection.names("defenses"), connection.names("layers")
    head = genesis(connection)
    for place, (number, count, wanted) in enumerate(committed, 1):
        if number != place:
            yield f"Batch {place} is missing."
            return
        rows, details, evidence, tries, confirmations = (each.of(number) for each in streams)
        stored = len(rows) + len(tries) + len(confirmations)
        if stored != count:
            yield f"Batch {number} has {stored} records; {count} were committed."
        content: list[object] = [*_parts(rows, details, *names), *([evidence] if evidence else [])]
        if tries or confirmations:
            content.append(("tries", *_tries(tries, confirmations, *names)))
        if link(head, content) != wanted:
            what = "A record" if number > 1 else "The manifest, a seal or a record"
            yield f"{what} of batch {number} was changed, exchanged, added or taken away."
        head = wanted


class _Groups:
    """Rows of one batch after the other, so that memory stays flat."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._groups = groupby(rows, key=itemgetter(0))
        self._ahead = next(self._groups, None)

    def of(self, batch: int) -> list[Row]:
        while self._ahead is not None and self._ahead[0] < batch:
            self._ahead = next(self._groups, None)
        if self._ahead is None or self._ahead[0] != batch:
            return []
        rows = [row[1:] for row in self._ahead[1]]
        self._ahead = next(self._groups, None)
        return rows


def _parts(
    rows: list[Row], details: list[Row], defenses: dict[int, str], layers: dict[int, str]
) -> Iterator[Row]:
    """Yield the rows of each part as its batch was hashed with them."""
    of_part = defaultdict[Row, list[Row]](list)
    for row in details:
        of_part[row[:4]].append(row[4:])
    for key, part in groupby(rows, key=itemgetter(slice(4))):
        defense, stage, layer, repeat = key
        groups = list[object](), list[object]()
        for (*shared, has_said), group in groupby(part, key=itemgetter(slice(4, 9))):
            width = slice(9, None if has_said else -1)
            groups[has_said].append((shared, [row[width] for row in group]))
        own, with_reason = groups
        named = defenses.get(defense, ""), stage, layers.get(layer, ""), repeat
        yield (*named, own, of_part[key], *([with_reason] if with_reason else []))


def _tries(
    tries: list[Row], confirmations: list[Row], defenses: dict[int, str], layers: dict[int, str]
) -> Iterator[Row]:
    """Yield the tries of each defense and layer as their batch was hashed with them."""
    batches = defaultdict[Row, tuple[list[Row], list[Row]]](lambda: ([], []))
    for at, rows in enumerate((tries, confirmations)):
        for row in rows:
            batches[row[:2]][at].append(row[2:])
    for (defense, layer), each in sorted(batches.items()):
        yield (defenses.get(defense, ""), layers.get(layer, ""), *each)


def _strays(connection: StoreConnection) -> Iterator[str]:
    for what, where in table_of("queries.toml")["strays"].items():
        if count := connection.value(f"SELECT count(*) FROM {where}"):  # noqa: S608 - constants of ours
            yield f"{count} {what}."
    again = f"SELECT count(*) FROM superseded WHERE outcome != {OUTCOME_CODE['error']}"  # noqa: S608 - constants of ours
    if connection.has_superseded and (count := connection.value(again)):
        yield f"{count} records were set aside for a second attempt and are not errors."


def _end(connection: StoreConnection) -> Iterator[str]:
    state, noted = connection.meta("state"), connection.meta("head")
    if noted is None or state == "running":
        return  # killed, or under way: what was committed last is not noted
    number, _, head = noted.partition(":")
    there = connection.value("SELECT lower(hex(hash)) FROM batches WHERE id = ?", [int(number)])
    # Batches after the one that is noted were added by a command that was killed.
    if head != (there or ""):
        last = connection.value("SELECT max(id) FROM batches") or 0
        yield f"The run ended with batch {number}; the last one here is {last}."
    planned, stored = connection.meta("planned") or "0", connection.value(query("count_stored"))
    if state == "complete" and str(stored) != planned:
        yield f"The run is marked complete with {stored} of {planned} records."


_CHECKS: Final = (_file, _samples, _batches, _strays, _end)


def genesis(connection: StoreConnection) -> bytes:
    """Hash what stands before the first batch: the manifest, and the seal of the samples."""
    parts = [connection.meta("manifest") or "", connection.meta("samples") or ""]
    return sha256(json.dumps(["guardmark records 1", *parts]).encode()).digest()


def link(before: bytes, content: Sequence[object]) -> bytes:
    """Hash the content of one batch together with everything before it.

    Its parts come first, then evidence that is shared, then tries; what is empty is left out.
    """
    return sha256(before + json.dumps(content, separators=(",", ":")).encode()).digest()
