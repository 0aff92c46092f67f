"""Makes the writer of small runs importable, and hands it out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from small_runs import Runs


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """A writer of small runs."""
    return Runs(folder=tmp_path)
