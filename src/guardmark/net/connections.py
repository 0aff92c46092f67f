"""Connections of a run: kept alive, but never one on which somebody spoke out of turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

from guardmark.net.deadline import start_time

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace


class Connections(aiohttp.TCPConnector):
    """aiohttp's connections, with one further look before one is used again.

    What a server sends while a connection lies idle would be read as the answer to the next
    request: one sample would get an answer that nobody gave to it. Inheriting is the only way
    that aiohttp offers to look at a connection before a request goes out on it.
    """

    def __init__(self, *, is_fresh: bool = False) -> None:
        # The gates of the services decide how many connections there are.
        super().__init__(limit=0, ttl_dns_cache=300, force_close=is_fresh)

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 - aiohttp's signature
    ) -> Connection:
        """Get a connection on which nothing is left over; the time of the call runs from here."""
        while True:
            connection = await super().connect(req, traces, timeout)
            if connection.protocol is None or not connection.protocol.should_close:
                start_time()
                return connection
            connection.close()
