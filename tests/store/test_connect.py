"""Files that are not a whole, known store are refused in words."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from guardmark.core.errors import StorageError, StoreError
from guardmark.core.manifest import RunManifest
from guardmark.core.outcome import ALLOWED
from guardmark.store import schema
from guardmark.store.connect import copy_records, errors_of, open_to_read, open_to_write
from guardmark.store.integrity import check
from guardmark.store.reader import RecordReader, RunState
from guardmark.store.records import RecordWriter


def refused(path: Path) -> str:
    """What reader and writer say of a file; both must refuse it alike."""
    before = path.read_bytes()
    with pytest.raises(StoreError) as by_writer:
        RecordWriter(path)
    with pytest.raises(StoreError) as by_reader:
        RecordReader(path)
    assert path.read_bytes() == before, "a refused file is not touched"
    assert str(by_writer.value) == str(by_reader.value)
    assert by_writer.value.exit_code == 3
    assert len(str(by_writer.value).splitlines()) <= 5
    return str(by_writer.value)


def test_a_text_file_is_refused(path: Path) -> None:
    """A file of another kind is no run."""
    path.write_text("hello " * 100)
    assert "not a records file" in refused(path)


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    """An SQLite file of somebody else is not written into."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.commit()
    connection.close()
    assert "another program" in refused(path)


@pytest.mark.parametrize("keep", [50, 4096, 9000])
def test_a_truncated_file_is_refused(writer: RecordWriter, path: Path, keep: int) -> None:
    """Half a copy is noticed before a report is made of it."""
    writer.finish(RunState.COMPLETE)
    writer.close()
    with path.open("r+b") as file:
        file.truncate(keep)
    assert refused(path)


def test_a_newer_file_is_refused(writer: RecordWriter, path: Path) -> None:
    """An old guardmark does not guess at a new format."""
    writer.close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert "update guardmark" in refused(path)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_file_of_before_the_first_release_is_refused(
    writer: RecordWriter, path: Path, version: int
) -> None:
    """No figure is made from records whose meaning has changed since; versions began anew."""
    writer.close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA application_id = {schema.UNRELEASED_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    message = refused(path)
    assert f"has schema version {version}, from before the first release" in message
    assert "this guardmark reads version 1" in message
    assert "Next: run the measurement again" in message


def test_a_missing_file_is_refused_for_reading(path: Path) -> None:
    """A mistyped folder is told apart from damage."""
    with pytest.raises(StoreError, match="does not exist"):
        RecordReader(path)


def test_damage_inside_is_told_apart_from_a_full_disk(writer: RecordWriter, path: Path) -> None:
    """Damage cannot be repaired by freeing space."""
    writer.finish(RunState.COMPLETE)
    writer.close()
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"), RecordReader(path) as reader:
        list(reader.samples())


def test_a_full_disk_loses_nothing_that_was_committed(writer: RecordWriter, path: Path) -> None:
    """The batch that does not fit is not half there, and the run can go on later."""
    lane = writer.record_batch("words")
    lane.add(0, ALLOWED, latency_ns=1)
    writer.flush()
    writer.connection.execute("PRAGMA max_page_count = 1")  # the smallest disk there is
    for position in range(1, 30):
        lane.add(position, ALLOWED, latency_ns=1)
    answers = writer.record_batch("words", repeat=1)
    for repeat in range(40):
        other = writer.record_batch("words", repeat=repeat + 1)
        for position in range(30):
            other.add(position, ALLOWED, latency_ns=1)
    assert answers.repeat == 1
    with pytest.raises(StorageError, match="full") as caught:
        writer.flush()
    assert caught.value.exit_code == 7
    with RecordReader(path) as reader:
        assert len(list(reader.records())) == 1
    writer.connection.execute("PRAGMA max_page_count = 100000")
    writer.flush()
    with RecordReader(path) as reader:
        assert len(list(reader.records())) == 30 + 40 * 30


def test_a_locked_file_is_a_storage_error(path: Path) -> None:
    """SQLite's own words are kept, with the next step."""
    with pytest.raises(StorageError, match="locked"), errors_of(path):
        raise sqlite3.OperationalError("database is locked")


def test_a_finished_run_reads_from_a_read_only_disk(
    writer: RecordWriter, path: Path, tmp_path: Path
) -> None:
    """An archive on a read-only medium can be reported on."""
    writer.record_batch("words").add(0, ALLOWED, latency_ns=1)
    writer.finish(RunState.COMPLETE)
    writer.close()
    archive = tmp_path / "archive"
    archive.mkdir()
    shutil.copy(path, archive / path.name)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(archive)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("mounting a file system is not permitted here")
    try:
        shutil.copy(path, archive / path.name)
        subprocess.run(["mount", "-o", "remount,ro", str(archive)], check=True)
        with RecordReader(archive / path.name) as reader:
            assert len(list(reader.records())) == 1
        copy_records(archive / path.name, tmp_path / "copy.sqlite")
        assert check(archive / path.name) == check(tmp_path / "copy.sqlite")
        with pytest.raises(StorageError, match="cannot be written"):
            RecordWriter(archive / path.name)
        with pytest.raises(StorageError, match="cannot be written"):
            RecordWriter(archive / "other.sqlite")
    finally:
        subprocess.run(["umount", str(archive)], check=True)


def test_a_killed_run_reads_from_a_read_only_disk(
    writer: RecordWriter, path: Path, tmp_path: Path
) -> None:
    """What was committed last may still lie in the log, which SQLite cannot read there."""
    writer.record_batch("words").add(0, ALLOWED, latency_ns=1)
    writer.flush()
    archive = tmp_path / "archive"
    archive.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", str(archive)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("mounting a file system is not permitted here")
    try:
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", archive)
        assert (archive / "records.sqlite-wal").stat().st_size
        subprocess.run(["mount", "-o", "remount,ro", str(archive)], check=True)
        assert check(archive / path.name) == []
        with RecordReader(archive / path.name) as reader:
            assert len(list(reader.records())) == 1
    finally:
        subprocess.run(["umount", str(archive)], check=True)


def test_a_file_whose_tables_were_not_yet_made_is_a_new_one(path: Path) -> None:
    """A kill between making the file and making its tables costs nothing."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    with pytest.raises(StoreError, match="stopped while it began"):
        RecordReader(path)
    RecordWriter(path).close()
    RecordReader(path).close()


def test_opening_an_empty_file_makes_a_store_of_it(path: Path, manifest: RunManifest) -> None:
    """A kill in the first millisecond leaves an empty file; the next start uses it."""
    path.touch()
    open_to_write(path).close()
    open_to_read(path).close()


def test_who_only_reads_leaves_nothing_behind(tmp_path: Path) -> None:
    """SQLite lets no reading connection remove the log that it had to make."""
    path = tmp_path / "records.sqlite"
    RecordWriter(path).close()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    with RecordReader(path) as reader:
        assert reader.sample_count() == 0
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_reader_that_ends_leaves_the_log_of_a_run_alone(tmp_path: Path) -> None:
    """What the writer committed lies in the log until its next checkpoint."""
    path = tmp_path / "records.sqlite"
    with RecordWriter(path) as writer:
        RecordReader(path).close()
        writer.record_batch("guard")
        assert path.with_name("records.sqlite-wal").exists()
        with RecordReader(path) as reader:
            assert reader.defenses() == ("guard",)
        RecordReader(path).close()
        writer.record_batch("other")
    with RecordReader(path) as reader:
        assert reader.defenses() == ("guard", "other")
