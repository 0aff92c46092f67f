"""Whoever ends a command is heard at each stage of it, and always in the same words."""

from __future__ import annotations

import compileall
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.journeys.command_line import guardmark, set_up

import guardmark as guardmark_package

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

CONFIG: Final = """\
version: 1
name: signals
data: [{path: data.jsonl}]
defenses:
  words: {type: pattern, patterns: ['ignore']}
  others: {type: pattern, patterns: ['please']}
pipeline:
  model: {type: scripted, otherwise: 'Here is an explanation.'}
  judges: [{type: rules, name: rules, unsafe: ['here is']}]
gate: {asr_upper: 0.9}
report: [json, md]
"""
JUDGES: Final = "judges: [{type: rules, name: second, unsafe: ['explanation']}]\n"
MATRIX: Final = """\
global: {version: 1, data: [{path: data.jsonl}], report: [json]}
rows: [{id: one, defenses: {words: {type: pattern, patterns: ['ignore']}}}]
"""
COMMANDS: Final = (
    "check bench.yaml",
    "run bench.yaml -o fresh",
    "matrix matrix.yaml -o several",
    "judge out --config judges.yaml",
    "judge out --quality",
    "adapt out --budget 4 --config bench.yaml",
    "report out",
    "show out",
    "compare out",
    "gate out",
    "stability out --seeds 2",
    "audit out",
    "export out --to csv",
    "verify out",
    "data check bench.yaml",
    "init",
)
"""To add a command, add a line."""

MOMENTS: Final = (0.03, 0.25, 0.5, 0.8)
"""Shares of what a command opens, imports, connects and renames."""

DRIVER: Final = """\
import atexit, os, signal, sys, threading

at, number, count = int(sys.argv[1]), getattr(signal, sys.argv[2]), 0
seen = {"open", "import", "sqlite3.connect", "os.rename", "os.mkdir", "os.remove"}

def hook(event, _):
    global count
    if event in seen and threading.current_thread() is threading.main_thread():
        count += 1
        if count == at:
            os.kill(os.getpid(), number)

from guardmark.__main__ import main

sys.argv = ["guardmark", *sys.argv[3:]]
if not at:
    atexit.register(lambda: os.write(2, b"steps %d" % count))
sys.addaudithook(hook)
main()
"""


def ended(at: int, kind: str, command: str, *, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Carry out a command that gets a signal at a numbered step, or, at 0, none."""
    return subprocess.run(
        [sys.executable, "-c", DRIVER, str(at), kind, *command.split()],
        cwd=cwd,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(autouse=True)
def signals_are_heard() -> Iterator[None]:
    """Undo what `nohup` and background jobs leave to all that they start."""
    hang_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGHUP, hang_up)
    signal.signal(signal.SIGINT, interrupt)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, and with what every command needs."""
    # Tests beside this one may compile a module between two counts of steps.
    compileall.compile_dir(str(Path(guardmark_package.__file__).parent), quiet=2)
    folder = tmp_path_factory.mktemp("measured")
    set_up(folder, CONFIG, count=24)
    (folder / "judges.yaml").write_text(JUDGES, encoding="utf-8")
    (folder / "matrix.yaml").write_text(MATRIX, encoding="utf-8")
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=folder)
    assert done.code in {0, 5}, done.err  # 5: two dozen samples decide no limit
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_signal_ends_a_command_in_the_same_words_at_any_stage(
    command: str, measured: Path, tmp_path: Path
) -> None:
    """Exit code 130, one sentence; and given again, the command does what it did undisturbed."""
    shutil.copytree(measured, tmp_path / "whole")
    whole = ended(0, "SIGTERM", command, cwd=tmp_path / "whole")
    assert whole.returncode in {0, 5}, whole.stderr
    steps = int(re.findall(r"steps (\d+)", whole.stderr)[-1])
    for number, share in enumerate(MOMENTS):
        work = tmp_path / f"at-{number}"
        shutil.copytree(measured, work)
        kind = ("SIGTERM", "SIGINT", "SIGHUP")[number % 3]
        done = ended(int(steps * share), kind, command, cwd=work)
        assert done.returncode == 130, (share, kind, done.stderr)
        assert done.stderr.count("Interrupted. Answers so far are saved.") == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
        again = ended(0, "SIGTERM", command, cwd=work)
        assert again.returncode == whole.returncode, (share, kind, again.stderr)
