"""The reference pages follow from the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_commands_and_configuration_are_documented_as_they_are() -> None:
    """A new option or key that nobody documented fails here; the script writes the pages."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "write_reference.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nRun scripts/write_reference.py."
