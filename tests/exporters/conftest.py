"""Runs that are written for other programs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

for room in ("analysis", "reports"):
    sys.path.append(str(Path(__file__).parents[1] / room))

from small_runs import Runs  # noqa: E402 - the lines above make it importable


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """A writer of small runs."""
    return Runs(folder=tmp_path)
