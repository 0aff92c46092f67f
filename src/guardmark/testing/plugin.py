"""The pytest plug-in: the fixture `guardmark`.

Loaded by every pytest of an environment that has guardmark, so it imports next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.testing.guarding import GuardCheck

__all__ = ["guardmark_fixture"]


@pytest.fixture(name="guardmark")
def guardmark_fixture(tmp_path: Path) -> GuardCheck:
    """Measure defenses in a test; see `GuardCheck.assert_guarded`."""
    from guardmark.testing.guarding import GuardCheck

    return GuardCheck(folder=tmp_path / "guardmark")
