"""One attempt on the wire: sent, timed, read within bounds, failures named."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

import aiohttp

from guardmark.core.limits import MIB, MOST_VALUES_OF_AN_ANSWER, USUAL_ANSWER_MIB
from guardmark.core.outcome import ErrorKind, TextChunk
from guardmark.core.values import dataclass
from guardmark.net.error_bodies import error_inside, error_of
from guardmark.net.exchange import PreparedRequest, read_body
from guardmark.net.service import ServiceAnswer
from guardmark.net.status_codes import may_pass

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from yarl import URL

    from guardmark.net.error_bodies import ErrorObject
    from guardmark.net.exchange import HttpAnswer
    from guardmark.net.redaction import Redactor
    from guardmark.net.service import Service

LONGEST_WAIT_S = 120.0  # a service that asks for a longer pause is not retried: its quota is spent

_REFUSED = frozenset({401, 403, 407})
_EXCERPT = 200
_AFTER_THE_END_S = 0.05  # for a stream's connection to come to its end, to be used again
_PARTIAL = 206
_UNSTATED_TYPE = "application/octet-stream"
_USUAL_TYPES = frozenset({"application/json", "application/json; charset=utf-8"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """What the answers of an endpoint are like.

    Attributes:
        holds_errors: Whether an answer may be an error.
        is_of_numbers: Whether an answer is lists of numbers, as vectors are.
        is_last: Of a stream: whether nothing after a line is to be read.
        join: Of a stream: what puts its parts together as one answer; None where its lines are
            the answer. It returns None for an answer that did not stream.
    """

    holds_errors: bool = False
    is_of_numbers: bool = False
    is_last: Callable[[bytes], bool] | None = None
    join: Callable[[bytes], JoinedStream | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedStream:
    """The parts of a stream put together.

    Attributes:
        body: The answer that they are.
        texts: For each part with text, its line and the characters of the answer so far.
    """

    body: bytes
    texts: tuple[tuple[int, int], ...]


class StreamCut(Exception):
    """A stream ended before the answer did."""


class Wire:
    """Sends requests of one endpoint, one attempt at a time."""

    __slots__ = (
        *("_final", "_headers", "_holds_errors", "_method", "_redactor", "_service", "_shown"),
        *("_is_last", "_is_of_numbers", "_join", "_prepared", "_tls", "_url"),
    )

    def __init__(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        service: Service,
        final_statuses: frozenset[int],
        redactor: Redactor,
        form: AnswerForm,
    ) -> None:
        self._is_last = form.is_last
        self._join = form.join
        self._holds_errors = form.holds_errors
        self._is_of_numbers = form.is_of_numbers
        self._method = method
        self._url = url
        self._headers = headers
        self._service = service
        self._final = final_statuses
        self._redactor = redactor
        self._shown = redactor.text(f"{method} {url.with_query(None)}")
        self._prepared: dict[aiohttp.TCPConnector, PreparedRequest] = {}
        self._tls: ssl.SSLContext | bool = service.tls() if url.scheme == "https" else True

    async def attempt(self, connector: aiohttp.TCPConnector, body: bytes) -> ServiceAnswer:
        """Make one attempt; whatever a network or a server does becomes an answer."""
        status: int | None = None
        arrived: list[int] = []
        started_ns = perf_counter_ns()
        try:
            with self._service.deadline.call():
                request = self._prepared.get(connector) or self._prepare(connector)
                response = await request.send(body, timeout=self._service.timeout)
                status = response.status
                most = self._service.limits.max_response_bytes
                is_full = is_open = False
                if self._is_last is None:
                    received = await read_body(response, most)
                else:
                    streamed = await _read_lines(response, most, self._is_last, arrived)
                    received, is_full, is_open = streamed
                service_ns = perf_counter_ns() - started_ns
            if is_open:
                await response.finish(within_s=_AFTER_THE_END_S)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            service_ns = perf_counter_ns() - started_ns
            return self._failed(error, status, started_ns=started_ns, service_ns=service_ns)
        answer = ServiceAnswer(
            status=status,
            # Before anything is read from it or cut off it: half a secret is not found later.
            body=self._redactor.data(received or b""),
            content_type="" if received is None else self._content_type(response),
            started_ns=started_ns,
            service_ns=service_ns,
            arrivals_ns=[each - started_ns for each in arrived] if arrived else (),
        )
        if received is None:
            message = f"{self._shown} sent more than {most} bytes; the answer was refused"
            message += f" (max_answer_mib of this service: {most / MIB:g})"
            kind = ErrorKind.CONTRACT
            return replace(answer, error="too_large", error_kind=kind, message=message)
        if self._is_last is None and not self._is_of_numbers:
            is_full = _has_too_many_values(received)
        if is_full:
            message = f"{self._shown} sent more than {MOST_VALUES_OF_AN_ANSWER:,} values in one"
            message += " answer; it was refused"
            if self._is_last is not None:
                message = f"{self._shown} streamed more than {_most_lines(most):,} lines, or more "
                message += f"than {MOST_VALUES_OF_AN_ANSWER:,} values in one; it was refused"
            return replace(
                answer,
                body=b"",
                error="too_many_values",
                error_kind=ErrorKind.CONTRACT,
                message=message,
            )
        # 206 is a part of an answer: what it says may be in the other part.
        if (200 <= status < 300 and status != _PARTIAL) or status in self._final:
            return self._accepted(answer, received, response)
        return self._refused(answer, status, _retry_after_s(response.headers))

    def _accepted(
        self, answer: ServiceAnswer, received: bytes, response: HttpAnswer
    ) -> ServiceAnswer:
        """Read an answer whose status promises one: there may be an error inside."""
        if self._join is not None:
            answer = self._joined(answer, received, self._join)
        inside = error_inside(answer.body) if self._holds_errors else None
        if inside is None:
            return answer
        return self._broken_off(answer, inside, _retry_after_s(response.headers))

    def _joined(
        self,
        answer: ServiceAnswer,
        received: bytes,
        join: Callable[[bytes], JoinedStream | None],
    ) -> ServiceAnswer:
        """Put the parts of a stream together; a secret may have come in two of them."""
        try:
            joined = join(received)
        except StreamCut as error:
            return replace(
                answer,
                body=b"",
                error="half_response",
                error_kind=ErrorKind.CONNECTION,
                message=f"{self._shown}: the stream broke off before its end: {error}",
                worth_retrying=True,
            )
        except ValueError as error:
            return replace(
                answer,
                body=b"",
                error="not_a_stream",
                error_kind=ErrorKind.CONTRACT,
                message=f"{self._shown}: {error}",
            )
        if joined is None:
            return answer
        arrivals = answer.arrivals_ns
        chunks = []
        for line, end in joined.texts:
            arrival_ns = arrivals[line] if line < len(arrivals) else answer.service_ns
            chunks.append(TextChunk(end=end, arrival_ns=arrival_ns))
        body = self._redactor.data(joined.body)
        return replace(answer, body=body, chunks=tuple(chunks))

    def _prepare(self, connector: aiohttp.TCPConnector) -> PreparedRequest:
        """Prepare the requests over some connections, once."""
        request = self._prepared[connector] = PreparedRequest(
            self._method, self._url, headers=self._headers, tls=self._tls, connector=connector
        )
        return request

    def _refused(self, answer: ServiceAnswer, status: int, wait_s: float | None) -> ServiceAnswer:
        """Turn a complete answer of another status than 2xx into a failure."""
        patient = wait_s is None or wait_s <= LONGEST_WAIT_S
        error = error_of(answer.body)
        words = error.words
        if error.parameter and error.parameter not in words:
            words += f" (parameter {error.parameter})"
        other = ErrorKind.HTTP if status >= 400 else ErrorKind.CONTRACT
        message = f"{self._shown} answered {status}" + (f": {words}" if words else "")
        if status == _PARTIAL:
            message += " (a part of an answer is none)"
        elif status < 400:
            message += " (a redirect is not followed: give its target as the address)"
        if not patient:
            message += f" (and asks to wait {wait_s:.0f} s)"
        return replace(
            answer,
            error=f"http_{status}",
            error_kind=ErrorKind.REFUSED if status in _REFUSED else other,
            message=message,
            worth_retrying=patient and may_pass(status),
            retry_after_s=wait_s,
        )

    def _broken_off(
        self, answer: ServiceAnswer, error: ErrorObject, header_wait_s: float | None
    ) -> ServiceAnswer:
        """Turn an error inside an answer of status 2xx into the failure that it is."""
        wait_s = header_wait_s if error.wait_s is None else error.wait_s
        patient = wait_s is None or wait_s <= LONGEST_WAIT_S
        status = error.status or answer.status or 0
        message = f"{self._shown} answered {answer.status} with an error inside"
        message += f" ({error.status}): {error.words}" if error.status else f": {error.words}"
        if not patient:
            message += f" (and asks to wait {wait_s:.0f} s)"
        # One that names no status may be anything; a second try costs little.
        is_passing = error.status is None or may_pass(status)
        return replace(
            answer,
            status=status,
            error=f"error_inside_{status}",
            error_kind=ErrorKind.REFUSED if status in _REFUSED else ErrorKind.HTTP,
            message=message,
            worth_retrying=patient and is_passing,
            retry_after_s=wait_s,
        )

    def _failed(
        self, error: Exception, status: int | None, *, started_ns: int, service_ns: int
    ) -> ServiceAnswer:
        """Name what aiohttp raised."""
        word, kind, retry = next(each[1:] for each in _NAMES if isinstance(error, each[0]))
        limits, number = self._service.limits, getattr(error, "errno", None)
        # The system's word (connection refused) says more than the library's account of it.
        system_says = os.strerror(number).lower() if number else self._first_line(error)
        reason = {
            "connect_timeout": f"no connection within {limits.connect_timeout_s:g} s",
            "timeout": f"no complete answer within {limits.read_timeout_s:g} s",
            "dns": "the name does not resolve",
            "no_connection": f"cannot connect: {system_says}",
            "certificate": f"the certificate is not valid: {self._first_line(error)}",
            "half_response": "the answer broke off",
            "disconnected": "the connection was dropped",
        }.get(word, self._first_line(error))
        return ServiceAnswer(
            status=status,
            body=b"",
            started_ns=started_ns,
            service_ns=service_ns,
            error=word,
            error_kind=kind,
            message=f"{self._shown}: {reason}",
            worth_retrying=retry,
        )

    def _content_type(self, response: HttpAnswer) -> str:
        """Return the type of an answer; nothing where its header holds a secret."""
        header = response.headers.get("Content-Type", "")
        if header in _USUAL_TYPES:
            return "application/json"
        if self._redactor.text(header) != header:
            return ""
        return header.partition(";")[0].strip().lower() or _UNSTATED_TYPE

    def _first_line(self, error: Exception) -> str:
        text = self._redactor.text(str(error))
        return (text.splitlines() or [""])[0][:_EXCERPT] or type(error).__name__


def _has_too_many_values(body: bytes) -> bool:
    """Tell whether a body may hold so many values that reading it would hold up everybody else.

    Commas and brackets are counted: what stands within texts counts too, as it costs next to
    nothing to count and no answer of a guard, a judge or a model comes near the limit.
    """
    if len(body) <= MOST_VALUES_OF_AN_ANSWER:
        return False
    marks = body.count(b",") + body.count(b"[") + body.count(b"{")
    return marks > MOST_VALUES_OF_AN_ANSWER


def _most_lines(most: int) -> int:
    """Return how many lines a stream of at most so many bytes may have."""
    return MOST_VALUES_OF_AN_ANSWER * max(1, most // (USUAL_ANSWER_MIB * MIB))


class _Streamed(NamedTuple):
    """What was read of a stream.

    Attributes:
        body: Its bytes; None where it is too long.
        is_full: Whether it holds too much.
        is_open: Whether it was left before the answer ended.
    """

    body: bytes | None
    is_full: bool = False
    is_open: bool = False


async def _read_lines(
    response: HttpAnswer, most: int, is_last: Callable[[bytes], bool], arrived: list[int]
) -> _Streamed:
    """Read a stream up to its last line, and note when each line came.

    What a line holds is looked at by itself: a long answer comes in many small parts.
    """
    most_lines = _most_lines(most)
    body = bytearray()
    start = looked = 0
    try:
        async for piece in response.content.iter_any():
            now_ns = perf_counter_ns()
            body += piece
            while (stop := body.find(b"\n", looked)) >= 0 and stop < most:
                arrived.append(now_ns)
                line = bytes(body[start:stop])
                start = looked = stop + 1
                if _has_too_many_values(line) or len(arrived) > most_lines:
                    response.close()
                    return _Streamed(b"", is_full=True)
                if is_last(line):
                    return _Streamed(bytes(body[:start]), is_open=True)
            if len(body) > most:
                response.close()
                return _Streamed(None)
            looked = len(body)
        response.release()
        return _Streamed(bytes(body), is_full=_has_too_many_values(bytes(body[start:])))
    except BaseException:
        response.close()
        raise


_NAMES: tuple[tuple[type[Exception], str, ErrorKind, bool], ...] = (
    (aiohttp.ConnectionTimeoutError, "connect_timeout", ErrorKind.TIMEOUT, True),
    (TimeoutError, "timeout", ErrorKind.TIMEOUT, False),
    (aiohttp.ClientConnectorCertificateError, "certificate", ErrorKind.CONNECTION, False),
    (aiohttp.ClientSSLError, "tls", ErrorKind.CONNECTION, False),
    (aiohttp.ClientConnectorDNSError, "dns", ErrorKind.CONNECTION, True),
    (aiohttp.ClientConnectorError, "no_connection", ErrorKind.CONNECTION, True),
    (aiohttp.ClientPayloadError, "half_response", ErrorKind.CONNECTION, True),
    (aiohttp.ClientResponseError, "not_http", ErrorKind.CONTRACT, False),
    (aiohttp.ClientConnectionError, "disconnected", ErrorKind.CONNECTION, True),
    (aiohttp.ClientError, "connection", ErrorKind.CONNECTION, True),
    (OSError, "connection", ErrorKind.CONNECTION, True),
    (ValueError, "not_http", ErrorKind.CONTRACT, False),
)
"""From the narrow to the wide: aiohttp's own, then the system's."""


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Read Retry-After; a date counts from the answer's own Date, so no clock is asked."""
    value = headers.get("Retry-After", "").strip()
    with suppress(ValueError):
        return max(0.0, float(value))
    try:
        until = parsedate_to_datetime(value)
        return max(0.0, (until - parsedate_to_datetime(headers["Date"])).total_seconds())
    except (KeyError, TypeError, ValueError, OverflowError):  # a year of twenty digits
        return None
