"""What was changed in a finished run is found, and named with its file and place."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.faults.tampering import TAMPERING
from tests.journeys.test_verify import look, measure

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and its data."""
    folder = tmp_path_factory.mktemp("measured")
    measure(folder)
    return folder


@pytest.mark.parametrize("case", TAMPERING)
def test_tampering_is_found(case: str, measured: Path, tmp_path: Path) -> None:
    """Every kind of change is a difference, and the line about it says where."""
    shutil.copytree(measured, tmp_path / "copy")
    change, said = TAMPERING[case]
    change(tmp_path / "copy" / "out")
    found = look(tmp_path / "copy" / "out")
    assert not found.holds
    everything = [*found.damage, *map(str, found.mismatches)]
    assert any(said in each for each in everything), everything[:10]
