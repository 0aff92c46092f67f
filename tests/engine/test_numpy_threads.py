"""A run's figures are computed with one thread of linear algebra: more only wait for each other."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM: Final = """
import builtins, os, sys
load = builtins.__import__
threads = []
def note(name, *rest, **named):
    if name == "numpy" and "numpy" not in sys.modules:
        threads.append(os.environ.get("OPENBLAS_NUM_THREADS"))
    return load(name, *rest, **named)
builtins.__import__ = note
from guardmark.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert not ended.code, ended.code
print(threads[0])
"""


@pytest.mark.slow
def test_numpy_is_loaded_with_one_thread_once_all_calls_are_made(tmp_path: Path) -> None:
    """Notes on the data are the first to need it; loaded there with all threads, it keeps them."""
    rows = [
        {
            "id": f"s{number}",
            "text": f"Text number {number}",
            "label": label,
            "category": "jailbreak",
        }
        for number, label in enumerate(["attack", "benign"] * 3)
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    config = {
        "version": 1,
        "name": "threads",
        "data": [{"path": str(data)}],
        "defenses": {"words": {"type": "pattern", "patterns": ["number 2"]}},
        "report": ["json"],
    }
    (tmp_path / "bench.yaml").write_text(json.dumps(config), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "run", "bench.yaml", "-o", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "1"
