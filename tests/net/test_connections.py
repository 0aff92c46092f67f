"""Connections between requests: kept while they are good, and never with a foreign answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from guardmark.net.connections import Connections, Origin
from guardmark.net.framing import AnswerReader, Fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    Serve = Callable[..., Any]

REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    """Connections of a run; they close with the test."""
    made = Connections()
    yield made
    await made.close()


def _origin(server: Any) -> Origin:
    return Origin(host="127.0.0.1", port=server.port, tls=None)


async def _ask(connections: Connections, origin: Origin, *, within_s: float = 5.0) -> bytes:
    connection = await connections.take(origin, within_s=5.0)
    reader = AnswerReader(most=1000)
    try:
        await connection.ask(REQUEST, reader, within_s=within_s)
    finally:
        connections.give_back(origin, connection)
    return reader.body


class Talker:
    """A server that counts its connections and says the same after every request."""

    def __init__(self, said: bytes, *, then: bytes = b"", turns: int = 1_000) -> None:
        self.said = said
        self.then = then
        self.turns = turns
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        for _ in range(self.turns):
            try:
                await reader.readuntil(b"\r\n\r\n{}")
            except asyncio.IncompleteReadError:
                return
            writer.write(self.said)
            await writer.drain()
            if self.then:
                await asyncio.sleep(0.02)
                writer.write(self.then)
                await writer.drain()


async def test_one_connection_serves_many_requests(
    connections: Connections, serve_raw: Serve
) -> None:
    """Opening one costs more than a request."""
    talker = Talker(GOOD)
    origin = _origin(await serve_raw(talker))
    assert [await _ask(connections, origin) for _ in range(5)] == [b"{}"] * 5
    assert talker.connections == 1


@pytest.mark.parametrize(
    "said",
    [
        GOOD.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"),
        GOOD.replace(b"1.1", b"1.0"),
        GOOD + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    ],
    ids=["told to close", "HTTP/1.0", "more than was asked for"],
)
async def test_a_connection_that_cannot_be_trusted_is_not_used_again(
    connections: Connections, serve_raw: Serve, said: bytes
) -> None:
    """What is left on it would be read as the next answer."""
    talker = Talker(said)
    origin = _origin(await serve_raw(talker))
    assert [await _ask(connections, origin) for _ in range(3)] == [b"{}"] * 3
    assert talker.connections == 3


async def test_what_comes_unasked_is_nobodys_answer(
    connections: Connections, serve_raw: Serve
) -> None:
    """A server that says more later has spoilt its connection."""
    talker = Talker(GOOD, then=b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    origin = _origin(await serve_raw(talker))
    assert await _ask(connections, origin) == b"{}"
    await asyncio.sleep(0.1)
    assert await _ask(connections, origin) == b"{}"
    assert talker.connections == 2


async def test_a_connection_the_server_closed_meanwhile_is_not_used(
    connections: Connections, serve_raw: Serve
) -> None:
    """The request would be lost, and counted as a failure of the service."""
    talker = Talker(GOOD, turns=1)
    origin = _origin(await serve_raw(talker))
    for _ in range(3):
        assert await _ask(connections, origin) == b"{}"
        await asyncio.sleep(0.05)
    assert talker.connections == 3


async def test_an_answer_that_came_too_late_is_not_the_next_ones(
    connections: Connections, serve_raw: Serve
) -> None:
    """After a timeout or a cancellation the connection is gone."""
    first = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        if not first.is_set():
            first.set()
            await asyncio.sleep(0.1)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
        else:
            writer.write(GOOD)
        await writer.drain()

    origin = _origin(await serve_raw(slow))
    with pytest.raises(Fault, match="timeout"):
        await _ask(connections, origin, within_s=0.05)
    assert await _ask(connections, origin) == b"{}"
    call = asyncio.create_task(_ask(connections, origin))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await _ask(connections, origin) == b"{}"


async def test_a_port_that_does_not_answer_is_given_up(connections: Connections) -> None:
    """Opening has a time of its own."""
    # A listener whose queue is full takes no further connection.
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            origin = Origin(host="127.0.0.1", port=port, tls=None)
            with pytest.raises(Fault, match="connect_timeout"):
                await connections.take(origin, within_s=0.1)
