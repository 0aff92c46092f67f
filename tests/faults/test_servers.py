"""What a server may send in place of an answer: one line of `SERVERS` each."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from guardmark.core.outcome import ErrorKind
from guardmark.net.client import Services
from guardmark.net.service import ServiceLimits

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

LARGEST: Final = 64 * 1024
BODY: Final = b'{"flagged": false}'
HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
LENGTH: Final = b"Content-Length: 18\r\n\r\n"
CHUNKED: Final = HEAD + b"Transfer-Encoding: chunked\r\n\r\n12\r\n"
PACKED: Final = gzip.compress(b"\0" * 16 * LARGEST)


def status(line: str, *headers: str) -> bytes:
    """A whole answer of a status, with a body that would be read as `allow` under 200."""
    lines = [f"HTTP/1.1 {line}", "Content-Type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n" + LENGTH + BODY


@dataclass(frozen=True, slots=True)
class Fault:
    """What is sent before the connection closes, and what must become of it.

    Attributes:
        sent: The bytes.
        kind: The kind of error that it is; None for an answer.
        error: The word of each attempt.
        attempts: How often it is asked, with one retry allowed.
        message: Words that tell a person what happened.
    """

    sent: bytes
    kind: ErrorKind | None
    error: str
    attempts: int
    message: str = ""


HTTP, REFUSED = ErrorKind.HTTP, ErrorKind.REFUSED
CONTRACT, CONNECTION = ErrorKind.CONTRACT, ErrorKind.CONNECTION
SERVERS: Final[dict[str, Fault]] = {
    "an answer": Fault(HEAD + LENGTH + BODY, None, "", 0),
    "nothing": Fault(b"", CONNECTION, "disconnected", 2, "dropped"),
    "half a head": Fault(b"HTTP/1.1 200", CONNECTION, "disconnected", 2, "dropped"),
    "a head alone": Fault(HEAD + LENGTH, CONNECTION, "half_response", 2, "broke off"),
    "half a body": Fault(HEAD + LENGTH + BODY[:9], CONNECTION, "half_response", 2, "broke off"),
    "half a chunk": Fault(CHUNKED + BODY[:9], CONNECTION, "half_response", 2, "broke off"),
    "no last chunk": Fault(CHUNKED + BODY + b"\r\n", CONNECTION, "half_response", 2, "broke off"),
    "another protocol": Fault(b"SSH-2.0-OpenSSH_9.9\r\n", CONTRACT, "not_http", 1),
    "bytes of no protocol": Fault(b"\x00\xff\x00\xff\r\n\r\n", CONTRACT, "not_http", 1),
    "a status that is no number": Fault(b"HTTP/1.1 abc\r\n\r\n", CONTRACT, "not_http", 1),
    "a part of an answer": Fault(status("206 P"), CONTRACT, "http_206", 1, "a part of an answer"),
    "a redirect": Fault(
        status("302 F", "Location: http://elsewhere.invalid/"),
        CONTRACT,
        "http_302",
        1,
        "not followed",
    ),
    "a bad request": Fault(status("400 B"), HTTP, "http_400", 1, "flagged"),
    "a wrong key": Fault(status("401 U"), REFUSED, "http_401", 1, "401"),
    "no right to it": Fault(status("403 F"), REFUSED, "http_403", 1, "403"),
    "a wrong path": Fault(status("404 N"), HTTP, "http_404", 1, "404"),
    "too large for the server": Fault(status("413 T"), HTTP, "http_413", 1, "413"),
    "slow down": Fault(status("429 T", "Retry-After: 0"), HTTP, "http_429", 2, "429"),
    "a spent quota": Fault(status("429 T", "Retry-After: 3600"), HTTP, "http_429", 1, "3600 s"),
    "a fault of its own": Fault(status("500 I"), HTTP, "http_500", 2, "500"),
    "a gateway without a service": Fault(status("502 B"), HTTP, "http_502", 2, "502"),
    "not ready": Fault(status("503 S", "Retry-After: 0"), HTTP, "http_503", 2, "503"),
    "a packed bomb": Fault(
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(PACKED) + PACKED,
        CONTRACT,
        "too_large",
        1,
        f"more than {LARGEST} bytes",
    ),
    "an endless body": Fault(
        HEAD + b"Content-Length: 999999999\r\n\r\n" + b"x" * 2 * LARGEST,
        CONTRACT,
        "too_large",
        1,
        f"more than {LARGEST} bytes",
    ),
}
"""Name to fault: to add a case, add a line."""


@pytest.mark.parametrize("case", SERVERS)
async def test_what_is_no_answer_is_an_error_of_its_kind(
    case: str, serve_raw: Callable[..., Any]
) -> None:
    """It is never read as an answer, asked again only where that helps, and told in one line."""
    fault = SERVERS[case]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2)
        writer.write(fault.sent)
        await writer.drain()
        writer.close()

    server = await serve_raw(talk)
    limits = ServiceLimits(retries=1, backoff_s=0.001, read_timeout_s=5, max_response_bytes=LARGEST)
    client = Services(default=limits)
    exchange = await client.endpoint(server.url).send(b"{}")
    await client.close()
    assert exchange.error_kind is fault.kind
    assert [each.error for each in exchange.attempts] == [fault.error] * fault.attempts
    assert fault.message in exchange.message
    assert "\n" not in exchange.message
    if fault.kind is None:
        assert exchange.body == BODY
