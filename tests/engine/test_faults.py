"""After any fault, going on gives the figures of the undisturbed run."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from guardmark.core.errors import StoreError
from guardmark.core.record import Record, RecordKey, Stage
from guardmark.store.integrity import check
from guardmark.store.reader import RecordReader, RunState

CAMPAIGN = Path(__file__).with_name("campaign.py")
COUNT = 250
PLANNED = COUNT * 5

Rows = list[tuple[object, ...]]


def command(folder: Path, *more: object) -> list[str]:
    """The command line of a run."""
    return [sys.executable, str(CAMPAIGN), str(folder), str(COUNT), *map(str, more)]


def finish(folder: Path) -> None:
    """Give the same command until it is done."""
    done = subprocess.run(command(folder), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def figures(folder: Path) -> Rows:
    """Everything that was observed, latencies and warm-up apart; each key once."""
    assert check(folder / "records.sqlite") == []
    with RecordReader(folder / "records.sqlite") as reader:
        assert reader.status().state is RunState.COMPLETE
        records = [r for r in reader.records() if r.key.stage is not Stage.WARMUP]
    assert len({r.key for r in records}) == len(records) == PLANNED
    return [(r.key, r.outcome, r.error_kind, r.score, r.text, r.evidence) for r in records]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Figures of a run nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(folder)
    return figures(folder)


def stored(folder: Path) -> tuple[dict[RecordKey, Record], RunState]:
    """All records of a run that may have been killed before it had any."""
    path = folder / "records.sqlite"
    if not path.exists():
        return {}, RunState.NEW
    try:
        reader = RecordReader(path)
    except StoreError as error:
        assert "stopped while it began" in str(error) or path.stat().st_size == 0  # noqa: PT017
        return {}, RunState.NEW
    with reader:
        return {record.key: record for record in reader.records()}, reader.status().state


def kill_sweep(folder: Path, kills: int, seed: int) -> None:
    """Kill a run so often at random moments; check after each that what was stored stays."""
    moments, struck, before = random.Random(seed), 0, dict[RecordKey, Record]()
    while struck < kills:
        child = subprocess.Popen(command(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            child.wait(timeout=moments.uniform(0.1, 1.1))
        except subprocess.TimeoutExpired:
            struck += 1
        child.kill()
        child.communicate()
        now, state = stored(folder)
        assert all(now[key] == record for key, record in before.items()), "a record was lost"
        assert state is not RunState.FAILED
        if state is RunState.COMPLETE:
            shutil.rmtree(folder)
            now = {}
        before = now


@pytest.mark.slow
def test_kills_at_random_moments_lose_and_double_nothing(tmp_path: Path, undisturbed: Rows) -> None:
    """What was reported as stored stays; the rest is called again."""
    kill_sweep(tmp_path / "run", 20, seed=1)
    finish(tmp_path / "run")
    assert figures(tmp_path / "run") == undisturbed


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_many_kills_lose_and_double_nothing(tmp_path: Path, undisturbed: Rows, seed: int) -> None:
    """The same, a hundred times and more."""
    kill_sweep(tmp_path / "run", 25, seed=seed)
    finish(tmp_path / "run")
    assert figures(tmp_path / "run") == undisturbed


def start(folder: Path, *more: object) -> subprocess.Popen[str]:
    """Start a run and wait until it is under way."""
    child = subprocess.Popen(
        command(folder, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "going\n"
    return child


def wait_for_records(folder: Path, count: int) -> None:
    """Wait until some records are stored."""
    for _ in range(2000):
        with RecordReader(folder / "records.sqlite") as reader:
            if reader.status().stored >= count:
                return
        time.sleep(0.005)
    raise AssertionError("no record appeared")


@pytest.mark.slow
def test_an_interrupt_stores_what_is_finished_and_can_be_continued(
    tmp_path: Path, undisturbed: Rows
) -> None:
    """Ctrl-C, twice for the impatient, is an ordinary end."""
    for _ in range(2):
        with start(tmp_path) as child:
            wait_for_records(tmp_path, 10)
            child.send_signal(signal.SIGINT)
            child.send_signal(signal.SIGINT)
            assert child.wait(timeout=30) in {130, 0}
    finish(tmp_path)
    assert figures(tmp_path) == undisturbed


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_a_power_loss_takes_the_last_commits_and_nothing_else(
    tmp_path: Path, undisturbed: Rows, seed: int
) -> None:
    """The log is cut or garbled where the disk had not caught up; the rest is whole."""
    live, lost = tmp_path / "live", tmp_path / "lost"
    lost.mkdir()
    moments = random.Random(seed)
    with start(live) as child:
        wait_for_records(live, 50 + 200 * seed)
        child.kill()
        child.wait()
    for name in ("records.sqlite", "records.sqlite-wal"):
        shutil.copy(live / name, lost / name)
    log = lost / "records.sqlite-wal"
    content = bytearray(log.read_bytes())
    cut = moments.randrange(len(content) // 2, len(content))
    if seed % 2:
        log.write_bytes(content[:cut])
    else:
        content[cut:] = bytes(moments.randrange(256) for _ in content[cut:])
        log.write_bytes(content)
    finish(lost)
    assert figures(lost) == undisturbed


def test_a_full_disk_in_the_middle_keeps_what_was_committed(
    tmp_path: Path, undisturbed: Rows
) -> None:
    """Exit 7 and the next step; with room again the same command goes on."""
    full = subprocess.run(
        command(tmp_path, 700_000), capture_output=True, text=True, timeout=60, check=False
    )
    assert full.returncode == 7, full.stderr
    assert "Next: free disk space" in full.stderr
    assert len(full.stderr.splitlines()) <= 5
    with RecordReader(tmp_path / "records.sqlite") as reader:
        assert 0 < reader.status().stored < PLANNED
    finish(tmp_path)
    assert figures(tmp_path) == undisturbed


def test_the_second_of_two_runs_on_one_folder_is_refused(tmp_path: Path, undisturbed: Rows) -> None:
    """It names the first and disturbs nothing."""
    with start(tmp_path) as child:
        child.send_signal(signal.SIGSTOP)  # on a busy machine it could be done before the second
        second = subprocess.run(
            command(tmp_path), capture_output=True, text=True, timeout=60, check=False
        )
        child.send_signal(signal.SIGCONT)
        assert second.returncode == 7
        assert f"process {child.pid}" in second.stderr
        assert child.wait(timeout=60) == 0
    assert figures(tmp_path) == undisturbed


@pytest.mark.slow
def test_five_runs_at_once_into_different_folders(tmp_path: Path, undisturbed: Rows) -> None:
    """Nothing is shared but the machine."""
    children = [
        subprocess.Popen(command(tmp_path / str(n)), stdout=subprocess.DEVNULL) for n in range(5)
    ]
    assert [child.wait(timeout=120) for child in children] == [0] * 5
    for number in range(5):
        assert figures(tmp_path / str(number)) == undisturbed


def test_a_run_into_a_file_or_a_foreign_database_is_refused(tmp_path: Path) -> None:
    """Exit 3 for what is not ours, 7 for what cannot be written; nothing is touched."""
    base = sqlite3.connect(tmp_path / "records.sqlite")
    base.execute("CREATE TABLE theirs (a)")
    base.commit()
    base.close()
    foreign = subprocess.run(
        command(tmp_path), capture_output=True, text=True, timeout=60, check=False
    )
    assert foreign.returncode == 3
    assert "another program" in foreign.stderr
    (tmp_path / "file").write_text("x")
    blocked = subprocess.run(
        command(tmp_path / "file"), capture_output=True, text=True, timeout=60, check=False
    )
    assert blocked.returncode == 7


def test_a_clock_set_back_disturbs_nothing(
    tmp_path: Path, undisturbed: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No stored row and no lock depends on the time of day: files from the future are as good."""
    with start(tmp_path) as child:
        wait_for_records(tmp_path, 20)
        child.kill()
        child.wait()
    future = time.time() + 10 * 365 * 86400
    import os

    for path in tmp_path.iterdir():
        os.utime(path, (future, future))
    finish(tmp_path)
    assert figures(tmp_path) == undisturbed
