"""Endpoints: what is sent arrives, what comes back is told."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from guardmark.core.errors import ConfigError
from guardmark.core.outcome import ErrorKind
from guardmark.net.client import Services
from guardmark.net.service import ServiceLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    Serve = Callable[..., Any]
    Make = Callable[..., Services]

HOSTILE = ["{{7*7}}", "${HOME}", "%s", "\x00\x07\x1b[31m", "\u202eabc\u2066", "x" * 1_500_000]


async def _hash(request: web.Request) -> web.Response:
    return web.json_response({"sha256": hashlib.sha256(await request.read()).hexdigest()})


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_a_body_arrives_byte_for_byte(services: Services, text: str, serve: Serve) -> None:
    """What is measured must be what was sent."""
    base = (await serve(_hash)).url
    exchange = await services.endpoint(base).send(text.encode())
    assert hashlib.sha256(text.encode()).hexdigest() in exchange.body.decode()


async def test_a_clean_answer_carries_no_attempts(services: Services, serve: Serve) -> None:
    """Evidence is kept only when there is something to say."""
    base = (await serve(_hash)).url
    exchange = await services.endpoint(base + "/v1/check").send(b"{}")
    assert (exchange.status, exchange.error_kind, exchange.message) == (200, None, "")
    assert exchange.attempts == ()
    assert exchange.content_type == "application/json"
    assert exchange.service_ns > 0


async def test_headers_and_secrets_are_sent(services: Services, serve: Serve) -> None:
    """A service must see who calls."""
    seen: dict[str, str] = {}

    async def look(request: web.Request) -> web.Response:
        seen.update(request.headers)
        return web.json_response({})

    base = (await serve(look)).url
    endpoint = services.endpoint(
        base, headers={"X-Project": "seven"}, secret_headers={"Authorization": "Bearer s3cret"}
    )
    await endpoint.send(b"{}")
    assert (seen["X-Project"], seen["Authorization"]) == ("seven", "Bearer s3cret")
    assert seen["Content-Type"] == "application/json"
    assert seen["User-Agent"].startswith("guardmark/")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "http"), (401, "refused"), (403, "refused"), (404, "http"), (302, "contract")],
)
async def test_other_statuses_are_failures_with_their_body(
    services: Services, status: int, kind: str, serve: Serve
) -> None:
    """An adapter may have to read why a request was turned down."""
    calls = []

    async def refuse(request: web.Request) -> web.Response:
        calls.append(1)
        return web.json_response({"error": "no"}, status=status)

    base = (await serve(refuse)).url
    exchange = await services.endpoint(base).send(b"{}")
    assert (exchange.status, exchange.error_kind) == (status, ErrorKind(kind))
    assert b"no" in exchange.body
    assert str(status) in exchange.message
    assert len(calls) == 1
    assert [attempt.error for attempt in exchange.attempts] == [f"http_{status}"]


async def test_a_final_status_is_an_answer(services: Services, serve: Serve) -> None:
    """Some services say block by a status; retrying would only annoy them."""
    calls = []

    async def block(request: web.Request) -> web.Response:
        calls.append(1)
        return web.json_response({}, status=503)

    base = (await serve(block)).url
    exchange = await services.endpoint(base, final_statuses=frozenset({503})).send(b"{}")
    assert (exchange.status, exchange.error_kind, len(calls)) == (503, None, 1)


async def test_a_secret_is_in_no_message(services: Services, serve: Serve) -> None:
    """A service that echoes the key must not put it into our records."""

    async def echo(request: web.Request) -> web.Response:
        return web.Response(text="bad key " + request.headers["Authorization"], status=401)

    base = (await serve(echo)).url
    endpoint = services.endpoint(
        base + "?key=q-s3cret", secret_headers={"Authorization": "Bearer s3cret-word"}
    )
    exchange = await endpoint.send(b"{}")
    assert "s3cret" not in exchange.message
    assert "[redacted]" in exchange.message
    assert "q-s3cret" not in endpoint.url


@pytest.mark.parametrize(
    "url", ["", "localhost:80", "ftp://host/x", "http://", "http://user:word@host/", "http://[::1"]
)
def test_an_address_that_cannot_be_called_is_refused_at_once(url: str) -> None:
    """Nothing may be sent before the configuration is right."""
    with pytest.raises(ConfigError) as caught:
        Services().endpoint(url)
    assert "word" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize("headers", [{"A b": "x"}, {"A": "x\r\nB: y"}, {"A": "ключ"}, {"": "x"}])
def test_a_header_cannot_smuggle_another(headers: dict[str, str]) -> None:
    """A line break in a key read from the environment must not become a header."""
    with pytest.raises(ConfigError):
        Services().endpoint("http://localhost/", secret_headers=headers)


async def test_connections_are_as_many_as_the_concurrency(
    make_services: Make, serve: Serve
) -> None:
    """Sixty-four callers over four places open four connections."""
    ports: set[int] = set()
    inside, peak = 0, 0

    async def slow(request: web.Request) -> web.Response:
        nonlocal inside, peak
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        inside += 1
        peak = max(peak, inside)
        await asyncio.sleep(0.005)
        inside -= 1
        return web.json_response({})

    client = make_services(concurrency=4)
    base = (await serve(slow)).url
    endpoint = client.endpoint(base)
    await asyncio.gather(*(endpoint.send(b"{}") for _ in range(64)))
    (use,) = client.use()
    assert (len(ports), peak) == (4, 4)
    assert (use.calls, use.attempts, use.peak_in_flight, use.limit) == (64, 64, 4, 4)


async def test_endpoints_of_one_service_share_its_limits(make_services: Make, serve: Serve) -> None:
    """A vendor counts requests for the account, not for the path."""
    base = (await serve(_hash)).url
    client = make_services(limits={base + "/v1": ServiceLimits(concurrency=2)})
    first, second = client.endpoint(base + "/v1/a"), client.endpoint(base + "/v1/b")
    other = client.endpoint(base + "/v10")
    await asyncio.gather(*(e.send(b"{}") for e in (first, second, other) for _ in range(8)))
    uses = {use.base_url: use for use in client.use()}
    assert uses[base + "/v1"].calls == 16
    assert uses[base + "/v1"].peak_in_flight <= 2
    assert uses[base].calls == 8


async def test_offline_sends_nothing(make_services: Make, serve: Serve) -> None:
    """Offline is a promise, not a hope."""
    calls = []

    async def count(request: web.Request) -> web.Response:
        calls.append(1)
        return web.json_response({})

    client = make_services(offline=True)
    base = (await serve(count)).url
    exchange = await client.endpoint(base).send(b"{}")
    assert (exchange.error_kind, calls) == (ErrorKind.REFUSED, [])
    assert "offline" in exchange.message


async def test_cancelling_gives_the_place_back(make_services: Make, serve: Serve) -> None:
    """An interrupted call must not block the service for those that follow."""
    release = asyncio.Event()

    async def wait(request: web.Request) -> web.Response:
        await release.wait()
        return web.json_response({})

    client = make_services(concurrency=1)
    base = (await serve(wait)).url
    endpoint = client.endpoint(base)
    calls = [asyncio.create_task(endpoint.send(b"{}")) for _ in range(3)]
    await asyncio.sleep(0.05)
    calls[0].cancel()
    calls[1].cancel()
    await asyncio.sleep(0.05)
    release.set()
    assert (await calls[2]).status == 200
    assert (await endpoint.send(b"{}")).status == 200


async def test_what_a_caller_hides_is_redacted_everywhere(services: Services) -> None:
    """A key in a body or a query is a secret too."""
    services.redactor.hide("in-the-body")
    assert services.redactor.text("x in-the-body y") == "x [redacted] y"
    assert services.endpoint("http://localhost/in-the-body").url == "http://localhost/[redacted]"


async def test_a_service_that_echoes_the_key_does_not_get_it_on_record(
    services: Services, serve: Serve
) -> None:
    """Answers are kept as evidence; a stand-in key is a word that may be part of one."""

    async def echo(request: web.Request) -> web.Response:
        return web.json_response({"you": request.headers["X-Key"], "text": "run it with ollama"})

    server = await serve(echo)
    endpoint = services.endpoint(
        server.url, secret_headers={"X-Key": "sk-0123456789", "X-Other": "ollama"}
    )
    exchange = await endpoint.send(b"{}")
    assert exchange.body == b'{"you": "[redacted]", "text": "run it with ollama"}'


async def test_a_part_of_an_answer_is_no_answer(services: Services, serve: Serve) -> None:
    """Status 206: what decides may be in the other part."""

    async def partial(_: web.Request) -> web.Response:
        return web.json_response({"flagged": False}, status=206)

    exchange = await services.endpoint((await serve(partial)).url).send(b"{}")
    assert exchange.error_kind is ErrorKind.CONTRACT
    assert "answered 206" in exchange.message
    assert "redirect" not in exchange.message
