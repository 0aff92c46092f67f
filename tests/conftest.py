"""Fixtures every test may ask for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aiohttp import web

# Nothing is timed: a loaded machine must not fail a law.
settings.register_profile("guardmark", deadline=None)
settings.load_profile("guardmark")

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


class Loopback:
    """A real server on this machine: its address, and how to stop it early."""

    def __init__(self, url: str, port: int, stop: Callable[[], Awaitable[None]]) -> None:
        self.url = url
        self.port = port
        self._stop: Callable[[], Awaitable[None]] | None = stop

    async def stop(self) -> None:
        """Close the port and every connection; a second call does nothing."""
        stop, self._stop = self._stop, None
        if stop is not None:
            await stop()


class Serve(Protocol):
    """Starts a server whose every path is answered by one function."""

    async def __call__(
        self,
        answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
        *,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> Loopback:
        """Start one and return it."""
        ...


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start loopback HTTP servers; they stop with the test."""
    from aiohttp import web

    started: list[Loopback] = []

    async def start(
        answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
        *,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> Loopback:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls, reuse_address=True)
        await site.start()
        bound = runner.addresses[0][1]
        scheme = "http" if tls is None else "https"
        started.append(Loopback(f"{scheme}://localhost:{bound}", bound, runner.cleanup))
        return started[-1]

    yield start
    for server in started:
        await server.stop()


@pytest.fixture
async def serve_raw() -> AsyncIterator[
    Callable[[Callable[..., Awaitable[None]]], Awaitable[Loopback]]
]:
    """Start loopback servers that speak raw bytes, to break the protocol on purpose.

    The function gets a reader and a writer for each connection; the connection closes when
    it returns.
    """
    started: list[Loopback] = []
    talking: set[asyncio.Task[Any]] = set()

    async def start(talk: Callable[..., Awaitable[None]]) -> Loopback:
        async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            talking.add(task)
            try:
                await talk(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass
            finally:
                talking.discard(task)
                writer.close()

        async def stop() -> None:
            server.close()
            for task in list(talking):
                task.cancel()
            await server.wait_closed()

        server = await asyncio.start_server(one, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        started.append(Loopback(f"http://127.0.0.1:{port}", port, stop))
        return started[-1]

    yield start
    for server in started:
        await server.stop()
