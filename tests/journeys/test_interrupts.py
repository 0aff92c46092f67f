"""Whoever wants a run to end is heard: in a call that hangs, in threads, in processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.journeys.command_line import guardmark, set_up, words

from guardmark.store.integrity import check
from guardmark.store.reader import RecordReader
from guardmark.store.schema import FLAG_COLD

pytestmark = pytest.mark.slow

GUARD = """\
import os, time
from pathlib import Path

asked = []

def check(text):
    '''Answer for five samples, then hang.'''
    n = int(next((word for word in text.split() if word.isdigit()), -1))  # none in a probe
    asked.extend([n] * (n >= 0))
    if Path('hang').exists() and len(asked) > 5:
        Path(f'in-{os.getpid()}').touch()
        time.sleep(3600)
    return n % 3 == 0
"""
CONFIG = """\
version: 1
name: interrupts
data: [{{path: data.jsonl}}]
defenses: {{mine: {{type: python, target: "guard.py:check"}}}}
latency: {{warmup: {warmup}}}
run: {{workers: {workers}}}
"""


@pytest.fixture(autouse=True)
def hang_ups_are_heard() -> Iterator[None]:
    """Undo what `nohup` leaves to all that it starts: a run rightly ignores what it was told to."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def lay_out(folder: Path, *, workers: str = "inline", warmup: int = 0) -> None:
    """A run whose defense hangs for as long as the file `hang` lies there."""
    set_up(folder, CONFIG.format(workers=workers, warmup=warmup), count=120)
    (folder / "guard.py").write_text(GUARD, encoding="utf-8")
    (folder / "hang").touch()


RUN = ("run", "bench.yaml", "-o", "out")


