"""numpy for reports: one thread for a process that only reports, all of them for a defense."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_LOAD = (
    "from guardmark.engine.execution.process import load_numpy_for_reports as load; "
    "import os, sys; "
)

_COUNT_AT_END = """
import os, sys
from guardmark.__main__ import main
try:
    main()
finally:
    tasks = "/proc/self/task"
    print("threads", len(os.listdir(tasks)) if os.path.isdir(tasks) else 1)
"""


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


def test_a_command_that_calls_nothing_computes_with_one_thread(tmp_path: Path) -> None:
    """Threads that wait for each other, awake, took more of a report than its figures."""
    (tmp_path / "threads.py").write_text(_COUNT_AT_END, encoding="utf-8")
    (tmp_path / "bench.yaml").write_text(
        "version: 1\ndata: [{builtin: core@2, limit: 40}]\n"
        "defenses: {words: {type: pattern, builtin: true}}\n",
        encoding="utf-8",
    )
    command = (sys.executable, "threads.py")
    for words in (("run", "bench.yaml", "-o", "out"), ("report", "out")):
        told = subprocess.run(
            [*command, *words], capture_output=True, text=True, cwd=tmp_path, check=False
        )
    assert told.stdout.splitlines()[-1] == "threads 1", told
