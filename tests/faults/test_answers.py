"""What a server may send in place of an answer: one line of `ANSWERS` each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from guardmark.core.outcome import ErrorKind
from guardmark.net.client import Services
from guardmark.net.service import ServiceLimits

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BODY: Final = b'{"flagged": false}'
LENGTH: Final = b"Content-Length: 18\r\n\r\n"
ANSWERS: Final[dict[str, tuple[bytes, ErrorKind | None]]] = {
    "an answer": (HEAD + LENGTH + BODY, None),
    "nothing": (b"", ErrorKind.CONNECTION),
    "half a head": (b"HTTP/1.1 200", ErrorKind.CONNECTION),
    "a head alone": (HEAD + LENGTH, ErrorKind.CONNECTION),
    "half a body": (HEAD + LENGTH + BODY[:9], ErrorKind.CONNECTION),
    "half a chunk": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n12\r\n" + BODY[:9],
        ErrorKind.CONNECTION,
    ),
    "no last chunk": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n12\r\n" + BODY + b"\r\n",
        ErrorKind.CONNECTION,
    ),
}
"""Name to what is sent before the connection closes, and the kind of error that it is."""


@pytest.mark.parametrize("case", ANSWERS)
async def test_what_is_no_answer_is_an_error_of_its_kind(
    case: str, serve_raw: Callable[..., Any]
) -> None:
    """It is never read as an answer, and nothing of it is kept as one."""
    sent, kind = ANSWERS[case]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2)
        writer.write(sent)
        await writer.drain()
        writer.close()

    server = await serve_raw(talk)
    client = Services(default=ServiceLimits(retries=0, read_timeout_s=5))
    exchange = await client.endpoint(server.url).send(b"{}")
    await client.close()
    assert exchange.error_kind is kind
    assert exchange.body == (b"" if kind else BODY)
