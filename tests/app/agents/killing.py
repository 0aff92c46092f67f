"""Kill a run of agents in the middle, and count what it stored."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

_LONGEST_S = 60


def kill_once_stored(config: Path, out: Path) -> int:
    """Run a configuration until records are stored, kill it, and return how many are there."""
    command = [sys.executable, "-m", "guardmark", "run", str(config), "-o", str(out)]
    silent = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=config.parent, stdout=silent, stderr=silent)
    deadline = time.monotonic() + _LONGEST_S
    while not stored_records(out):
        if process.poll() is not None:
            pytest.fail("the run ended before it could be killed")
        if time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"nothing was stored in {_LONGEST_S} seconds")
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return stored_records(out)


def stored_records(out: Path) -> int:
    """Count the records of a run; none where its file is not there yet or is being written."""
    try:
        records = f"file:{out / 'records.sqlite'}?mode=ro"
        with closing(sqlite3.connect(records, uri=True)) as connection:
            count: int = connection.execute("SELECT count(*) FROM records").fetchone()[0]
            return count
    except sqlite3.Error:
        return 0
