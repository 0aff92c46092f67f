"""What networks and servers do wrong: each fault ends, has a name, and is told in one line."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import random
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from aiohttp import web

from guardmark.core.outcome import ErrorKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from guardmark.net.client import Services

    Serve = Callable[..., Any]
    Make = Callable[..., Services]

_GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [
        line.split(b":")[1]
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    return await reader.readexactly(int(lengths[0]))


def _says(*pieces: bytes) -> Callable[..., Awaitable[None]]:
    """Answer each connection's first request with the next piece, the last one forever."""
    left = list(pieces)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _read_request(reader)
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()

    return talk


async def test_a_dropped_connection_is_tried_again(services: Services, serve_raw: Serve) -> None:
    """The first attempt gets no byte, the second an answer; both are on record."""
    server = await serve_raw(_says(b"", _GOOD))
    exchange = await services.endpoint(server.url).send(b"{}")
    assert (exchange.status, exchange.error_kind, exchange.body) == (200, None, b"{}")
    first, second = exchange.attempts
    assert (first.status, first.error, second.status, second.error) == (
        None, "disconnected", 200, "",
    )  # fmt: skip
    assert second.wait_ns > 0
    assert exchange.service_ns == second.service_ns


async def test_a_reset_is_a_failed_connection(services: Services, serve_raw: Serve) -> None:
    """A server that resets every time ends as an error after all retries."""

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _read_request(reader)
        writer.transport.abort()

    server = await serve_raw(reset)
    exchange = await services.endpoint(server.url).send(b"{}")
    assert exchange.error_kind is ErrorKind.CONNECTION
    assert len(exchange.attempts) == 4


async def test_a_dripping_server_ends(make_services: Make, serve_raw: Serve) -> None:
    """A byte now and then keeps no call alive beyond its time (slow-loris)."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    server = await serve_raw(drip)
    client = make_services(connect_timeout_s=10, read_timeout_s=0.2)
    exchange = await client.endpoint(server.url).send(b"{}")
    assert exchange.error_kind is ErrorKind.TIMEOUT
    assert [attempt.error for attempt in exchange.attempts] == ["timeout"]
    assert "0.2 s" in exchange.message


async def test_a_silent_server_times_out_once(make_services: Make, serve: Serve) -> None:
    """A read timeout is the service's answer to this input; asking again would double it."""
    calls = []

    async def silent(request: web.Request) -> web.Response:
        calls.append(1)
        await asyncio.sleep(30)
        return web.json_response({})

    server = await serve(silent)
    client = make_services(connect_timeout_s=10, read_timeout_s=0.1)
    exchange = await client.endpoint(server.url).send(b"{}")
    assert (exchange.error_kind, len(calls)) == (ErrorKind.TIMEOUT, 1)
    assert exchange.service_ns >= 100_000_000


async def test_a_quick_connection_leaves_no_time_for_the_answer(
    make_services: Make, serve: Serve
) -> None:
    """However long connecting may take: what it does not use is nobody's."""

    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.json_response({})

    server = await serve(slow)
    client = make_services(connect_timeout_s=60.0, read_timeout_s=0.2)
    exchange = await client.endpoint(server.url).send(b"{}")
    assert [attempt.error for attempt in exchange.attempts] == ["timeout"]


async def test_a_slow_connection_takes_no_time_from_the_answer(
    make_services: Make, serve: Serve, serve_raw: Serve, tmp_path: Path
) -> None:
    """Behind a slow handshake an answer has all of its time; together they may take both."""
    patience_s, dawdling_s = 2.4, 1.25

    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(dawdling_s)
        return web.json_response({})

    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    server = await serve(slow, tls=_certified(ca))
    port = int(server.url.rsplit(":", 1)[1].split("/")[0])

    async def delay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(dawdling_s)  # TCP is open; TLS has to wait
        inward, outward = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(_pass_on(reader, outward), _pass_on(inward, writer))
        finally:
            outward.close()
            await outward.wait_closed()

    door = await serve_raw(delay)
    client = make_services(
        connect_timeout_s=patience_s,
        read_timeout_s=patience_s,
        retries=0,
        ca_file=str(tmp_path / "ca.pem"),
    )
    exchange = await client.endpoint(
        door.url.replace("http://127.0.0.1", "https://localhost")
    ).send(b"{}")
    await client.close()
    assert (exchange.status, exchange.error_kind) == (200, None), exchange.message


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def test_a_storm_of_429_passes(make_services: Make, serve: Serve) -> None:
    """Every caller gets its answer once the storm is over, and waits as it is told."""
    seen: dict[bytes, int] = {}

    async def storm(request: web.Request) -> web.Response:
        body = await request.read()
        seen[body] = seen.get(body, 0) + 1
        if seen[body] <= 2:
            return web.Response(status=429, headers={"Retry-After": "0.02"})
        return web.json_response({"echo": body.decode()})

    server = await serve(storm)
    endpoint = make_services(concurrency=8).endpoint(server.url)
    bodies = [str(number).encode() for number in range(40)]
    exchanges = await asyncio.gather(*(endpoint.send(body) for body in bodies))
    for body, exchange in zip(bodies, exchanges, strict=True):
        assert exchange.error_kind is None
        assert body.decode() in exchange.body.decode()
        assert [attempt.status for attempt in exchange.attempts] == [429, 429, 200]
        assert all(attempt.wait_ns >= 15_000_000 for attempt in exchange.attempts[1:])
    assert set(seen.values()) == {3}


