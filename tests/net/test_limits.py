"""Rates are kept on the wire."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.net import Services

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
