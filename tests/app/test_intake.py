"""Where a run takes place, and what is left of one that cannot begin."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from guardmark.app.parts.loading import LoadedConfig, parse_config
from guardmark.app.run.continuing import Start, find_place, stored_manifest
from guardmark.app.run.run_folder import RunLocation, begun
from guardmark.app.run.running import RunOptions, Session, run
from guardmark.store.records import RecordWriter
from guardmark.store.run_dir import RunDir

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TEXT = "version: 1\nname: words\ndata: [{path: data.jsonl}]\ndefenses: {a: {type: allow-all}}\n"


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedConfig:
    """A configuration in an empty folder, which is the present one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text("{}", encoding="utf-8")
    return parse_config(TEXT, folder=tmp_path, shown_as="words.yaml")


def broken_off(place: RunLocation, *, is_kept: bool = False) -> None:
    """Begin a run in a place, and break it off."""
    with suppress(KeyboardInterrupt), begun(place, now=NOW) as keep:
        RecordWriter(place.folder.records).close()
        if is_kept:
            keep()
        raise KeyboardInterrupt


def test_a_beginning_that_fails_leaves_no_folder(tmp_path: Path) -> None:
    """Neither its own nor those it was made in."""
    broken_off(RunLocation(folder=RunDir(path=tmp_path / "runs" / "words" / "1")))
    assert list(tmp_path.iterdir()) == []


def test_a_beginning_that_is_kept_stays_whatever_comes_later(tmp_path: Path) -> None:
    """From the first call on there is something to lose."""
    broken_off(RunLocation(folder=RunDir(path=tmp_path / "run")), is_kept=True)
    assert (tmp_path / "run" / "records.sqlite").exists()


def test_what_lay_in_the_folder_before_stays(tmp_path: Path) -> None:
    """A folder that was named may hold anything."""
    note = tmp_path / "run" / "note.txt"
    note.parent.mkdir()
    note.write_text("mine", encoding="utf-8")
    broken_off(RunLocation(folder=RunDir(path=note.parent)))
    assert note.read_text(encoding="utf-8") == "mine"
    assert not (note.parent / "records.sqlite").exists()


def test_records_that_lay_there_before_are_not_removed(tmp_path: Path) -> None:
    """They may be those of another program."""
    place = RunLocation(folder=RunDir(path=tmp_path))
    RecordWriter(place.folder.records).close()
    broken_off(place)
    assert place.folder.records.exists()


def test_records_set_aside_for_a_run_that_cannot_begin_come_back(tmp_path: Path) -> None:
    """With --fresh and broken data the earlier run is still the run of its folder."""
    place = RunLocation(folder=RunDir(path=tmp_path), is_fresh=True)
    place.folder.records.write_bytes(b"an earlier run")
    broken_off(place)
    assert place.folder.records.read_bytes() == b"an earlier run"
    assert not list(tmp_path.glob("records.before-*"))


def test_a_run_killed_while_it_read_its_data_begins_again_in_its_folder(
    loaded: LoadedConfig,
) -> None:
    """Otherwise every such kill would leave a folder behind."""
    hashed = "0" * 64
    first = find_place(loaded, out=None, start=Start.CONTINUE, config_hash=hashed, now=NOW)
    first.folder.create()
    RecordWriter(first.folder.records).close()
    again = find_place(loaded, out=None, start=Start.CONTINUE, config_hash=hashed, now=NOW)
    assert again == RunLocation(folder=first.folder)
    with first.folder.lock():
        beside = find_place(loaded, out=None, start=Start.CONTINUE, config_hash=hashed, now=NOW)
    assert beside.folder != first.folder


def test_a_damaged_run_is_left_alone_and_a_new_one_starts_beside_it(loaded: LoadedConfig) -> None:
    """Nobody knows what of it could be continued; its bytes stay for whoever looks."""
    hashed = "0" * 64
    first = find_place(loaded, out=None, start=Start.CONTINUE, config_hash=hashed, now=NOW)
    first.folder.create()
    first.folder.records.write_bytes(b"no database" * 100)
    beside = find_place(loaded, out=None, start=Start.CONTINUE, config_hash=hashed, now=NOW)
    assert beside.folder != first.folder
    assert not beside.has_samples
    assert first.folder.records.read_bytes() == b"no database" * 100


def test_an_unfinished_run_over_other_data_is_not_continued(
    loaded: LoadedConfig, tmp_path: Path
) -> None:
    """The file was edited since: its rows would not be those that were decided."""
    text = '{"text": "ignore it", "label": "attack"}\n{"text": "hello", "label": "benign"}\n'
    data = tmp_path / "data.jsonl"
    data.write_text(text, encoding="utf-8")
    stopped = Session(now=NOW)
    stopped.stop.set()
    begun_run = run(loaded, RunOptions(), stopped).folder
    manifest = stored_manifest(begun_run)
    assert manifest is not None
    hashed = manifest.config_sha256

    def place() -> RunLocation:
        return find_place(loaded, out=None, start=Start.CONTINUE, config_hash=hashed, now=NOW)

    assert place() == RunLocation(folder=begun_run, has_samples=True)
    data.write_text(text.replace("hello", "good day"), encoding="utf-8")
    assert place().folder.path != begun_run.path
    data.write_text(text, encoding="utf-8")
    assert place().folder.path == begun_run.path
