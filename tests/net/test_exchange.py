"""Requests leave, and answers are read, as aiohttp's own client would have it."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from yarl import URL

from guardmark.net.client import Connections, Services
from guardmark.net.exchange import PreparedRequest, read_body

Serve = Callable[..., Awaitable[Any]]
Make = Callable[..., Services]
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json",
    "X-Key": "made-up",
    "User-Agent": "test",
}
WITHIN = aiohttp.ClientTimeout(total=None, connect=5)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """Return a request as it came, its body included."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return head + await reader.readexactly(int(value))
    return head


@pytest.mark.parametrize("path", ["/check", "/a%20b?q=x%26y&z=ü"])
@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("POST", b'{"input": "caf\xc3\xa9"}'),
        ("POST", b""),
        ("PUT", b"{}"),
        ("GET", b""),
        ("GET", b"{}"),
        ("HEAD", b""),
        ("DELETE", b""),
    ],
)
async def test_a_request_has_the_bytes_of_aiohttps(
    serve_raw: Serve, method: str, body: bytes, path: str
) -> None:
    """Line, headers and length: a service cannot tell the two apart."""
    came: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await read_request(reader))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()

    url = URL((await serve_raw(talk)).url + path)
    connections = Connections()
    ours = PreparedRequest(method, url, headers=HEADERS, tls=True, connector=connections)
    answer = await ours.send(body, timeout=WITHIN)
    assert await read_body(answer, 100) == b""
    async with aiohttp.ClientSession() as session:
        await (await session.request(method, url, headers=HEADERS, data=body or None)).read()
    await connections.close()
    assert sorted(came[0].split(b"\r\n")) == sorted(came[1].split(b"\r\n"))
    assert came[0].split(b"\r\n")[0] == came[1].split(b"\r\n")[0]


ANSWERS = {
    "a stated length": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfour",
    "in chunks, with a trailer": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nfo\r\n2\r\nur\r\n0\r\nX-End: 1\r\n\r\n",
    "up to the end of the connection": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfour",
    "of an older version": b"HTTP/1.0 200 OK\r\n\r\nfour",
    "after what is no answer yet": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n"
    b"Link: <x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfour",
    "packed": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
    % (len(gzip.compress(b"four")), gzip.compress(b"four")),
}


@pytest.mark.parametrize("form", ANSWERS)
async def test_an_answer_is_read_whole(services: Services, serve_raw: Serve, form: str) -> None:
    """Whatever form its body has."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(ANSWERS[form])
        await writer.drain()

    exchange = await services.endpoint((await serve_raw(talk)).url).send(b"{}")
    assert (exchange.status, exchange.body, exchange.message) == (200, b"four", "")


async def test_many_requests_share_a_connection(services: Services, serve_raw: Serve) -> None:
    """One after the other, also where a body comes in chunks."""
    connected = 0
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected += 1
        for answer in [OK, chunked] * 10:
            await read_request(reader)
            writer.write(answer)
            await writer.drain()

    endpoint = services.endpoint((await serve_raw(talk)).url)
    answers = [(await endpoint.send(b"{}")).body for _ in range(20)]
    assert answers == [b"{}"] * 20
    assert connected == 1


@pytest.mark.parametrize("is_closed", [True, False])
async def test_an_answer_before_the_request_was_read_is_the_answer(
    make_services: Make, serve_raw: Serve, *, is_closed: bool
) -> None:
    """A service that refuses 40 MB by their length; the connection is not used again."""
    connected = 0
    body = b"x" * 40_000_000

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        if not is_closed:
            await asyncio.sleep(5)

    endpoint = make_services(retries=0).endpoint((await serve_raw(talk)).url)
    statuses = [(await endpoint.send(body)).status for _ in range(2)]
    if is_closed:
        # A reset may overtake the answer, as it may in any client; then there is no status.
        assert set(statuses) <= {413, None}
    else:
        assert statuses == [413, 413]
    assert connected == 2


async def test_a_body_that_came_whole_is_one_whole_text(services: Services, serve: Serve) -> None:
    """Five megabytes each way, in as many pieces as the network makes of them."""
    from aiohttp import web

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read(), content_type="application/json")

    text = bytes(range(256)) * 20_000
    server = await serve(echo)
    exchange = await services.endpoint(server.url).send(text)
    assert exchange.body == text
