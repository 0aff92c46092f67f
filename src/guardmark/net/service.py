"""One service as the run sees it: what it answers, its limits, gate, rates, timeouts, counters."""

from __future__ import annotations

import asyncio
import re
from array import array
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from guardmark.core.errors import ConfigError
from guardmark.core.limits import USUAL_ANSWER_MIB
from guardmark.core.values import dataclass
from guardmark.net.deadline import Deadline
from guardmark.net.in_flight import AdaptiveLimit, Gate
from guardmark.net.status_codes import asks_to_slow_down

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from aiolimiter import AsyncLimiter

    from guardmark.core.outcome import Attempt, ErrorKind, TextChunk

_RATE = re.compile(r"(\d+(?:\.\d+)?)/(s|min|h)")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and what became of it, retries included."""

    status: int | None
    body: bytes
    content_type: str = ""
    service_ns: int
    error_kind: ErrorKind | None = None
    message: str = ""
    attempts: tuple[Attempt, ...] = ()
    arrivals_ns: Sequence[int] = ()  # of each line of a stream, since the request
    chunks: tuple[TextChunk, ...] | None = None  # of a stream whose parts were put together
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAnswer:
    """What one attempt brought."""

    status: int | None
    body: bytes
    content_type: str = ""
    started_ns: int
    service_ns: int
    arrivals_ns: Sequence[int] = ()
    chunks: tuple[TextChunk, ...] | None = None
    error: str = ""
    error_kind: ErrorKind | None = None
    message: str = ""
    worth_retrying: bool = False
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """What one request may cost, and what it costs where no answer comes."""

    at_most: float = 0.0
    unanswered: float = 0.0
    is_exact: bool = True  # whether an answered request costs the most that it may


FREE = CallCost()


class Sender(Protocol):
    """An address that takes one request after the other."""

    async def send(self, body: bytes, *, cost: CallCost = FREE) -> Exchange:
        """Send one request, retries included."""
        ...

    def correct(self, reserved: float, cost: float) -> None:
        """Put what a request did cost in the place of the most it could, when that is known."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """How one service may be called."""

    concurrency: int = 16
    rate: str | None = None
    tokens: str | None = None
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 60.0
    retries: int = 3
    backoff_s: float = 0.25
    adaptive: bool = False
    max_response_bytes: int = USUAL_ANSWER_MIB * MEBIBYTE
    ca_file: str | None = None
    base_urls: tuple[str, ...] = ()  # further addresses of the same service


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many in so many seconds."""

    count: float
    period_s: float


def parse_rate(text: str) -> Rate:
    """Read a rate such as `300/min`."""
    match = _RATE.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise ConfigError(f"{text!r} is not a rate. Write it as 5/s, 300/min or 1000/h.")
    return Rate(count=float(match[1]), period_s=_SECONDS[match[2]])


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTraffic:
    """How a service was used in a run."""

    base_url: str
    calls: int
    attempts: int
    peak_in_flight: int
    limit: int
    is_one_of_many: bool  # whether the service has several addresses
    failures: int  # attempts that brought no answer
    times_left_out: int  # how often it was left out for a while, of several addresses
    times_ns: array[int]  # of the attempts that brought one; kept with several addresses only


ENDPOINTS = "endpoints.jsonl"  # of a run: a line for each of several addresses and each command


