"""One attempt on the wire: sent, timed, read within bounds, failures named."""

from __future__ import annotations

import os
import re
from email.utils import parsedate_to_datetime
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from guardmark.core.outcome import ErrorKind
from guardmark.net.connections import Origin
from guardmark.net.exchange import Answer
from guardmark.net.framing import AnswerReader, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from yarl import URL

    from guardmark.net.connections import Connections
    from guardmark.net.framing import Head
    from guardmark.net.service import Service

LONGEST_WAIT_S = 120.0
"""A service that asks for a longer pause is not retried: its quota is spent."""

_RETRIED = frozenset({408, 409, 429})
_REFUSED = frozenset({401, 403, 407})
_EXCERPT = 200
_NUMBER = re.compile(r"\[Errno (\d+)\]")

_MEANING: Final = {
    "connect_timeout": (ErrorKind.TIMEOUT, True),
    "timeout": (ErrorKind.TIMEOUT, False),
    "certificate": (ErrorKind.CONNECTION, False),
    "tls": (ErrorKind.CONNECTION, False),
    "dns": (ErrorKind.CONNECTION, True),
    "no_connection": (ErrorKind.CONNECTION, True),
    "disconnected": (ErrorKind.CONNECTION, True),
    "half_response": (ErrorKind.CONNECTION, True),
    "not_http": (ErrorKind.CONTRACT, False),
    "too_large": (ErrorKind.CONTRACT, False),
}
"""A fault to the kind of failure it is, and whether another attempt may go better."""


class Wire:
    """Sends requests of one endpoint, one attempt at a time.

    A latency is measured here, so nothing is done per request that can be done once: all of
    a request's head but its length is written beforehand.

    Args:
        method: HTTP method.
        url: Where to.
        headers: Name to text, complete, secrets included.
        service: Timeouts and certificates.
        final_statuses: Statuses that are answers, whatever HTTP thinks of them.
    """

    __slots__ = ("_final", "_has_body", "_head", "_origin", "_service", "_shown")

    def __init__(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        service: Service,
        final_statuses: frozenset[int],
    ) -> None:
        self._head = _written_head(method, url, headers)
        self._has_body = method.upper() != "HEAD"
        self._service = service
        self._final = final_statuses
        self._shown = f"{method} {url.with_query(None)}"
        self._origin = Origin(
            host=url.raw_host or "",
            port=url.port or 0,
            tls=service.tls() if url.scheme == "https" else None,
        )

    async def attempt(self, connections: Connections, body: bytes) -> Answer:
        """Make one attempt; whatever a network or a server does becomes an answer.

        Args:
            connections: Those of the run.
            body: The encoded request.

        Returns:
            What came, with the time from the start of the request to the last byte.
        """
        limits, origin = self._service.limits, self._origin
        reader = AnswerReader(most=limits.max_response_bytes, has_body=self._has_body)
        request = b"%b%d\r\n\r\n%b" % (self._head, len(body), body)
        started_ns = perf_counter_ns()
        try:
            connection = await connections.take(origin, within_s=limits.connect_timeout_s)
            try:
                await connection.ask(request, reader, within_s=limits.read_timeout_s)
                service_ns = perf_counter_ns() - started_ns
            finally:
                connections.give_back(origin, connection)
        except Fault as fault:
            service_ns = perf_counter_ns() - started_ns
            return self._failed(fault, reader.head, started_ns=started_ns, service_ns=service_ns)
        head = reader.head
        if head is None:
            raise RuntimeError("an answer without a head was taken for complete")
        if 200 <= head.status < 300 or head.status in self._final:
            return Answer(
                status=head.status,
                body=reader.body,
                content_type=head.content_type,
                started_ns=started_ns,
                service_ns=service_ns,
            )
        return self._refused(head, reader.body, started_ns=started_ns, service_ns=service_ns)

    def _refused(self, head: Head, body: bytes, *, started_ns: int, service_ns: int) -> Answer:
        """Turn a complete answer of another status than 2xx into a failure."""
        status = head.status
        wait_s = _retry_after_s(head.headers)
        patient = wait_s is None or wait_s <= LONGEST_WAIT_S
        said = " ".join(body[: 4 * _EXCERPT].decode("utf-8", "replace").split())[:_EXCERPT]
        message = f"{self._shown} answered {status}" + (f": {said}" if said else "")
        if status < 400:
            message += " (a redirect is not followed: give its target as the address)"
        if not patient:
            message += f" (and asks to wait {wait_s:.0f} s)"
        return Answer(
            status=status,
            body=body,
            content_type=head.content_type,
            started_ns=started_ns,
            service_ns=service_ns,
            error=f"http_{status}",
            error_kind=_kind_of(status),
            message=message,
            worth_retrying=patient and (status in _RETRIED or status >= 500),
            retry_after_s=wait_s,
        )

    def _failed(
        self, fault: Fault, head: Head | None, *, started_ns: int, service_ns: int
    ) -> Answer:
        """Turn a fault into an answer without a body."""
        limits = self._service.limits
        told = {
            "connect_timeout": f"no connection within {limits.connect_timeout_s:g} s",
            "timeout": f"no complete answer within {limits.read_timeout_s:g} s",
            "dns": "the name does not resolve",
            "no_connection": f"cannot connect: {_system_says(fault.said)}",
            "certificate": f"the certificate is not valid: {_first_line(fault.said)}",
            "tls": f"no encrypted connection: {_first_line(fault.said)}",
            "disconnected": "the connection was dropped",
            "half_response": "the answer broke off",
            "not_http": f"this is no answer of HTTP/1.1: {_first_line(fault.said)}",
            "too_large": (
                f"sent more than {limits.max_response_bytes} bytes; the answer was refused"
            ),
        }[fault.word]
        kind, worth_retrying = _MEANING[fault.word]
        return Answer(
            status=None if head is None else head.status,
            body=b"",
            started_ns=started_ns,
            service_ns=service_ns,
            error=fault.word,
            error_kind=kind,
            message=f"{self._shown}: {told}",
            worth_retrying=worth_retrying,
        )


def _written_head(method: str, url: URL, headers: Mapping[str, str]) -> bytes:
    """Write the head of every request, up to the number that says how long its body is."""
    host = url.host_subcomponent or ""
    named = host if url.is_default_port() else f"{host}:{url.port}"
    lines = [f"{method} {url.raw_path_qs} HTTP/1.1"]
    if "host" not in {name.lower() for name in headers}:
        lines.append(f"Host: {named}")
    lines += [f"{name}: {text}" for name, text in headers.items()]
    return "\r\n".join([*lines, "Content-Length: "]).encode("ascii")


def _kind_of(status: int) -> ErrorKind:
    if status in _REFUSED:
        return ErrorKind.REFUSED
    return ErrorKind.HTTP if status >= 400 else ErrorKind.CONTRACT


def _system_says(said: str) -> str:
    """Prefer the system's word (connection refused) to an account of every address tried."""
    numbers = set(_NUMBER.findall(said))
    return os.strerror(int(numbers.pop())).lower() if len(numbers) == 1 else _first_line(said)


def _first_line(said: str) -> str:
    return (said.splitlines() or [""])[0][:_EXCERPT]


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Read Retry-After; a date counts from the answer's own Date, so no clock is asked."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(value)
        return max(0.0, (until - parsedate_to_datetime(headers["date"])).total_seconds())
    except (KeyError, TypeError, ValueError):
        return None
