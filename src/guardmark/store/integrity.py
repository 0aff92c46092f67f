"""The hash chain over committed batches, and whether records are what was committed."""

from __future__ import annotations

import json
from collections import defaultdict
from hashlib import sha256
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from guardmark.store import connect, samples
from guardmark.store.schema import ADDED_WORDS, OUTCOME_CODE, query, table_of, word_rows
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
            return list(chain.from_iterable(find(connection) for find in _CHECKS))
    finally:
        connect.close_reading(connection, path)


def _file(connection: StoreConnection) -> Iterator[str]:
    for (message,) in connection.rows("PRAGMA integrity_check(5)"):
        if message != "ok":
            yield f"The file is damaged: {message}."
    rows = [tuple(row) for row in connection.rows("SELECT kind, id, name FROM words")]
    known = set(word_rows())
    is_whole = known - ADDED_WORDS <= set(rows) <= known
    if not is_whole or len(set(rows)) < len(rows):
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
    rows_too = details_too = ""
    # A record that a second attempt replaced still belongs to the batch it came with.
    if connection.has_superseded:
        rows_too = f"UNION ALL {query('superseded_by_batch')}"
        details_too = f"UNION ALL {query('superseded_details')}"

    def grouped(script: str) -> _Groups:
        return _Groups(connection.execute(script))

    all_rows = grouped(query("records_by_batch").format(too=rows_too))
    all_details = grouped(query("details_by_batch").format(too=details_too))
    all_evidence = grouped(query("evidence_by_batch"))
    all_tries = grouped(query("tries_by_batch").format(columns=COLUMNS))
    all_confirmations = grouped(
        query("confirmations_by_batch").format(columns=CONFIRMATION_COLUMNS)
    )
    names = connection.names("defenses"), connection.names("layers")
    head = genesis(connection)
    for expected, (number, count, wanted) in enumerate(committed, 1):
        if number != expected:
            yield f"Batch {expected} is missing."
            return
        rows = all_rows.of(number)
        tries = all_tries.of(number)
        confirmations = all_confirmations.of(number)
        stored = len(rows) + len(tries) + len(confirmations)
        if stored != count:
            yield f"Batch {number} has {stored} records; {count} were committed."
        content: list[object] = list(_parts(rows, all_details.of(number), *names))
        evidence = all_evidence.of(number)
        if evidence:
            content.append(evidence)
        if tries or confirmations:
            content.append(("tries", *_tries(tries, confirmations, *names)))
        if link(head, content) != wanted:
            what = "A record"
            if number == 1:
                what = "The manifest, a seal or a record"
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
        own: list[object] = []
        with_reason: list[object] = []
        for (*shared, has_reason), group in groupby(part, key=itemgetter(slice(4, 9))):
            if has_reason:
                with_reason.append((shared, [row[9:] for row in group]))
            else:
                own.append((shared, [row[9:-1] for row in group]))
        named = defenses.get(defense, ""), stage, layers.get(layer, ""), repeat
        if with_reason:
            yield (*named, own, of_part[key], with_reason)
        else:
            yield (*named, own, of_part[key])


def _tries(
    tries: list[Row], confirmations: list[Row], defenses: dict[int, str], layers: dict[int, str]
) -> Iterator[Row]:
    """Yield the tries of each defense and layer as their batch was hashed with them."""
    tries_of = defaultdict[Row, list[Row]](list)
    for row in tries:
        tries_of[row[:2]].append(row[2:])
    confirmations_of = defaultdict[Row, list[Row]](list)
    for row in confirmations:
        confirmations_of[row[:2]].append(row[2:])
    for key in sorted(tries_of.keys() | confirmations_of.keys()):
        defense, layer = key
        names = defenses.get(defense, ""), layers.get(layer, "")
        yield (*names, tries_of[key], confirmations_of[key])


def _strays(connection: StoreConnection) -> Iterator[str]:
    for what, where in table_of("queries.toml")["strays"].items():
        count = connection.value(f"SELECT count(*) FROM {where}")  # noqa: S608 - constants of ours
        if count:
            yield f"{count} {what}."
    if connection.has_superseded:
        again = f"SELECT count(*) FROM superseded WHERE outcome != {OUTCOME_CODE['error']}"  # noqa: S608 - constants of ours
        count = connection.value(again)
        if count:
            yield f"{count} records were set aside for a second attempt and are not errors."


def _end(connection: StoreConnection) -> Iterator[str]:
    state = connection.meta("state")
    noted = connection.meta("head")
    if noted is None or state == "running":
        return  # killed, or under way: what was committed last is not noted
    number, _, head = noted.partition(":")
    of_batch = "SELECT lower(hex(hash)) FROM batches WHERE id = ?"
    stored_head = connection.value(of_batch, [int(number)]) or ""
    # Batches after the one that is noted were added by a command that was killed.
    if head != stored_head:
        last = connection.value("SELECT max(id) FROM batches") or 0
        yield f"The run ended with batch {number}; the last one here is {last}."
    planned = connection.meta("planned") or "0"
    stored = connection.value(query("count_stored"))
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