def describe_traffic(
    traffic: ServiceTraffic, shown_as: str, quantiles_ms: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Say how an address answered, as JSON values; quantiles are of the median first."""
    return {
        "base_url": shown_as,
        "answers": len(traffic.times_ns),
        "failures": traffic.failures,
        "times_left_out": traffic.times_left_out,
        "quantiles_ms": list(quantiles_ms),
    }


def traffic_text(told: Mapping[str, Any]) -> str:
    """Say on a line how an address answered."""
    times = []
    for word, each in zip(("median", "95 % quantile"), told["quantiles_ms"], strict=True):
        value, low, high = (each[name] for name in ("value", "low", "high"))
        limits = "" if low is None or high is None else f" [{low:.1f}, {high:.1f}]"
        times.append(f"{word} unknown" if value is None else f"{word} {value:.1f} ms{limits}")
    counts = f"{told['answers']:,} answers, {told['failures']:,} failures"
    return f"Endpoint {told['base_url']}: {counts}; {', '.join(times)}"


class Service:
    """What all endpoints of one service share."""

    def __init__(
        self, base_url: str, limits: ServiceLimits, *, is_one_of_many: bool = False
    ) -> None:
        self.base_url = base_url
        self.is_one_of_many = is_one_of_many
        self.limits = limits
        self.gate = Gate(limits.concurrency)
        self.calls = 0
        self.attempts = 0
        self.failed: Counter[str] = Counter()  # attempts without an answer, by status or failure
        self.times_left_out = 0
        self.times_ns = array("Q")
        self._on_wire = 0
        self._peak = 0
        from aiohttp import ClientTimeout  # here: runs that call nobody never load it

        self.timeout = ClientTimeout(total=None, connect=limits.connect_timeout_s)
        self.deadline = Deadline(limits.read_timeout_s)
        self._adaptive = AdaptiveLimit(self.gate, limits.concurrency) if limits.adaptive else None
        self._requests = _limiter(limits.rate, is_spread=True)
        self._tokens = _limiter(limits.tokens)
        self._open_from = 0.0
        self._tls: ssl.SSLContext | None = None
        if limits.ca_file is not None:
            self._tls = _trusting(limits.ca_file)

    def tls(self) -> ssl.SSLContext:
        """Return what decides on certificates; made once, on the first encrypted call."""
        if self._tls is None:
            self._tls = _trusting(None)
        return self._tls

    async def admit(self, tokens: int) -> None:
        """Wait for a place, for the end of a pause and for the rates; then go in."""
        await self.gate.enter()
        try:
            if self._open_from:
                await self._sit_out_pause()
            if self._requests is not None:
                await self._requests.acquire()
            if self._tokens is not None:
                # One request larger than the allowance of a period takes all of it.
                await self._tokens.acquire(min(tokens, self._tokens.max_rate))
        except BaseException:
            self.gate.leave()
            raise
        self.attempts += 1
        self._on_wire += 1
        self._peak = max(self._peak, self._on_wire)

    def release(self) -> None:
        """Give the place back once the attempt has ended, however it ended."""
        self._on_wire -= 1
        self.gate.leave()

    def note(self, answer: ServiceAnswer) -> None:
        """Learn from an answer: pause when asked to, move the adaptive limit."""
        if answer.error_kind is not None:
            self.failed[str(answer.status or answer.error)] += 1
        elif self.is_one_of_many:
            self.times_ns.append(answer.service_ns)
        if asks_to_slow_down(answer.status) and answer.retry_after_s and answer.worth_retrying:
            until = asyncio.get_running_loop().time() + answer.retry_after_s
            self._open_from = max(self._open_from, until)
        if self._adaptive is not None:
            self._adaptive.observe(
                answer.service_ns, told_to_slow_down=asks_to_slow_down(answer.status)
            )

    def use(self) -> ServiceTraffic:
        """Say how the service was used so far."""
        return ServiceTraffic(
            base_url=self.base_url,
            calls=self.calls,
            attempts=self.attempts,
            peak_in_flight=self._peak,
            limit=self.gate.limit,
            is_one_of_many=self.is_one_of_many,
            failures=self.failed.total(),
            times_left_out=self.times_left_out,
            times_ns=self.times_ns,
        )

    async def _sit_out_pause(self) -> None:
        loop = asyncio.get_running_loop()
        # Another answer may have moved the end of the pause meanwhile.
        while (left_s := self._open_from - loop.time()) > 0:  # noqa: ASYNC110 - a time, no event
            await asyncio.sleep(left_s)
        self._open_from = 0.0


def _limiter(rate: str | None, *, is_spread: bool = False) -> AsyncLimiter | None:
    """Hold a rate; one that is spread lets through a tenth of a second's worth at once."""
    if rate is None:
        return None
    from aiolimiter import AsyncLimiter

    parsed = parse_rate(rate)
    if not is_spread:
        return AsyncLimiter(parsed.count, parsed.period_s)
    burst = max(1.0, parsed.count / parsed.period_s / 10)
    return AsyncLimiter(burst, burst * parsed.period_s / parsed.count)


def _trusting(ca_file: str | None) -> ssl.SSLContext:
    import ssl

    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it holds no certificate in PEM form"
        raise ConfigError(
            f"The certificate file {ca_file} cannot be used: {reason}.\n"
            "Next: name a file of certificates in PEM form under ca_file."
        ) from error
