"""Adaptive figures on a terminal: nothing runs out of the window."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from guardmark.reports.adaptive.text import wrapped_lines

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

words = st.lists(st.text("abcdefgh,;", min_size=1, max_size=12), min_size=1, max_size=40)


@given(words, st.integers(40, 120))
def test_a_broken_line_fits_and_loses_no_word(said: list[str], width: int) -> None:
    """Further lines stand under the text, not under its label."""
    line = f"  {'Repair':<14}{' '.join(said)}"
    broken = list(wrapped_lines([line], width))
    assert all(len(each) <= width for each in broken)
    assert " ".join(broken).split() == line.split()
    assert all(each.startswith(" " * 16) for each in broken[1:])


def test_a_line_that_fits_is_left_as_it_is() -> None:
    """Columns of figures keep their places."""
    line = "  R0            92.2 % [90.0, 93.9]     92.2 % [90.0, 93.9]  709/769"
    assert list(wrapped_lines([line], 100)) == [line]


def _prepare(folder: Path) -> None:
    (folder / "guard.yaml").write_text(CONFIG, encoding="utf-8")
    (folder / "rows.jsonl").write_text("".join(ROWS), encoding="utf-8")


def test_a_real_terminal_gets_lines_of_its_width(tmp_path: Path) -> None:
    """Eighty columns, every section labelled; no line is longer than that but a path."""
    _prepare(tmp_path)
    above, below = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "guardmark",
        "adapt",
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
    lines = said.decode().replace("\r\n", "\n").splitlines()
    for label in ("Columns", "Rounds", "Benign", "Learning", "Area", "Cost", "Repair"):
        assert any(line.startswith(f"  {label}  ") for line in lines)
    assert all(len(line) <= 80 for line in lines if str(tmp_path) not in line)


def test_a_file_gets_whole_lines(tmp_path: Path) -> None:
    """What is piped into another program can be searched line by line."""
    _prepare(tmp_path)
    command = [
        sys.executable,
        "-m",
        "guardmark",
        "adapt",
        "guard.yaml",
        "--budget",
        "quick",
        "-o",
        "out",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    (line,) = (each for each in done.stdout.splitlines() if each.startswith("  Repair"))
    assert "attacks blocked so far" in line or "no cleaning" in line
