"""numpy for reports: one thread for a process that only reports, all of them for a defense."""

from __future__ import annotations

import os
import subprocess
import sys

_LOAD = (
    "from guardmark.engine.execution.process import load_numpy_for_reports as load; "
    "import os, sys; "
)


def _say(program: str, **environment: str) -> str:
    """Run a program in a process of its own and return what it printed."""
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **environment},
    ).stdout.strip()


def test_numpy_is_there_afterwards_and_the_environment_is_as_before() -> None:
    """What was set for the import must not reach processes that are started later."""
    told = _say(
        _LOAD + "load(); print('numpy' in sys.modules, 'OPENBLAS_NUM_THREADS' in os.environ)"
    )
    assert told == "True False"


def test_a_choice_of_the_user_stands() -> None:
    """Somebody who named a number of threads gets it."""
    program = _LOAD + "load(); print('numpy' in sys.modules, os.environ['OPENBLAS_NUM_THREADS'])"
    assert _say(program, OPENBLAS_NUM_THREADS="3") == "False 3"


def test_a_report_of_one_thread_starts_no_other() -> None:
    """The threads nobody uses are what the report would pay for."""
    count = "print(len(os.listdir('/proc/self/task')) if os.path.isdir('/proc/self/task') else 1)"
    assert _say(_LOAD + "load(); " + count) == "1"
