"""How the records of an older schema version are brought up to the present one.

Tries of versions 1 and 2 are records at stage `try` with a note in the text column.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import StoreError
from guardmark.core.record import Stage
from guardmark.store import schema
from guardmark.store.codec import stored_object

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping

Row = tuple[Any, ...]

_TRY: Final = schema.STAGE_CODE[Stage.TRY]
_PASSED: Final = {schema.OUTCOME_CODE["allow"]: True, schema.OUTCOME_CODE["block"]: False}
_SENT_AGAIN: Final = ("battery", "search")  # accounts whose passes were sent again
_GROUP, _ENOUGH = 3, 2  # re-sends of a pass, and how many of them have to pass
_STORED: Final = (
    "number, sample, outcome, score, score_kind, error_kind, answer_mode, latency_ns, flags,"
    " batch, note, evidence"
)
_OF_NOTE: Final = "account, round, chain, tier, digest, size, decoded, is_free, details"
_NAMED: Final = ("account", "round", "chain", "tier", "text", "size", "decoded", "free")
_CONFIRMATIONS: Final = "defense, layer, number, sample, sent, passed, is_confirmed, batch"


def _move_tries(connection: sqlite3.Connection) -> None:
    """Move the tries of an older file out of its records into their own table."""
    rows = connection.execute(schema.query("old_tries_from_records")).fetchall()
    for tries, confirmations in _columns_of(rows):
        for table, columns, values in (
            ("tries", f"defense, layer, {_STORED}, {_OF_NOTE}, resend_of", tries),
            ("confirmations", _CONFIRMATIONS, confirmations),
        ):
            places = ", ".join("?" * (columns.count(",") + 1))
            connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({places})", values)  # noqa: S608 - constants of ours
    for table in ("details", "records"):
        connection.execute(f"DELETE FROM {table} WHERE stage = {_TRY}")  # noqa: S608 - a name of ours


def changed_tries(connection: sqlite3.Connection) -> int:
    """Count the old tries, and outcomes of re-sends, that are not those of the hashed notes."""
    old = f"SELECT defense, layer, {_STORED}{{}} FROM tries WHERE note IS NOT NULL"  # noqa: S608 - constants of ours
    order = " ORDER BY defense, layer, number, sample"
    rows = connection.execute(f"{old.format('')}{order}").fetchall()
    if not rows:
        return 0
    stored = connection.execute(f"{old.format(f', {_OF_NOTE}, resend_of')}{order}").fetchall()
    sent = set(
        connection.execute(
            f"SELECT {_CONFIRMATIONS} FROM confirmations JOIN tries t"  # noqa: S608 - constants of ours
            " USING (defense, layer, number, sample, batch) WHERE t.note IS NOT NULL"
        ).fetchall()
    )
    tries, confirmations = list[Row](), set[Row]()
    for some, confirmed in _columns_of(rows):
        tries += some
        confirmations.update(confirmed)
    changed = [number for number, row in enumerate(stored) if tries[number] != row]
    return len(changed) + len(sent ^ confirmations)


def _columns_of(rows: Iterable[Row]) -> Iterator[tuple[list[Row], list[Row]]]:
    """Yield the tries of one defense and layer after the other, and what their re-sends came to.

    Which try a re-send was of is not stored: it is taken for the last pass of the same text. A pass
    counts as confirmed where any three answered re-sends of its text in a row hold two passes.
    """
    for (defense, layer), lane in groupby(rows, key=lambda row: row[:2]):
        tries = list[Row]()
        passes: defaultdict[Row, list[Row]] = defaultdict(list)
        sent: defaultdict[Row, list[bool]] = defaultdict(list)
        by_try: defaultdict[Row, list[bool]] = defaultdict(list)
        for row in lane:
            note = stored_object(row[-2], "note")
            number, sample, passed = row[2], row[3], _PASSED.get(row[4])
            text, resend_of = (sample, note["text"]), None
            if note["account"] == "confirm" and text in passes:
                resend_of = passes[text][-1][0]
                if passed is not None:
                    sent[text].append(passed)
                    by_try[resend_of, sample].append(passed)
            elif passed and note["account"] in _SENT_AGAIN:
                passes[text].append((number, sample, row[-3]))
            tries.append((*row, *_columns(note), resend_of))
        confirmations = [
            (
                *(defense, layer, number, sample),
                *(len(by_try[number, sample]), sum(by_try[number, sample])),
                *(int(_holds(sent[text])), batch),
            )
            for text, each in passes.items()
            if text in sent
            for number, sample, batch in each
        ]
        yield tries, confirmations


def _holds(answers: list[bool]) -> bool:
    starts = range(0, len(answers), _GROUP)
    return any(sum(answers[at : at + _GROUP]) >= _ENOUGH for at in starts)


def _columns(note: dict[str, Any]) -> Row:
    account, round_, chain, tier, digest, size, decoded, is_free = (note.get(n) for n in _NAMED)
    rest = {name: value for name, value in note.items() if name not in _NAMED}
    details = json.dumps(rest, ensure_ascii=False, separators=(",", ":")) if rest else None
    read = None if decoded is None else int(decoded)
    return account, round_, chain, tier, digest, size, read, int(bool(is_free)), details


def _add_sayings(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE records ADD COLUMN said INTEGER")
    connection.execute(schema.definitions()["sayings"])


def _add_tries(connection: sqlite3.Connection) -> None:
    for table in ("tries", "confirmations"):
        connection.execute(schema.definitions()[table])
    _move_tries(connection)


MIGRATIONS: Final[Mapping[int, Callable[[sqlite3.Connection], None]]] = {
    1: _add_sayings,
    2: _add_tries,
}
"""Version -> the step that brings a file from it to the next; version 1 is the first."""


def migrate(
    connection: sqlite3.Connection,
    *,
    shown_as: str = "the file",
    steps: Mapping[int, Callable[[sqlite3.Connection], None]] = MIGRATIONS,
    target: int = schema.SCHEMA_VERSION,
) -> int:
    """Bring an older file to a newer version, all of it or nothing."""
    before = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if before > target:
        raise StoreError(
            f"{shown_as} has schema version {before}; this guardmark reads up to {target}.\n"
            "Next: update guardmark."
        )
    with schema.transaction(connection):
        for version in range(before, target):
            if version not in steps:
                raise StoreError(
                    f"{shown_as} has schema version {before}, which this guardmark cannot bring"
                    f" up to {target}.\nNext: read it with the guardmark that wrote it."
                )
            steps[version](connection)
        connection.execute(f"PRAGMA user_version = {target}")
    return before
