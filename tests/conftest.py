"""Fixtures every test may ask for."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aiohttp import web

# Nothing is timed: a loaded machine must not fail a law. `make test` draws the same cases every
# time; `make soak` draws new ones (--hypothesis-profile=random).
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("same")


POSIX_ONLY = (
    "cli/test_ends.py",
    "cli/test_interrupts.py",
    "defenses/test_command.py",
    "defenses/test_command_pipes.py",
    "defenses/test_library_templates.py",
    "faults",
    "journeys/test_interrupts.py",
    "journeys/test_native_crash.py",
    "journeys/test_signals.py",
)
"""Tests of signals, kills, pipes and processes as POSIX has them; docs/reference/platforms.md says
what guardmark does without them."""

collect_ignore = list(POSIX_ONLY) if sys.platform == "win32" else []


def pytest_report_header() -> list[str]:
    """Say which tests this system cannot run."""
    return [f"not on Windows: {', '.join(POSIX_ONLY)}"] if collect_ignore else []


def pytest_sessionfinish() -> None:
    """Keep what `make coverage` measured: a worker that takes ten seconds to end is killed."""
    coverage = sys.modules.get("coverage")
    if coverage is not None and (measured := coverage.Coverage.current()) is not None:
        measured.save()


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


class ChatServer:
    """A real loopback server of the common chat protocol that says what a test wants.

    Attributes:
        base_url: What a configuration would name.
        requests: Every request body, in order.
        headers: Headers of every request, in order.
        reply: From a request body to a text, a whole JSON document, or (status, text) with or
            without headers.
    """

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.reply: Callable[[dict[str, Any]], object] = lambda _: "hello"

    def document(self, text: object, **choice: object) -> dict[str, object]:
        """Wrap a text as the protocol does; further fields go into the choice."""
        message = {"role": "assistant", "content": text}
        return {
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", **choice}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3},
        }

    async def respond(self, request: web.Request) -> web.Response:
        """Answer one request."""
        from aiohttp import web

        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        said = self.reply(body)
        if isinstance(said, tuple):
            headers = said[2] if len(said) > 2 else None
            return web.Response(status=said[0], text=said[1], headers=headers)
        return web.json_response(said if isinstance(said, dict) else self.document(said))


@pytest.fixture
async def chat_server() -> AsyncIterator[ChatServer]:
    """A chat server on loopback, for one test."""
    from aiohttp import web

    app = web.Application()
    runner = web.AppRunner(app)
    server = ChatServer("")
    app.router.add_post("/v1/chat/completions", server.respond)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    server.base_url = f"http://127.0.0.1:{port}/v1"
    yield server
    await runner.cleanup()