async def test_a_retry_after_date_counts_from_the_answers_own_date(
    services: Services, serve_raw: Serve
) -> None:
    """Clocks disagree; the service's own two times do not."""
    head = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nDate: Sat, 01 Jan 2000 00:00:00 GMT\r\n"
    wait = b"Retry-After: Sat, 01 Jan 2000 00:00:00 GMT\r\n\r\n"
    server = await serve_raw(_says(head + wait, _GOOD))
    exchange = await services.endpoint(server.url).send(b"{}")
    assert [attempt.status for attempt in exchange.attempts] == [503, 200]


@pytest.mark.parametrize(
    "wait", ["soon", "Sat, 99 Foo 2000", "-5", "nan", "Mon, 01 Jan 99999999999 00:00:00 GMT"]
)
async def test_a_retry_after_nobody_can_read_is_passed_over(
    services: Services, serve_raw: Serve, wait: str
) -> None:
    """The usual growing wait takes its place."""
    head = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nRetry-After: " + wait.encode()
    server = await serve_raw(_says(head + b"\r\n\r\n", _GOOD))
    exchange = await services.endpoint(server.url).send(b"{}")
    assert [attempt.status for attempt in exchange.attempts] == [503, 200]


async def test_one_in_ten_500s_changes_no_answer(make_services: Make, serve: Serve) -> None:
    """Random failures cost attempts, never samples, and no sample gets another's answer."""
    draw = random.Random(20)  # seeded: the test is the same every time

    async def shaky(request: web.Request) -> web.Response:
        body = await request.read()
        if draw.random() < 0.1:
            return web.Response(status=500)
        return web.Response(body=body)

    server = await serve(shaky)
    client = make_services(concurrency=16, retries=8)
    endpoint = client.endpoint(server.url)
    bodies = [f"sample {number}".encode() for number in range(300)]
    exchanges = await asyncio.gather(*(endpoint.send(body) for body in bodies))
    assert [exchange.body for exchange in exchanges] == bodies
    failed = sum(
        attempt.error == "http_500" for exchange in exchanges for attempt in exchange.attempts
    )
    (use,) = client.use()
    assert failed > 10
    assert use.attempts == 300 + failed


async def test_a_server_may_die_and_come_back(make_services: Make, serve: Serve) -> None:
    """Calls that fall into the gap are retried over a new connection."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({})

    first = await serve(answer)
    endpoint = make_services(retries=12, backoff_s=0.02).endpoint(first.url)
    assert (await endpoint.send(b"{}")).status == 200
    await first.stop()
    gap = [asyncio.create_task(endpoint.send(b"{}")) for _ in range(4)]
    await asyncio.sleep(0.1)
    await serve(answer, port=first.port)
    exchanges = await asyncio.gather(*gap)
    assert [exchange.status for exchange in exchanges] == [200] * 4
    assert all(len(exchange.attempts) > 1 for exchange in exchanges)


async def test_nobody_listening_is_a_failed_connection(make_services: Make, serve: Serve) -> None:
    """A closed port is told with its address."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({})

    server = await serve(answer)
    await server.stop()
    exchange = await make_services(retries=1).endpoint(server.url).send(b"{}")
    assert exchange.error_kind is ErrorKind.CONNECTION
    assert [attempt.error for attempt in exchange.attempts] == ["no_connection"] * 2
    assert f"localhost:{server.port}" in exchange.message


