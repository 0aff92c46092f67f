"""Adaptive figures on a terminal: nothing runs out of the window."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """\
version: 1
data: [{path: rows.jsonl}]
defenses: {words: {type: pattern, keywords: [sesame]}}
report: [json]
"""
ROWS = (
    *(
        f'{{"id": "a{i}", "text": "Open sesame number {i}.", "label": "attack"}}\n'
        for i in range(4)
    ),
    *(f'{{"id": "b{i}", "text": "Bake bread number {i}.", "label": "benign"}}\n' for i in range(4)),
)


def _prepare(folder: Path) -> None:
    (folder / "guard.yaml").write_text(CONFIG, encoding="utf-8")
    (folder / "rows.jsonl").write_text("".join(ROWS), encoding="utf-8")


@pytest.mark.slow
def test_a_real_terminal_gets_lines_of_its_width(tmp_path: Path) -> None:
    """Eighty columns, every section labelled; no line is longer than that but a path."""
    _prepare(tmp_path)
    above, below = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "guardmark",
        "adapt",
        "-v",
        "guard.yaml",
        "--budget",
        "quick",
        "-o",
        "out",
    ]
    done = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=below,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "80"},
    )
    os.close(below)
    said = b""
    while True:
        try:
            chunk = os.read(above, 65_536)
        except OSError:  # the other end was closed
            break
        if not chunk:
            break
        said += chunk
    assert done.wait(timeout=120) == 0
    os.close(above)
    assert b"\x1b[1mwords: threat model\x1b[0m" in said
    seen = re.sub(r"\x1b\[\d+m", "", said.decode())  # weights take no column
    lines = seen.replace("\r\n", "\n").splitlines()
    for start in (
        "  words: threat model",
        "    Round  ",
        "    Arm  ",
        "  - words: area under ASR@k",
    ):
        assert any(line.startswith(start) for line in lines)
    paths = (str(tmp_path), "    ")  # and lines of a configuration, to copy as they stand
    assert [line for line in lines if len(line) > 80 and not line.startswith(paths)] == []


@pytest.mark.slow
def test_a_file_gets_whole_lines(tmp_path: Path) -> None:
    """What is piped into another program can be searched line by line."""
    _prepare(tmp_path)
    command = [
        sys.executable,
        "-m",
        "guardmark",
        "adapt",
        "-v",
        "guard.yaml",
        "--budget",
        "quick",
        "-o",
        "out",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    line = next(each for each in done.stdout.splitlines() if "repaired (asked" in each)
    assert line.endswith("texts blocked before passes; not shown to help, so it is not offered")