@contextmanager
def until_it_hangs(
    folder: Path, command: tuple[str, ...] = RUN, **how: object
) -> Iterator[subprocess.Popen[str]]:
    """Begin a command, in a group of its own, and wait until a call hangs; leave nobody behind."""
    child = subprocess.Popen(
        words(*command),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **how,  # type: ignore[call-overload]
    )
    for _ in range(6000):
        if list(folder.glob("in-*")) or child.poll() is not None:
            break
        time.sleep(0.01)
    assert child.poll() is None
    with child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def is_running(pid: int) -> bool:
    """Whether a process does anything any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def stored(folder: Path) -> int:
    """How many records a sound run holds."""
    assert check(folder / "out/records.sqlite") == []
    with RecordReader(folder / "out/records.sqlite") as reader:
        return reader.status().stored


def finish(folder: Path) -> None:
    """Give the command again, now that nothing hangs."""
    (folder / "hang").unlink()
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    assert stored(folder) == 120
    assert guardmark("verify", "out", cwd=folder).code == 0


@pytest.mark.parametrize(
    ("workers", "kind"),
    [
        ("inline", signal.SIGINT),
        ("inline", signal.SIGHUP),
        ("threads", signal.SIGTERM),
        ("processes", signal.SIGINT),
        ("processes", signal.SIGHUP),
    ],
)
def test_a_call_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, workers: str, kind: signal.Signals
) -> None:
    """What was finished before it is stored, in line and by every worker; nobody stays behind."""
    lay_out(tmp_path, workers=workers)
    with until_it_hangs(tmp_path) as child:
        os.killpg(child.pid, kind)
        _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Interrupted. Answers so far are saved. " in said
    assert "Traceback" not in said
    assert "leaked" not in said
    assert stored(tmp_path) >= 4
    assert not any(is_running(int(path.name[3:])) for path in tmp_path.glob("in-*"))
    finish(tmp_path)


def test_an_attack_on_a_defense_that_hangs_ends_when_it_is_told_to(tmp_path: Path) -> None:
    """It says how to go on, and does so once nothing hangs."""
    lay_out(tmp_path)
    finish(tmp_path)
    (tmp_path / "hang").touch()
    with until_it_hangs(
        tmp_path, ("adapt", "out", "--budget", "4", "--config", "bench.yaml")
    ) as child:
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "To continue: guardmark adapt out --budget 4" in said
    (tmp_path / "hang").unlink()
    assert (
        guardmark("adapt", "out", "--budget", "4", "--config", "bench.yaml", cwd=tmp_path).code == 0
    )


@pytest.mark.parametrize("awaited", ["", "async "])
def test_a_probe_that_hangs_does_not_hold_up_the_end(tmp_path: Path, awaited: str) -> None:
    """The questions before a run are calls as well."""
    lay_out(tmp_path)
    sleep = "import asyncio; await asyncio.sleep(3600)" if awaited else "time.sleep(3600)"
    body = f"import os, time\n{awaited}def check(text):\n    open(f'in-{{os.getpid()}}', 'w').close(); {sleep}\n"
    (tmp_path / "guard.py").write_text(body, encoding="utf-8")
    with until_it_hangs(tmp_path) as child:
        child.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert child.wait(timeout=60) == 130
    assert time.monotonic() - began < 30  # an answer may take 60 s


def test_a_warm_up_that_hangs_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """The first calls of a run are calls as well."""
    lay_out(tmp_path, warmup=20)
    with until_it_hangs(tmp_path) as child:
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=60) == 130
    finish(tmp_path)


def test_processes_of_a_run_that_was_killed_end_too(tmp_path: Path) -> None:
    """Nobody waits for their answers, and nobody else would end them."""
    lay_out(tmp_path, workers="processes")
    with until_it_hangs(tmp_path) as child:
        child.kill()
    left = {int(path.name[3:]) for path in tmp_path.glob("in-*")}
    for _ in range(3000):
        if not any(is_running(pid) for pid in left):
            break
        time.sleep(0.01)
    assert left
    assert not any(is_running(pid) for pid in left)
    finish(tmp_path)


def test_a_terminal_that_is_closed_ends_the_run_in_order(tmp_path: Path) -> None:
    """There is nobody left to tell; what was finished is stored, and the code says interrupted."""
    import pty

    lay_out(tmp_path)
    ours, theirs = pty.openpty()
    # The first terminal that a session without one opens becomes its own.
    line = ["sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(theirs)]
    line += words("run", "bench.yaml", "-o", "out")
    child = subprocess.Popen(line, cwd=tmp_path, start_new_session=True)
    os.close(theirs)
    for _ in range(6000):
        if list(tmp_path.glob("in-*")):
            break
        time.sleep(0.01)
    os.close(ours)
    assert child.wait(timeout=60) == 130
    assert stored(tmp_path) >= 4
    finish(tmp_path)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_run_goes_on_though_nobody_reads_what_it_says(tmp_path: Path, stream: str) -> None:
    """A reader that left took nothing of the measurement with it."""
    lay_out(tmp_path)
    (tmp_path / "hang").unlink()
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        words("run", "bench.yaml", "-o", "out"),
        cwd=tmp_path,
        check=False,
        timeout=60,
        **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: theirs},  # type: ignore[call-overload]
    )
    os.close(theirs)
    assert done.returncode == (0 if stream == "stderr" else 141)
    assert stored(tmp_path) == 120
    assert (tmp_path / "out/report.html").exists()


def test_closed_streams_are_no_fault(tmp_path: Path) -> None:
    """Some that start programs leave them none."""
    lay_out(tmp_path)
    (tmp_path / "hang").unlink()
    line = ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *words("run", "bench.yaml", "-o", "out")]
    assert subprocess.run(line, cwd=tmp_path, check=False, timeout=60).returncode == 0
    assert stored(tmp_path) == 120


def test_a_run_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    """A hang-up that was to be ignored is ignored."""
    lay_out(tmp_path)
    ignoring = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN) and None  # noqa: E731
    with until_it_hangs(tmp_path, preexec_fn=ignoring) as child:
        child.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=60) == 130


def test_processes_give_the_records_of_a_run_in_line(tmp_path: Path) -> None:
    """A configuration is all they need; what looks samples up is asked where it knows them."""
    told = []
    for workers in ("inline", "processes"):
        folder = tmp_path / workers
        folder.mkdir()
        lay_out(folder, workers=workers)
        (folder / "hang").unlink()
        with (folder / "bench.yaml").open("a", encoding="utf-8") as config:
            config.write("report: [json]\n")
        lines = [f'{{"id": "s-{n}", "decision": "block"}}\n' for n in range(120)]
        (folder / "stored.jsonl").write_text("".join(lines), encoding="utf-8")
        text = (folder / "bench.yaml").read_text("utf-8")
        more = 'check"}, kept: {type: decisions, path: stored.jsonl}}'
        (folder / "bench.yaml").write_text(text.replace('check"}}', more), encoding="utf-8")
        done = guardmark("run", "bench.yaml", "-o", "out", cwd=folder)
        assert done.code == 0, done.err
        rows = (folder / "out/results.jsonl").read_text("utf-8").splitlines()
        records = [json.loads(row) for row in rows]
        # Which record is the first call of a process depends on which process was free.
        assert any(record["flags"] & FLAG_COLD for record in records)
        told.append([{**record, "latency_ns": None, "flags": 0} for record in records])
    assert told[0] == told[1]
    assert len(told[0]) == 240


ROGUE = """\
import os, sys

os.chdir("/")

def check(text):
    print("a word on stdout")
    os.chdir("/")
    return "ignore" in text
"""


@pytest.mark.parametrize("workers", ["inline", "processes"])
def test_a_defense_may_print_and_walk_about(tmp_path: Path, workers: str) -> None:
    """What it prints is no part of our JSON, and files lie where they were asked for."""
    lay_out(tmp_path, workers=workers, warmup=3)
    (tmp_path / "guard.py").write_text(ROGUE, encoding="utf-8")
    done = guardmark("run", "bench.yaml", "-o", "out", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert json.loads(done.out)["run"]["stored"] == 120
    assert "a word on stdout" in done.err
    assert (tmp_path / "out/report.html").exists()


def test_a_budget_of_calls_holds_for_workers_too(tmp_path: Path) -> None:
    """What is handed out to them in advance is spent."""
    lay_out(tmp_path, workers="threads")
    (tmp_path / "hang").unlink()
    text = (tmp_path / "bench.yaml").read_text("utf-8")
    text = text.replace("threads}", "threads, max_calls: 40}")
    (tmp_path / "bench.yaml").write_text(text, encoding="utf-8")
    codes = []
    for _ in range(3):
        codes.append(guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path).code)
        codes.append(stored(tmp_path))
    assert codes[:4] == [6, 40, 6, 80]
    assert codes[5] == 120
