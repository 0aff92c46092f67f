"""Clients for the tests of this room."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from guardmark.net.client import Services
from guardmark.net.service import ServiceLimits
from guardmark.store.locks import try_lock

QUICK = {"backoff_s": 0.001, "connect_timeout_s": 10.0, "read_timeout_s": 10.0}


@pytest.fixture
async def make_services() -> AsyncIterator[Callable[..., Services]]:
    """Build clients whose retries do not wait long; they close with the test."""
    made: list[Services] = []

    def make(**settings: object) -> Services:
        door = {
            k: settings.pop(k) for k in ("limits", "record", "replay", "offline") if k in settings
        }
        default = ServiceLimits(**{**QUICK, **settings})  # type: ignore[arg-type]
        made.append(
            Services(door.pop("limits", None), default=default, record_lock=try_lock, **door)
        )  # type: ignore[arg-type]
        return made[-1]

    yield make
    for client in made:
        await client.close()


@pytest.fixture
async def services(make_services: Callable[..., Services]) -> Services:
    """One such client."""
    return make_services()
