"""A part that takes the whole process down: what is said, what is kept, what helps."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from tests.journeys.command_line import few_rows, guardmark, write_rows

if TYPE_CHECKING:
    from pathlib import Path

GUARD = """\
import ctypes, os, signal

def reads_nowhere(text):
    return bool(ctypes.string_at(0)) if text.endswith("17") else False

def gives_up(text):
    return os.abort() if text.endswith("17") else False

def is_killed(text):
    return os.kill(os.getpid(), signal.SIGKILL) if text.endswith("17") else False
"""


def prepare(folder: Path, **settings: str) -> None:
    """Write rows, a guard that crashes on one of them, and a configuration."""
    rows = few_rows(20)
    rows[17]["text"] = "number 17"
    write_rows(folder / "data.jsonl", rows)
    (folder / "guard.py").write_text(GUARD, encoding="utf-8")
    config = {
        "version": 1,
        "data": [{"path": "data.jsonl"}],
        "defenses": {"mine": {"type": "python", **settings}},
        "report": ["json"],
    }
    (folder / "bench.yaml").write_text(json.dumps(config), encoding="utf-8")


@pytest.mark.parametrize(
    ("function", "ending", "frame"),
    [
        ("reads_nowhere", signal.SIGSEGV, "in reads_nowhere"),
        ("gives_up", signal.SIGABRT, "in gives_up"),
        ("is_killed", signal.SIGKILL, ""),
    ],
)
def test_a_crash_in_this_process_says_where_and_what_helps(
    tmp_path: Path, function: str, ending: signal.Signals, frame: str
) -> None:
    """In at most five lines; a run that ends well says nothing of the kind."""
    prepare(tmp_path, target=f"guard.py:{function}")
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == -ending
    lines = done.err.splitlines()
    last = lines[
        next(i for i, each in enumerate(lines) if each.startswith(("Fatal", "guardmark "))) :
    ]
    assert len(last) <= 5
    assert frame in " ".join(last)
    assert "native code of a part crashed, or it was killed" in last[-2]
    assert last[-1].startswith(
        "Next: the same command goes on; if it ends again, give the function env"
    )
    assert (tmp_path / "out" / "records.sqlite").is_file()


def test_in_a_process_of_its_own_a_crash_is_an_error_of_one_sample(tmp_path: Path) -> None:
    """As the message says."""
    prepare(tmp_path, target="guard.py:reads_nowhere", interpreter=sys.executable)
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert "Fatal Python error" not in done.err
    (mine,) = json.loads((tmp_path / "out/summary.json").read_text("utf-8"))["defenses"]
    counts = mine["counts"]
    assert sum(counts[label]["answered"] for label in ("attacks", "benign")) == 19
