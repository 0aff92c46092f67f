"""The one HTTP client of a run, the endpoints it hands out, and trying again after a failure."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Literal

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from guardmark.core.budget import SpendingMeter
from guardmark.core.errors import ConfigError
from guardmark.core.outcome import ErrorKind
from guardmark.core.version import VERSION
from guardmark.net.call_account import present_account
from guardmark.net.cassette import CassettePlayer, CassetteRecorder, CassetteRequest
from guardmark.net.deadline import start_time
from guardmark.net.redaction import Redactor
from guardmark.net.retrying import as_attempts, try_again
from guardmark.net.routes import Route, Routes
from guardmark.net.service import FREE, CallCost, Exchange, Service, ServiceLimits, ServiceTraffic
from guardmark.net.wire import AnswerForm, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

    from guardmark.core.usage import Price
    from guardmark.net.call_account import CallAccount
    from guardmark.net.chat import ChatEndpoint, EmbeddingEndpoint
    from guardmark.net.service import ServiceAnswer


_USUAL_HEADERS = {
    "Accept": "application/json",
    # Unpacking costs CPU, and a packed answer does not say how large it is.
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": f"guardmark/{VERSION}",
}
_USUAL_LIMITS = ServiceLimits()


class Services:
    """Every connection of a run; build one, hand out endpoints, close it at the end."""

    def __init__(
        self,
        limits: Mapping[str, ServiceLimits] | None = None,
        *,
        default: ServiceLimits = _USUAL_LIMITS,
        record: Path | None = None,
        record_lock: Callable[[IO[bytes]], bool] | None = None,
        replay: Path | None = None,
        offline: bool = False,
        redactor: Redactor | None = None,
        meter: SpendingMeter | None = None,
    ) -> None:
        if record is not None and replay is not None:
            raise ConfigError("A run either records exchanges or replays them, not both.")
        self._default = default
        self.redactor = redactor or Redactor()
        self.meter = meter or SpendingMeter()
        self._services: dict[str, Service] = {}
        self.refused: dict[str, dict[str, str]] = {}  # address to the fields it refused by name
        self._beside: dict[str, list[str]] = {}
        for url, its in (limits or {}).items():
            bases = [_base(each) for each in (url, *its.base_urls)]
            for base in sorted(bases):
                if base in self._services or bases.count(base) > 1:
                    raise ConfigError(f"services: {base} is named twice.")
            for base in bases:
                self._services[base] = Service(base, its, is_one_of_many=len(bases) > 1)
                self._beside[base] = [each for each in bases if each != base]
        self.recorder = (
            None if record is None else CassetteRecorder(record, self.redactor, lock=record_lock)
        )
        self._player = None if replay is None else CassettePlayer(replay, self.redactor)
        self._offline = offline
        self._kept: Connections | None = None
        self._fresh: Connections | None = None

    def hide(self, secret: str, name: str) -> None:
        """Keep a secret out of everything that is written; the name is its variable."""
        self.redactor.hide(secret, name)

    def endpoint(
        self,
        url: str,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        secret_headers: Mapping[str, str] | None = None,
        final_statuses: frozenset[int] = frozenset(),
        holds_errors: bool = False,
        is_of_numbers: bool = False,
        is_last: Callable[[bytes], bool] | None = None,
    ) -> Endpoint:
        """Prepare an address for many requests."""
        form = AnswerForm(holds_errors=holds_errors, is_of_numbers=is_of_numbers, is_last=is_last)
        return self._endpoint(
            url,
            method=method,
            headers=headers or {},
            secret_headers=secret_headers or {},
            final_statuses=final_statuses,
            form=form,
        )

    def _endpoint(
        self,
        url: str,
        *,
        method: str,
        headers: Mapping[str, str],
        secret_headers: Mapping[str, str],
        final_statuses: frozenset[int],
        form: AnswerForm,
    ) -> Endpoint:
        """Prepare an address whose answers have some form."""
        address = _address(url)
        everything = CIMultiDict(_USUAL_HEADERS)
        everything.update(_checked(headers))
        secrets = _checked(secret_headers)
        for secret in secrets.values():
            self.redactor.hide(secret)
        everything.update(secrets)
        routes = [
            Route(
                service,
                Wire(
                    method,
                    there,
                    headers=CIMultiDictProxy(everything),
                    service=service,
                    final_statuses=final_statuses,
                    redactor=self.redactor,
                    form=form,
                ),
            )
            for there, service in self._addresses(address)
        ]
        template = CassetteRequest(method=method, url=str(address), headers=dict(headers), body=b"")
        return Endpoint(self, routes, template=template)

    def model(
        self,
        protocol: Literal["chat", "embeddings"],
        address: str,
        *,
        model: str,
        options: Mapping[str, Any],
        price: Price | None,
        secret_headers: Mapping[str, str],
        is_streamed: bool = False,
    ) -> ChatEndpoint | EmbeddingEndpoint:
        """Prepare a model behind a server of one of the common protocols."""
        from guardmark.net.chat import ChatEndpoint, EmbeddingEndpoint  # on use: most are no model

        path = "chat/completions" if protocol == "chat" else "embeddings"
        form = AnswerForm(holds_errors=True, is_of_numbers=protocol == "embeddings")
        if is_streamed:
            from guardmark.net.chat_stream import is_last, join_chat

            form = AnswerForm(holds_errors=True, is_last=is_last, join=join_chat)
        endpoint = self._endpoint(
            f"{address}/{path}",
            method="POST",
            headers={},
            secret_headers=secret_headers,
            final_statuses=frozenset(),
            form=form,
        )
        if protocol == "embeddings":
            return EmbeddingEndpoint(endpoint=endpoint, model=model, price=price, options=options)
        shown = self.redactor.text(_shown(address))
        return ChatEndpoint(
            endpoint=endpoint,
            model=model,
            price=price,
            options=options,
            refused=self.refused.setdefault(shown, {}),
            refused_by_model=self.refused.setdefault(f"{shown} (model {model})", {}),
        )

    def use(self) -> tuple[ServiceTraffic, ...]:
        """Say how each service was used so far, in the order of their addresses."""
        return tuple(self._services[base].use() for base in sorted(self._services))

    def failed(self) -> Counter[str]:
        """Count the requests that brought no answer so far, by status or by kind of failure."""
        return sum((each.failed for each in self._services.values()), Counter[str]())

    async def close(self) -> None:
        """Close every connection and the cassette; further requests are a mistake."""
        for connections in (self._kept, self._fresh):
            if connections is not None:
                await connections.close()
        if self.recorder is not None:
            self.recorder.close()

    def answer_without_wire(self, request: CassetteRequest) -> Exchange | None:
        """Return what a cassette or being offline makes of a request, or None to send it."""
        if self._player is not None:
            return self._player.answer(request)
        if self._offline:
            shown = self.redactor.text(_shown(request.url))
            return Exchange(
                status=None,
                body=b"",
                service_ns=0,
                error_kind=ErrorKind.REFUSED,
                message=f"{request.method} {shown}: the run is offline, nothing was sent",
            )
        return None

    @property
    def is_without_wire(self) -> bool:
        """Whether requests are answered without a network."""
        return self._offline or self._player is not None

    def connections(self, *, is_fresh: bool = False) -> Connections:
        """Return the connections, opened within the running loop on first use."""
        if is_fresh:
            if self._fresh is None:
                self._fresh = Connections(is_fresh=True)
            return self._fresh
        if self._kept is None:
            self._kept = Connections(is_fresh=False)
        return self._kept

    def _addresses(self, address: URL) -> Iterator[tuple[URL, Service]]:
        """Yield where a request can go: one address, or the same path below several."""
        service = self._service_of(address)
        yield address, service
        for base in self._beside.get(service.base_url, ()):
            yield URL(base + str(address).removeprefix(service.base_url)), self._services[base]

    def _service_of(self, address: URL) -> Service:
        whole = str(address.with_query(None))
        bases = [b for b in self._services if whole == b or whole.startswith(b.rstrip("/") + "/")]
        if bases:
            return self._services[max(bases, key=len)]
        origin = str(address.origin())
        return self._services.setdefault(origin, Service(origin, self._default))


class Endpoint:
    """One address of a service, ready for many requests; made by `Services.endpoint`."""

    __slots__ = ("_limits", "_request", "_route", "_routes", "_services", "url")

    def __init__(
        self, services: Services, routes: Sequence[Route], *, template: CassetteRequest
    ) -> None:
        self._services = services
        self._route = routes[0]
        self._routes = Routes(routes) if len(routes) > 1 else None
        limits = self._route.service.limits
        # A server that is lost costs no answer while another one is there.
        self._limits = replace(limits, retries=max(limits.retries, len(routes) - 1))
        self._request = template
        self.url = services.redactor.text(_shown(template.url))

    async def send(
        self, body: bytes, *, tokens: int | None = None, cost: CallCost = FREE
    ) -> Exchange:
        """Send one request; the machinery of retries is entered only after a failure."""
        services, limits = self._services, self._limits
        self._route.service.calls += 1
        if services.is_without_wire:
            kept = services.answer_without_wire(replace(self._request, body=body))
            if kept is not None:
                self._count_kept(kept, cost)
                return kept
        length = len(body) // 4 if tokens is None else tokens
        answer = await self._attempt(body, length, cost=cost)
        if answer.error_kind is None and services.recorder is None:
            return self._exchange([answer])
        answers = [answer]
        if answer.worth_retrying and limits.retries:
            # No status line came: the connection was at fault, and others may be as dead.
            fresh = answer.status is None
            again = partial(self._attempt, body, length, cost=cost, is_fresh=fresh)
            answers = await try_again(answer, again, limits=limits)
        exchange = self._exchange(answers)
        if services.recorder is not None:
            services.recorder.add(replace(self._request, body=body), exchange)
        return exchange

    def correct(self, reserved: float, cost: float) -> None:
        """Put what a request did cost in the place of the most it could, when that is known."""
        self._services.meter.correct(cost - reserved)
        account = present_account()
        if account is not None:
            account.cost += cost
            account.unpriced -= 1

    def _count_kept(self, kept: Exchange, cost: CallCost) -> None:
        """Count what a cassette answered as if it had been sent."""
        requests = max(1, len(kept.attempts))
        is_answered = kept.error_kind is None
        earlier = (requests - is_answered) * cost.unanswered if kept.replayed else 0.0
        paid = cost.at_most if is_answered else 0.0
        self._services.meter.count(requests, earlier + paid)
        account = present_account()
        if account is not None:
            account.requests += requests
            account.cost += earlier
            _note_cost(account, cost, is_answered=is_answered)

    async def _attempt(
        self, body: bytes, tokens: int, *, cost: CallCost, is_fresh: bool = False
    ) -> ServiceAnswer:
        """Send once, if what may be spent allows it; count it and what it costs."""
        meter, account = self._services.meter, present_account()
        await meter.admit(cost.at_most)
        if account is not None:
            account.requests += 1
        paid = cost.unanswered
        try:
            answer = await self._send_once(body, tokens, is_fresh=is_fresh)
            if answer.error_kind is None:
                paid = cost.at_most
        finally:
            meter.settle(cost.at_most, paid)
        if account is not None and cost is not FREE:
            is_answered = answer.error_kind is None
            account.cost += 0.0 if is_answered else cost.unanswered
            _note_cost(account, cost, is_answered=is_answered)
        return answer

    async def _send_once(self, body: bytes, tokens: int, *, is_fresh: bool) -> ServiceAnswer:
        routes = self._routes
        route = self._route if routes is None else routes.choose()
        service = route.service
        route.in_flight += 1
        try:
            await service.admit(tokens)
            try:
                connections = self._services.connections(is_fresh=is_fresh)
                answer = await route.wire.attempt(connections, body)
            finally:
                service.release()
        finally:
            route.in_flight -= 1
        service.note(answer)
        if routes is not None:
            route.note(answer, asyncio.get_running_loop().time())
        return answer

    def _exchange(self, answers: list[ServiceAnswer]) -> Exchange:
        """Sum up the attempts."""
        last = answers[-1]
        clean = len(answers) == 1 and last.error_kind is None
        return Exchange(
            status=last.status,
            body=last.body,
            content_type=last.content_type,
            service_ns=last.service_ns,
            arrivals_ns=last.arrivals_ns,
            chunks=last.chunks,
            error_kind=last.error_kind,
            message=last.message,
            attempts=() if clean else as_attempts(answers),
        )


def _note_cost(account: CallAccount, cost: CallCost, *, is_answered: bool) -> None:
    """Note what an answered request cost, or that its answer has yet to tell."""
    if is_answered and cost.is_exact:
        account.cost += cost.at_most
    elif is_answered:
        account.unpriced += 1


async def post_once(services: Services, address: str, body: bytes) -> str:
    """Send one request and close; return why it was not taken, or nothing."""
    try:
        exchange = await services.endpoint(address).send(body)
    finally:
        await services.close()
    return exchange.message if exchange.error_kind else ""


class Connections(aiohttp.TCPConnector):
    """aiohttp's connections, with one further look before one is used again.

    What a server sends while a connection lies idle would be read as the answer to the next
    request: one sample would get an answer that nobody gave to it. Inheriting is the only way
    that aiohttp offers to look at a connection before a request goes out on it.
    """

    def __init__(self, *, is_fresh: bool = False) -> None:
        # The gates of the services decide how many connections there are.
        super().__init__(limit=0, ttl_dns_cache=300, force_close=is_fresh)

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 - aiohttp's signature
    ) -> Connection:
        """Get a connection on which nothing is left over; the time of the call runs from here."""
        while True:
            connection = await super().connect(req, traces, timeout)
            if connection.protocol is None or not connection.protocol.should_close:
                start_time()
                return connection
            connection.close()


def _address(url: str) -> URL:
    try:
        address = URL(url)
        usable = address.scheme in {"http", "https"} and bool(address.host)
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{_shown(url)!r} is not an address. Write it as https://host/path.")
    if address.user is not None or address.password is not None:
        raise ConfigError(
            f"The address of {address.host} carries a user name or password.\n"
            "Name the environment variable that holds them instead, under headers."
        )
    return address


def _base(url: str) -> str:
    return str(_address(url).with_query(None).with_fragment(None)).rstrip("/")


def _shown(url: str) -> str:
    """Cut what may hold a secret off an address."""
    head, at, tail = url.split("?", 1)[0].rpartition("@")
    return (head.split("//", 1)[0] + "//" + tail) if at and "//" in head else url.split("?", 1)[0]


def _checked(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, text in headers.items():
        good = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not good:
            raise ConfigError(f"{name!r} cannot be the name of a header.")
        if any(ord(c) < 32 or ord(c) == 127 for c in text) or not text.isascii():
            raise ConfigError(
                f"The header {name} holds a line break or another character that HTTP forbids."
            )
    return headers