async def test_a_name_that_does_not_resolve(make_services: Make) -> None:
    """The reserved name .invalid exists nowhere."""
    exchange = await make_services(retries=1).endpoint("http://guard.invalid/").send(b"{}")
    assert exchange.error_kind is ErrorKind.CONNECTION
    assert exchange.attempts[0].error == "dns"
    assert "does not resolve" in exchange.message


@pytest.mark.parametrize("length", ["told", "not told"])
async def test_fifty_megabytes_are_refused(make_services: Make, serve: Serve, length: str) -> None:
    """Neither a declared nor an endless body may fill the memory."""
    sent = 0

    async def huge(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        if length == "told":
            response.content_length = 50 * 1024 * 1024
        await response.prepare(request)
        for _ in range(50):
            await response.write(b"x" * 1024 * 1024)
            sent += 1
        return response

    server = await serve(huge)
    exchange = await make_services(max_response_bytes=1024 * 1024).endpoint(server.url).send(b"{}")
    assert (exchange.error_kind, exchange.body) == (ErrorKind.CONTRACT, b"")
    assert [attempt.error for attempt in exchange.attempts] == ["too_large"]
    assert "1048576 bytes" in exchange.message
    assert sent < 50


def _certified(ca: trustme.CA, **details: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost", **details).configure_cert(context)
    return context


async def _fine(request: web.Request) -> web.Response:
    return web.json_response({})


async def test_a_private_authority_can_be_trusted(
    make_services: Make, serve: Serve, tmp_path: Path
) -> None:
    """Companies sign their own services."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    server = await serve(_fine, tls=_certified(ca))
    client = make_services(ca_file=str(tmp_path / "ca.pem"))
    assert (await client.endpoint(server.url).send(b"{}")).status == 200


@pytest.mark.parametrize("case", ["expired", "unknown authority"])
async def test_a_bad_certificate_is_refused_once(
    make_services: Make, serve: Serve, tmp_path: Path, case: str
) -> None:
    """No retry makes a certificate valid, and nothing is sent to whoever shows it."""
    calls = []

    async def count(request: web.Request) -> web.Response:
        calls.append(1)
        return web.json_response({})

    ca = trustme.CA()
    trusted = ca if case == "expired" else trustme.CA()
    trusted.cert_pem.write_to_path(tmp_path / "ca.pem")
    ended = dt.datetime(2001, 1, 1, tzinfo=dt.UTC) if case == "expired" else None
    begun = dt.datetime(2000, 1, 1, tzinfo=dt.UTC) if case == "expired" else None
    tls = _certified(ca, not_before=begun, not_after=ended)
    server = await serve(count, tls=tls)
    exchange = (
        await make_services(ca_file=str(tmp_path / "ca.pem")).endpoint(server.url).send(b"{}")
    )
    assert (exchange.error_kind, calls) == (ErrorKind.CONNECTION, [])
    assert [attempt.error for attempt in exchange.attempts] == ["certificate"]
    assert "certificate" in exchange.message


async def test_no_retries_means_one_attempt(make_services: Make, serve: Serve) -> None:
    """Zero is a number of retries too."""
    calls = []

    async def fail(request: web.Request) -> web.Response:
        calls.append(1)
        return web.Response(status=500)

    server = await serve(fail)
    exchange = await make_services(retries=0).endpoint(server.url).send(b"{}")
    assert (len(calls), exchange.error_kind) == (1, ErrorKind.HTTP)


async def test_retries_say_nothing_on_stderr(
    services: Services, serve: Serve, capfd: pytest.CaptureFixture[str]
) -> None:
    """A progress bar must not be torn by a library's warnings."""

    async def fail(request: web.Request) -> web.Response:
        return web.Response(status=500)

    server = await serve(fail)
    await services.endpoint(server.url).send(b"{}")
    gc.collect()
    assert capfd.readouterr().err == ""


async def test_what_came_between_two_requests_answers_neither(
    make_services: Make, serve_raw: Serve
) -> None:
    """A stray answer on an idle connection would be taken for that of the next sample."""
    asked: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await _read_request(reader))
        writer.write(_GOOD)
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(_GOOD.replace(b"{}", b"[]"))
        await writer.drain()
        asked.append(await _read_request(reader))

    endpoint = make_services().endpoint((await serve_raw(talk)).url)
    answers = []
    for number in range(3):
        answers.append((await endpoint.send(b"%d" % number)).body)
        await asyncio.sleep(0.05)
    assert (answers, asked) == ([b"{}"] * 3, [b"0", b"1", b"2"])


async def test_a_retry_does_not_go_over_another_dead_connection(
    make_services: Make, serve: Serve
) -> None:
    """A router that forgot one idle connection forgot them all; a new one is alive."""
    seen: dict[object, int] = {}
    together = asyncio.Barrier(8)

    async def answer(request: web.Request) -> web.Response:
        count = seen[request.transport] = seen.get(request.transport, 0) + 1
        if count == 1 and len(seen) <= 8:
            await together.wait()
        if count > 1 and request.transport is not None:
            request.transport.abort()
        return web.json_response({})

    server = await serve(answer)
    endpoint = make_services(retries=1, concurrency=8).endpoint(server.url)
    await asyncio.gather(*(endpoint.send(b"{}") for _ in range(8)))
    exchanges = [await endpoint.send(b"{}") for _ in range(8)]
    assert [e.error_kind for e in exchanges] == [None] * 8
    assert [(len(e.attempts), e.attempts[-1].error) for e in exchanges] == [(2, "")] * 8


async def test_headers_that_drip_end_too(make_services: Make, serve_raw: Serve) -> None:
    """A server that never finishes its first lines keeps no call alive (slow-loris)."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while True:
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.01)

    services = make_services(connect_timeout_s=10, read_timeout_s=0.1)
    exchange = await services.endpoint((await serve_raw(talk)).url).send(b"{}")
    assert (exchange.error_kind, exchange.status) == (ErrorKind.TIMEOUT, None)


@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK", b"HTTP/1.1 200 OK"])
async def test_a_server_that_closes_after_each_answer_costs_no_attempt(
    make_services: Make, serve_raw: Serve, head: bytes
) -> None:
    """An old server, and one that promises to keep the connection and does not."""
    asked: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await _read_request(reader))
        writer.write(head + b"\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()

    endpoint = make_services(retries=0).endpoint((await serve_raw(talk)).url)
    for number in range(20):
        exchange = await endpoint.send(b"%d" % number)
        assert (exchange.error_kind, exchange.attempts) == (None, ())
        await asyncio.sleep(0.01)  # the end of the connection has arrived when the next one goes
    assert asked == [b"%d" % number for number in range(20)]


async def test_a_service_with_an_address_of_version_6_alone(make_services: Make) -> None:
    """Its address stands in brackets, in a configuration too."""
    asked: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await _read_request(reader))
        writer.write(_GOOD)
        await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(talk, "::1", 0)
    except OSError:
        pytest.skip("this machine has no IPv6 on loopback")
    async with server:
        url = f"http://[::1]:{server.sockets[0].getsockname()[1]}/v1"
        exchange = await make_services().endpoint(url).send(b"{}")
    assert (exchange.status, asked) == (200, [b"{}"])


async def test_a_proxy_of_the_environment_gets_to_see_nothing(
    make_services: Make, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is measured is the service that the configuration names, and its key is for it alone."""
    seen: list[str] = []

    async def spy(request: web.Request) -> web.Response:
        seen.append(request.headers.get("X-Key", ""))
        return web.json_response({"from": "proxy"})

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"from": "service"})

    proxy, server = await serve(spy), await serve(answer)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    endpoint = make_services().endpoint(server.url, secret_headers={"X-Key": "sk-123456789"})
    assert b"service" in (await endpoint.send(b"{}")).body
    assert seen == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_carries_no_key_to_another_host(
    make_services: Make, serve: Serve, status: int
) -> None:
    """It is an answer out of contract, told with what to do; the target is never asked."""
    stolen: list[str] = []

    async def thief(request: web.Request) -> web.Response:
        stolen.append(str(request.headers))
        return web.json_response({})

    other = await serve(thief)

    async def answer(_: web.Request) -> web.Response:
        return web.Response(
            status=status, headers={"Location": f"{other.url}/steal?k=sk-123456789"}
        )

    endpoint = make_services().endpoint(
        (await serve(answer)).url, secret_headers={"X-Key": "sk-123456789"}
    )
    exchange = await endpoint.send(b"{}")
    assert (exchange.error_kind, exchange.status) == (ErrorKind.CONTRACT, status)
    assert "not followed" in exchange.message
    assert "sk-123456789" not in exchange.message
    assert stolen == []
