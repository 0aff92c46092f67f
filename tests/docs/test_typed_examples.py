"""Every Python program of the pages and of the examples is one that `mypy --strict` accepts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
OF_READERS = ("my_guard.py", "some_guard.py")
"""Modules that pages import and readers have."""
THEIRS = """
from typing import Any
from guardmark import Decision, Outcome
from guardmark.core.sample import Prompt, View

class Scanner:
    def scan(self, text: str) -> Any: ...

def our_guard(text: str) -> bool:
    return "ignore" in text

class MyDefense:
    name = "mine"
    view = View.TEXT

    def decide(self, prompt: Prompt) -> Decision:
        return Decision(outcome=Outcome.ALLOW)
"""


def programs() -> dict[str, str]:
    """The cells of each page as one program, but for transcripts of a prompt."""
    found = {}
    for page in PAGES:
        cells = [cell for cell in FENCE.findall(page.read_text("utf-8")) if ">>>" not in cell]
        if cells and page.parent.name != "decisions":
            found[f"{page.stem.replace('-', '_')}.py"] = "\n\n".join(cells)
    return found


@pytest.mark.slow
def test_the_programs_of_the_pages_are_strictly_typed(tmp_path: Path) -> None:
    """All at once, each page as if its cells were typed one after the other."""
    texts = programs() | dict.fromkeys(OF_READERS, THEIRS)
    assert len(texts) > 12
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = true\n[mypy-pandas.*]\nignore_missing_imports = true\n", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
