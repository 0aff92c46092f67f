"""One request and its answer, on a connection of aiohttp's pool and read by its parser.

For each request aiohttp merges headers, looks after cookies, redirects and proxies, sends the body
in a task of its own, and builds an object for either side. The requests of an endpoint differ in
their bodies alone: so the head is written once, and head and body leave together. Connecting,
certificates, the pool and the parser stay aiohttp's (ADR 0232).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from aiohttp import ClientTimeout
    from aiohttp.connector import Connection
    from aiohttp.streams import StreamReader
    from multidict import CIMultiDictProxy
    from yarl import URL

_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods whose requests say nothing of a length when they have no body."""
_SWITCHING_PROTOCOLS: Final = 101


class HttpAnswer:
    """The head of an answer, and its body to be read.

    Attributes:
        status: Its status.
        headers: Its headers.
        content: Its body, as it comes.
    """

    __slots__ = ("_connection", "content", "headers", "status")

    def __init__(
        self,
        connection: Connection,
        *,
        status: int,
        headers: CIMultiDictProxy[str],
        content: StreamReader,
    ) -> None:
        self._connection = connection
        self.status = status
        self.headers = headers
        self.content = content

    @property
    def content_length(self) -> int | None:
        """The length of the body, where the head tells it."""
        length = self.headers.get("Content-Length")
        if length is None:
            return None
        return int(length)

    def release(self) -> None:
        """Give the connection back; one that is not at the end of both messages is closed."""
        transport = self._connection.transport
        if transport is None or transport.get_write_buffer_size():  # answered before it was asked
            self._connection.close()
        else:
            self._connection.release()

    async def finish(self, *, within_s: float) -> None:
        """Give the connection back where the answer ends with nothing more in it; close it else.

        A new connection for each answer that streams would add its time to all of them.
        """
        try:
            async with asyncio.timeout(within_s):
                while not self.content.at_eof():
                    if (await self.content.readany()).strip():
                        break
        except (TimeoutError, aiohttp.ClientError, OSError):
            self.close()
            return
        except BaseException:
            self.close()
            raise
        if self.content.at_eof():
            self.release()
        else:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class PreparedRequest:
    """Everything of the requests to an address but their bodies, for one pool of connections."""

    __slots__ = ("_connector", "_has_length_always", "_head", "_is_head", "_key")

    def __init__(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        tls: ssl.SSLContext | bool,
        connector: aiohttp.TCPConnector,
    ) -> None:
        self._connector = connector
        # What the pool asks about an address, and the headers that aiohttp adds.
        self._key = aiohttp.ClientRequest(
            method, url, headers=headers, loop=asyncio.get_running_loop(), ssl=tls
        )
        self._is_head = method == "HEAD"
        self._has_length_always = method not in _WITHOUT_BODY
        lines = [f"{method} {self._key.url.raw_path_qs} HTTP/1.1"]
        for name, value in self._key.headers.items():
            if name.lower() != "content-length":
                lines.append(f"{name}: {value}")
        if connector.force_close:
            lines.append("Connection: close")
        self._head = "".join(f"{line}\r\n" for line in lines).encode()

    async def send(self, body: bytes, *, timeout: ClientTimeout) -> HttpAnswer:  # noqa: ASYNC109 - of connecting
        """Send a request and read the head of its answer.

        Raises:
            aiohttp.ClientError: If there is no connection, or no answer in the form of HTTP.
        """
        key = self._key
        try:
            connection = await self._connector.connect(key, [], timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"Connection timeout to {key.url.host}") from error
        try:
            return await self._ask(connection, body)
        except BaseException:
            connection.close()
            raise

    async def _ask(self, connection: Connection, body: bytes) -> HttpAnswer:
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None or transport.is_closing():
            raise aiohttp.ServerDisconnectedError
        protocol.set_response_params(skip_payload=self._is_head, read_until_eof=True)
        if body or self._has_length_always:
            transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body))
        else:
            transport.write(self._head + b"\r\n")
        while True:
            try:
                message, content = await protocol.read()
            except HttpProcessingError as error:
                raise aiohttp.ClientResponseError(
                    self._key.request_info,
                    (),
                    status=error.code,
                    message=error.message,
                    headers=error.headers,
                ) from error
            # What is said before the answer, such as "continue", is none.
            if not 100 <= message.code < 200 or message.code == _SWITCHING_PROTOCOLS:
                return HttpAnswer(
                    connection,
                    status=message.code,
                    headers=message.headers,
                    content=content,
                )


async def read_body(answer: HttpAnswer, most: int) -> bytes | None:
    """Read a body of at most so many bytes; None when there are more.

    A body that is read to its end gives its connection back; any other one loses it.
    """
    try:
        length = answer.content_length
        if length is not None and length > most:
            answer.close()
            return None
        if length is not None and "Content-Encoding" not in answer.headers:
            body = await answer.content.read()
            answer.release()
            return body
        pieces, total = [], 0
        # Neither a missing length nor a compressed body says how much will come.
        async for piece in answer.content.iter_any():
            total += len(piece)
            if total > most:
                answer.close()
                return None
            pieces.append(piece)
        answer.release()
        return b"".join(pieces)
    except BaseException:
        answer.close()
        raise
