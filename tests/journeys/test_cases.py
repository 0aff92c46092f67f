"""Small inputs that once gave a wrong figure, run as a user runs them: each gives the right value."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.command_line import Done, guardmark


@pytest.fixture
def cases(shared_dir: Path, tmp_path: Path) -> Path:
    """A copy of the small cases that lie beside the project."""
    shutil.copytree(shared_dir / "cases", tmp_path / "cases")
    return tmp_path / "cases"


def measured(cases: Path, name: str, *, code: int = 0) -> tuple[Done, dict[str, Any]]:
    """Run a case and return what was printed and its summary."""
    done = guardmark("run", f"{name}.yaml", "-o", "out", "--fresh", cwd=cases)
    assert done.code == code, done.err
    return done, json.loads((cases / "out" / "summary.json").read_text(encoding="utf-8"))


def test_families_stay_whole_when_a_second_file_is_read(cases: Path) -> None:
    """Three families with one file and with two: limits of 6.3 and 98.3."""
    _, summary = measured(cases, "groups-two-files")
    rate = summary["defenses"][0]["rates"]["attack_success_rate"]
    assert rate["groups"] == 3
    assert (round(100 * rate["low"], 1), round(100 * rate["high"], 1)) == (6.3, 98.3)
