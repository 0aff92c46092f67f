"""Speaking MCP with a proxy that was started: on its standard streams, or over HTTP on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from pathlib import Path

    from aiohttp import ClientResponse, ClientSession

VERSION: Final = "2025-06-18"
"""Version of the protocol that is spoken."""
_LONGEST: Final = 1 << 24
_QUOTED: Final = 200
_WAIT_S: Final = 0.02
_GRACE_S: Final = 0.5
_ACCEPTED: Final = 202
_FAILED_FROM: Final = 300
_STREAM: Final = "text/event-stream"


class ProxyFault(Exception):
    """What a proxy did in place of an answer."""

    def __init__(self, action: str, message: str) -> None:
        self.action = action
        super().__init__(message)


class Connection(Protocol):
    """A way to a proxy: messages go there, and what comes back for each is read."""

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send what needs no answer."""
        ...

    def exchange(self, message: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Send a request, and yield what comes until nothing more does."""
        ...

    async def close(self) -> None:
        """End the proxy and everything that it started."""
        ...


async def _start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], *, speaks: bool
) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE if speaks else asyncio.subprocess.DEVNULL
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe,
            stdout=pipe,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, **environment},
            limit=_LONGEST,
            start_new_session=True,
        )
    except OSError as error:
        raise ProxyFault("error", f"it cannot be started: {error.strerror}") from error


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _message_of(text: str | bytes) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        shown = text.encode("utf-8", "replace") if isinstance(text, str) else text
        raise ProxyFault("malformed", f"it wrote {shown[:_QUOTED]!r}") from error
    return message if isinstance(message, dict) else {}


@dataclass(slots=True, eq=False)
class StdioConnection:
    """A proxy that speaks lines of JSON on its standard streams."""

    process: asyncio.subprocess.Process

    @classmethod
    async def open(
        cls, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> StdioConnection:
        """Start a proxy."""
        return cls(await _start(command, folder, environment, speaks=True))

    async def send(self, message: Mapping[str, Any]) -> None:
        """Write a line."""
        if self.process.stdin is None:
            raise ProxyFault("error", "it has no input")
        try:
            self.process.stdin.write((json.dumps(message) + "\n").encode())
            await self.process.stdin.drain()
        except ConnectionError as error:
            raise ProxyFault("error", "it ended") from error

    async def exchange(self, message: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Write a line, and yield the lines that come back for as long as they are asked for."""
        await self.send(message)
        if self.process.stdout is None:
            raise ProxyFault("error", "it has no output")
        while True:
            try:
                line = await self.process.stdout.readline()
            except ValueError as error:
                raise ProxyFault("malformed", "it wrote a line that is too long") from error
            if not line:
                raise ProxyFault("error", "it ended")
            yield _message_of(line)

    async def close(self) -> None:
        """End the proxy and everything that it started."""
        await _end(self.process)


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True, eq=False)
class HttpConnection:
    """A proxy that listens on loopback: each message is a POST, answered by JSON or by events."""

    process: asyncio.subprocess.Process
    url: str
    client: ClientSession
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    async def open(
        cls, command: Sequence[str], folder: Path, environment: Mapping[str, str], *, url: str
    ) -> HttpConnection:
        """Start a proxy, and wait until it listens; the caller sets a limit of time."""
        import aiohttp

        process = await _start(command, folder, environment, speaks=False)
        # Neither proxies of the environment nor redirects: nothing leaves this machine.
        opened = cls(process, url, aiohttp.ClientSession(trust_env=False))
        try:
            await opened._wait_until_it_listens()
        except BaseException:
            await opened.close()
            raise
        return opened

    async def _wait_until_it_listens(self) -> None:
        port = int(self.url.split("//", 1)[1].split("/", 1)[0].rpartition(":")[2])
        while True:
            if self.process.returncode is not None:
                raise ProxyFault("error", f"it ended with exit code {self.process.returncode}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(_WAIT_S)
            else:
                writer.close()
                return

    async def send(self, message: Mapping[str, Any]) -> None:
        """Post what needs no answer."""
        async for _ in self.exchange(message):
            return

    async def exchange(self, message: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Post a message, and yield what stands in the answer."""
        import aiohttp

        headers = {
            "Accept": f"application/json, {_STREAM}",
            "MCP-Protocol-Version": VERSION,
            **self.headers,
        }
        try:
            async with self.client.post(
                self.url, json=message, headers=headers, allow_redirects=False
            ) as response:
                if response.status >= _FAILED_FROM:
                    raise ProxyFault("error", f"it answered with status {response.status}")
                session = response.headers.get("Mcp-Session-Id")
                if session:
                    self.headers["Mcp-Session-Id"] = session
                if response.status == _ACCEPTED:
                    return
                if response.content_type == _STREAM:
                    async for told in _events(response):
                        yield told
                else:
                    yield _message_of(await _whole(response))
        except aiohttp.ClientError as error:
            # The line breaks before the process is gone.
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    await self.process.wait()
            has_ended = self.process.returncode is not None
            why = "it ended" if has_ended else f"it broke off ({type(error).__name__})"
            raise ProxyFault("error", why) from error

    async def close(self) -> None:
        """End the proxy and everything that it started."""
        await self.client.close()
        await _end(self.process)


async def _whole(response: ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _LONGEST:
            raise ProxyFault("malformed", "its answer is too long")
    return bytes(body)


async def _events(response: ClientResponse) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the messages of a stream of server-sent events."""
    data: list[bytes] = []
    left = bytearray()
    size = 0
    async for chunk in response.content.iter_any():
        left += chunk
        size += len(chunk)
        if size > _LONGEST:
            raise ProxyFault("malformed", "its answer is too long")
        *lines, rest = left.split(b"\n")
        left = bytearray(rest)
        for line in lines:
            text = bytes(line).rstrip(b"\r")
            if text.startswith(b"data:"):
                data.append(text[5:].removeprefix(b" "))
            elif not text and data:
                yield _message_of(b"\n".join(data))
                data = []
    if data:
        yield _message_of(b"\n".join(data))
