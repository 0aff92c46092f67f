"""Fixtures every test may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of public data and reference values beside the project."""
    if not SHARED.is_dir():
        pytest.skip("the folder ../shared (public data, reference values) is not there")
    return SHARED


@pytest.fixture(autouse=True)
def _only_loopback(socket_enabled: None) -> None:
    """No socket of a test leaves this machine."""
