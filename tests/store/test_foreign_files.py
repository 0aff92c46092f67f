"""A records file that somebody made to mislead is refused before anything in it is read."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from guardmark.core.errors import StoreError
from guardmark.interchange.records.writing import write_csv
from guardmark.store import connect, integrity
from guardmark.store.columns import read_usage, record_columns, sample_columns
from guardmark.store.json_lines import write_jsonl
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    " SELECT i AS defense, i AS stage, i AS layer, i AS repeat, i AS sample, i AS outcome FROM n"
)
PLANTED = {
    "a view that never ends": (f"DROP TABLE records; CREATE VIEW records AS {ENDLESS}", "records"),
    "a view over another table": (
        "ALTER TABLE kinds RENAME TO really; CREATE VIEW kinds AS SELECT * FROM really",
        "really",
    ),
    "a trigger": (
        "CREATE TRIGGER planted AFTER INSERT ON records BEGIN DELETE FROM records; END",
        "planted",
    ),
    "a virtual table": ("CREATE VIRTUAL TABLE planted USING fts5(text)", "planted"),
    "a virtual table in place of ours": (
        "DROP TABLE details; CREATE VIRTUAL TABLE details USING fts5(text, evidence)",
        "details",
    ),
    "a generated column": (
        "ALTER TABLE samples ADD COLUMN more AS (hex(zeroblob(1000000000)))",
        "samples",
    ),
    "a constraint": (
        "DROP TABLE sayings; CREATE TABLE sayings (id CHECK (length(zeroblob(1000000000))))",
        "sayings",
    ),
    "another view of results": (
        "DROP VIEW results; CREATE VIEW results AS SELECT 'allow' AS outcome",
        "results",
    ),
    "a table of a qualified name": ('CREATE TABLE "main.records" (defense)', "main.records"),
    "an index over an expression": (
        "CREATE INDEX planted ON samples (length(zeroblob(100000000) || text))",
        "planted",
    ),
    "a name that moves the cursor": ('CREATE TABLE "\x1b[2J\r::error" (a)', r"\x1b[2J\r::error"),
}


def refusals(path: Path) -> set[str]:
    """What reader, writer and check say; each refuses at once, with exit code 3, in few lines."""
    messages = set()
    for use in (RecordReader, RecordWriter, integrity.check):
        start = time.monotonic()
        with pytest.raises(StoreError) as caught:
            use(path)
        assert time.monotonic() - start < 5
        assert caught.value.exit_code == 3
        assert len(str(caught.value).splitlines()) <= 5
        messages.add(str(caught.value))
    return messages


@pytest.mark.parametrize(("script", "name"), PLANTED.values(), ids=PLANTED)
def test_what_guardmark_does_not_write_is_refused_by_name(
    finished: Path, script: str, name: str
) -> None:
    """Nothing in a schema may act, and nothing may stand in for a table of ours."""
    with closing(sqlite3.connect(finished)) as connection:
        connection.executescript(script)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (message,) = refusals(finished)
    assert name in message
    assert "which guardmark did not write" in message
    assert message.replace("\n", "").isprintable()


def test_a_view_that_calls_itself_a_table_is_refused(finished: Path) -> None:
    """Where the list of tables itself was edited, SQLite or we refuse it."""
    with closing(sqlite3.connect(finished)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET sql = ?, rootpage = 0 WHERE name = 'records'",
            (f"CREATE VIEW records AS {ENDLESS}",),
        )
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert all("damaged" in each or "guardmark" in each for each in refusals(finished))


@pytest.mark.parametrize("content", [b"", b"\0" * 50, b"x" * 200, b"SQLite format 3\0" + b"y" * 90])
def test_what_is_no_database_is_refused_for_reading(path: Path, content: bytes) -> None:
    """A file of another kind, whole or in part."""
    path.write_bytes(content)
    for use in (RecordReader, integrity.check):
        with pytest.raises(StoreError) as caught:
            use(path)
        assert caught.value.exit_code == 3


@pytest.mark.slow
def test_a_query_that_never_ends_is_ended(finished: Path) -> None:
    """Even where somebody finds a way past the check of the schema."""
    with RecordReader(finished) as reader:
        with pytest.raises(StoreError, match="more work than records of its size"):
            reader.connection.value(f"SELECT count(*) FROM ({ENDLESS})")  # noqa: S608 - a constant of ours
        assert reader.sample_count() == 30


def test_a_reader_attaches_and_writes_nothing(finished: Path) -> None:
    """The connection that reads a foreign file can reach no other and change none."""
    with RecordReader(finished) as reader:
        for query in ("ATTACH 'other.sqlite' AS other", "DELETE FROM records"):
            with pytest.raises(sqlite3.OperationalError):
                reader.connection.execute(query)


def test_a_folder_whose_name_looks_like_options_is_a_folder(tmp_path: Path) -> None:
    """What stands in a name is no option of SQLite."""
    folder = tmp_path / "run?mode=memory&cache=shared#%2e"
    folder.mkdir()
    RecordWriter(folder / "records.sqlite").close()
    with RecordReader(folder / "records.sqlite") as reader:
        assert reader.sample_count() == 0
    assert [each.name for each in folder.iterdir()] == ["records.sqlite"]


@pytest.mark.parametrize(
    ("key", "read"),
    [
        ("state", RecordReader.status),
        ("planned", RecordReader.status),
        ("manifest", RecordReader.manifest),
    ],
)
def test_values_of_a_wrong_kind_are_refused(
    finished: Path, key: str, read: Callable[[RecordReader], object]
) -> None:
    """A state that is none of ours ends in words, not in a traceback."""
    with closing(sqlite3.connect(finished)) as connection:
        connection.execute("UPDATE meta SET value = '[]' WHERE key = ?", (key,))
        connection.commit()
    with RecordReader(finished) as reader, pytest.raises(StoreError, match="cannot be read"):
        read(reader)


def test_a_file_that_changes_is_looked_at_again(finished: Path) -> None:
    """Values are checked once a process, for as long as the file and its log are the same."""
    with RecordReader(finished) as reader:
        reader.status()
    with closing(sqlite3.connect(finished)) as connection:
        connection.execute("UPDATE records SET outcome = 99")
        connection.commit()
    with pytest.raises(StoreError, match="is damaged"):
        RecordReader(finished)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE records SET outcome = 99",
        "UPDATE records SET outcome = 'x'",
        "UPDATE records SET outcome = 9223372036854775807",
        "UPDATE samples SET prompt = '[[]]'",
        "UPDATE samples SET length = 'long'",
        "UPDATE samples SET text = CAST(x'ff' AS TEXT)",
        "UPDATE batches SET hash = 100000000000",
        "UPDATE kinds SET severity = 'none of ours'",
        "INSERT INTO details VALUES (0, 0, 0, 0, 0, 1, NULL, '[1]')",
    ],
)
def test_rows_that_cannot_be_read_are_damage(finished: Path, change: str) -> None:
    """Whatever stands in a row, a reader gives values or one error of ours."""
    with closing(sqlite3.connect(finished)) as connection:
        connection.execute(change)
        connection.commit()
    readers: list[Callable[[RecordReader], object]] = [
        lambda reader: list(reader.records()),
        lambda reader: list(reader.samples()),
        RecordReader.status,
        lambda reader: record_columns(reader, "words"),
        sample_columns,
        read_usage,
        lambda reader: write_jsonl(reader, finished.with_name("x.jsonl")),
        lambda reader: write_csv(reader, finished.with_name("x.csv")),
        lambda _: 1 / len(integrity.check(finished)),
    ]
    for read in readers:
        with suppress(StoreError), RecordReader(finished) as reader:
            read(reader)


def test_records_are_copied_where_nothing_may_be_written(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A medium without room for SQLite's shared memory is read as it lies."""
    really = connect.open_database

    def refuse(path: Path, options: str, *, timeout: float = 10) -> connect.StoreConnection:
        if options == "mode=ro" and path == finished:
            raise sqlite3.OperationalError("unable to open database file")
        return really(path, options, timeout=timeout)

    monkeypatch.setattr(connect, "open_database", refuse)
    assert integrity.check(finished) == []
    connect.copy_records(finished, tmp_path / "copy.sqlite")
    with RecordReader(tmp_path / "copy.sqlite") as reader:
        assert len(list(reader.records())) == 1
