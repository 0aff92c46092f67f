"""Models that help an attacker, behind a server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.adaptive.attacking import Models, Seat, Table
from tests.conftest import Serve


@pytest.fixture
async def seat(serve: Serve) -> AsyncIterator[Seat]:
    """Start the models of a table behind a server; their connections close with the test."""
    opened: list[Models] = []

    async def start(table: Table) -> Models:
        opened.append(Models((await serve(table.respond)).url))
        await opened[-1].settle()
        return opened[-1]

    yield start
    for models in opened:
        await models.services.close()
