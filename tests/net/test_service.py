"""Rates are kept on the wire."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guardmark.net.client import Services

    Serve = Callable[..., Any]
    Make = Callable[..., Services]


async def _fine(request: web.Request) -> web.Response:
    return web.json_response({})


async def test_requests_keep_to_the_rate(make_services: Make, serve: Serve) -> None:
    """Eleven requests at 100 a second, in bursts of ten at most, span a hundredth at least."""
    endpoint = make_services(rate="100/s").endpoint((await serve(_fine)).url)
    begun = perf_counter()
    await asyncio.gather(*(endpoint.send(b"{}") for _ in range(21)))
    assert perf_counter() - begun >= 0.1


async def test_tokens_keep_to_their_rate(make_services: Make, serve: Serve) -> None:
    """Two requests of half the allowance pass, the third waits."""
    endpoint = make_services(tokens="100/s").endpoint((await serve(_fine)).url)
    begun = perf_counter()
    for _ in range(3):
        await endpoint.send(b"{}", tokens=50)
    assert perf_counter() - begun >= 0.45


async def test_a_request_above_the_allowance_takes_all_of_it(
    make_services: Make, serve: Serve
) -> None:
    """It would otherwise wait forever."""
    endpoint = make_services(tokens="1000/s").endpoint((await serve(_fine)).url)
    assert (await endpoint.send(b"{}", tokens=5000)).status == 200


async def test_the_adaptive_limit_reaches_the_gate(make_services: Make, serve: Serve) -> None:
    """The limit that stands now is shown beside the service."""
    client = make_services(concurrency=32, adaptive=True)
    endpoint = client.endpoint((await serve(_fine)).url)
    assert client.use()[0].limit == 4
    for _ in range(4):
        await endpoint.send(b"{}")
    assert client.use()[0].limit == 8


async def test_a_caller_cancelled_while_it_waits_for_the_rate_frees_its_place(
    make_services: Make, serve: Serve
) -> None:
    """Whoever comes next is not locked out."""
    client = make_services(rate="5/s", concurrency=1)
    endpoint = client.endpoint((await serve(_fine)).url)
    await endpoint.send(b"{}")
    waiting = asyncio.create_task(endpoint.send(b"{}"))
    await asyncio.sleep(0.02)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (await endpoint.send(b"{}")).status == 200
    (use,) = client.use()
    assert (use.calls, use.attempts) == (3, 2)


async def test_an_overloaded_service_is_met_halfway(make_services: Make, serve: Serve) -> None:
    """A service that stands six at a time gets every answer out, with few refusals."""
    inside, refused = 0, 0

    async def stands_six(request: web.Request) -> web.Response:
        nonlocal inside, refused
        if inside >= 6:
            refused += 1
            return web.Response(status=429)
        inside += 1
        await asyncio.sleep(0.002)
        inside -= 1
        return web.json_response({})

    endpoint = make_services(concurrency=64, adaptive=True, retries=10).endpoint(
        (await serve(stands_six)).url
    )
    exchanges = await asyncio.gather(*(endpoint.send(b"{}") for _ in range(400)))
    assert [exchange.status for exchange in exchanges] == [200] * 400
    assert refused < 200


async def test_a_file_without_a_certificate_is_refused(make_services: Make, tmp_path: Path) -> None:
    """Before anything is sent, and with its name."""
    (tmp_path / "ca.pem").write_text("nothing of the kind")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(ConfigError, match=name):
            make_services(ca_file=str(tmp_path / name)).endpoint("https://localhost/")
