"""Runs that are written for other programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.analysis.small_runs import Runs


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """A writer of small runs."""
    return Runs(folder=tmp_path)
