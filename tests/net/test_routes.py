"""Several addresses of one service: shared out evenly, and one that is lost costs no answer."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from guardmark.core.errors import ConfigError
from guardmark.core.outcome import ErrorKind
from guardmark.net.client import Services
from guardmark.net.routes import Route, Routes
from guardmark.net.service import Service, ServiceAnswer, ServiceLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    Serve = Callable[..., Any]
    Make = Callable[..., Services]

FAILED = ServiceAnswer(
    status=None, body=b"", started_ns=0, service_ns=1, error_kind=ErrorKind.CONNECTION
)
ANSWERED = ServiceAnswer(status=200, body=b"{}", started_ns=0, service_ns=1)


def several(*bases: str, **limits: Any) -> dict[str, ServiceLimits]:
    """Limits of a service with several addresses."""
    given = {"backoff_s": 0.001, "connect_timeout_s": 10.0, "read_timeout_s": 10.0, **limits}
    return {bases[0]: ServiceLimits(**given, base_urls=bases[1:])}


async def _answer(_: web.Request) -> web.Response:
    return web.json_response({})


def route() -> Route:
    """An address that nothing is sent to."""
    return Route(Service("http://localhost:1", ServiceLimits()), wire=None)  # type: ignore[arg-type]


async def test_requests_go_where_the_fewest_are_in_flight(
    make_services: Make, serve: Serve
) -> None:
    """While one address holds its requests back, the others get the rest."""
    held, arrived = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        arrived.set()
        await held.wait()
        return web.json_response({})

    servers = [await serve(slow), await serve(_answer), await serve(_answer)]
    services = make_services(limits=several(*(each.url for each in servers)))
    endpoint = services.endpoint(servers[0].url + "/v1/check?a=1")
    waiting = [asyncio.create_task(endpoint.send(b"{}")) for _ in range(3)]
    await arrived.wait()
    for answered in islice(asyncio.as_completed(waiting), 2):
        await answered
    for _ in range(30):
        await endpoint.send(b"{}")
    held.set()
    answers = await asyncio.gather(*waiting)
    assert all(each.status == 200 for each in answers)
    attempts = {each.base_url: each.attempts for each in services.use()}
    assert attempts[servers[0].url] == 1
    assert sum(attempts.values()) == 33
    assert min(attempts[each.url] for each in servers[1:]) == 16


@pytest.mark.parametrize("retries", [0, 3])
async def test_an_address_lost_in_the_middle_costs_no_answer(
    make_services: Make, serve: Serve, retries: int
) -> None:
    """What it failed is asked of another one, and it is left out for a while."""
    servers = [await serve(_answer) for _ in range(3)]
    services = make_services(limits=several(*(each.url for each in servers), retries=retries))
    endpoint = services.endpoint(servers[0].url)
    for _ in range(6):
        assert (await endpoint.send(b"{}")).error_kind is None
    await servers[0].stop()
    answers = await asyncio.gather(*(endpoint.send(b"{}") for _ in range(60)))
    assert [each.error_kind for each in answers] == [None] * 60
    lost = next(each for each in services.use() if each.base_url == servers[0].url)
    assert lost.times_left_out >= 1
    assert lost.failures >= 1
    assert len(lost.times_ns) == 2


async def test_a_path_and_its_query_go_to_every_address(make_services: Make, serve: Serve) -> None:
    """Addresses differ in where they begin, and in nothing else."""
    seen = set()

    async def note(request: web.Request) -> web.Response:
        seen.add((request.url.port, str(request.rel_url)))
        return web.json_response({})

    servers = [await serve(note), await serve(note)]
    limits = several(servers[0].url + "/a", servers[1].url + "/b/c")
    endpoint = make_services(limits=limits).endpoint(servers[0].url + "/a/chat?x=%20y")
    for _ in range(4):
        await endpoint.send(b"{}")
    assert {path.partition("?")[0] for _, path in seen} == {"/a/chat", "/b/c/chat"}
    assert len({path.partition("?")[2] for _, path in seen}) == 1


async def test_an_address_named_twice_is_refused(make_services: Make) -> None:
    """It would get twice its share."""
    with pytest.raises(ConfigError, match="twice"):
        make_services(limits=several("http://localhost:1", "http://localhost:1/"))


async def test_after_a_pause_one_request_tries_the_address() -> None:
    """A server that is still away delays one request, not all of them."""
    well, unwell = route(), route()
    unwell.note(FAILED, now=0.0)
    assert unwell.rank(0.5) > well.rank(0.5)
    assert not unwell.rank(1.5)[0]
    unwell.in_flight = 1
    assert unwell.rank(1.5)[0]
    unwell.note(ANSWERED, now=1.6)
    assert not unwell.rank(1.6)[0]


async def test_pauses_grow_and_end() -> None:
    """A server that stays away is tried once a minute."""
    away, ends, now = route(), [], 0.0
    for _ in range(9):
        away.note(FAILED, now)
        ends.append(away.rank(now)[1] - now)
        now += ends[-1]
    assert ends == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert away.service.times_left_out == 9


async def test_failures_of_one_moment_count_once() -> None:
    """Sixteen requests under way are lost together: that is one failure of the server."""
    away = route()
    for _ in range(16):
        away.note(FAILED, now=0.0)
    assert away.rank(0.0)[1] == 1.0


async def test_with_all_addresses_away_the_first_to_return_is_asked() -> None:
    """A request is never refused for want of an address."""
    first, second = route(), route()
    now = asyncio.get_running_loop().time()
    first.note(FAILED, now + 5)
    second.note(FAILED, now)
    assert Routes([first, second]).choose() is second
