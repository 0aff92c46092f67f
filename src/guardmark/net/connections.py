"""The connections of a run: opened on demand, kept between requests, one request at a time."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from guardmark.net.framing import AnswerReader, Fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_LONGEST_IDLE_S: Final = 15.0  # a server closes what is idle for long, maybe just as we send
_NEXT_ADDRESS_S: Final = 0.25  # how long to wait for one address before trying the next beside it


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where connections lead.

    Attributes:
        host: Name or number, as the resolver wants it.
        port: TCP port.
        tls: What decides on certificates, or None for plain text.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None


class Connection(asyncio.Protocol):
    """One connection to one origin; made by `Connections`.

    Attributes:
        is_open: Whether it may carry a request.
        idle_since_s: When it came to rest, on the loop's clock.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.idle_since_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._reader: AnswerReader | None = None
        self._answered: asyncio.Future[None] | None = None
        self._poll: select.poll | None = None

    async def ask(self, request: bytes, reader: AnswerReader, *, within_s: float) -> None:
        """Send a request and wait until the reader has the whole answer.

        However it fails, cancellation included, the connection is closed: nobody could say
        whose answer would come next.

        Args:
            request: Head and body.
            reader: Takes the answer.
            within_s: Longest time until the answer is complete.

        Raises:
            Fault: If there is no complete answer.
        """
        loop = asyncio.get_running_loop()
        transport = self._transport
        if transport is None or not self.is_open:
            raise Fault("disconnected")
        answered = self._answered = loop.create_future()
        self._reader = reader
        timer = loop.call_later(within_s, self._fail, Fault("timeout"))
        transport.write(request)
        try:
            await answered
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()
            self._answered = self._reader = None
        head = reader.head
        # What still waits to be sent belongs to a request that was answered half-way.
        is_done = not reader.has_surplus and not transport.get_write_buffer_size()
        if head is None or not head.keeps_open or not is_done:
            self.close()

    def is_quiet(self) -> bool:
        """Tell whether an idle connection is open and nothing has arrived on it.

        What arrives unasked is the end of the connection, most of the time: a request sent
        after it would be lost, and its loss counted as a failure of the service.
        """
        if not self.is_open or self._transport is None:
            return False
        place = self._transport.get_extra_info("socket")
        if not hasattr(select, "poll"):
            return not select.select([place], [], [], 0)[0]
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(place, select.POLLIN)
        return not self._poll.poll(0)

    def close(self) -> None:
        """Close it at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out (called by the loop)."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand on what arrived (called by the loop)."""
        reader, answered = self._reader, self._answered
        if reader is None or answered is None or answered.done():
            self.close()  # nobody asked: it must not become the next one's answer
            return
        try:
            is_complete = reader.feed(data)
        except Fault as fault:
            self._fail(fault)
        else:
            if is_complete:
                answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the loop passes it
        """Note the end (called by the loop)."""
        self.is_open = False
        reader, answered = self._reader, self._answered
        if reader is None or answered is None or answered.done():
            return
        try:
            reader.end()
        except Fault as fault:
            self._fail(fault)
        else:
            answered.set_result(None)

    def _fail(self, fault: Fault) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(fault)


class Connections:
    """Every connection of a run, by origin. How many there are, their users decide."""

    def __init__(self) -> None:
        self._idle: dict[Origin, list[Connection]] = {}
        self._all: set[Connection] = set()

    async def take(self, origin: Origin, *, within_s: float) -> Connection:
        """Return a connection nobody uses, a new one if there is none.

        Args:
            origin: Where to.
            within_s: Longest time to open one.

        Returns:
            An open connection; give it back after use.

        Raises:
            Fault: If none can be opened.
        """
        idle = self._idle.get(origin)
        if idle:
            oldest_s = asyncio.get_running_loop().time() - _LONGEST_IDLE_S
            while idle:
                connection = idle.pop()
                if connection.idle_since_s >= oldest_s and connection.is_quiet():
                    return connection
                self._drop(connection)
        connection = await _named(lambda: _connect(origin), within_s=within_s)
        self._all.add(connection)
        return connection

    def give_back(self, origin: Origin, connection: Connection) -> None:
        """Keep a connection for the next request, if it can carry one.

        Args:
            origin: Where it leads.
            connection: One that `take` returned.
        """
        if not connection.is_open:
            self._drop(connection)
            return
        connection.idle_since_s = asyncio.get_running_loop().time()
        self._idle.setdefault(origin, []).append(connection)

    async def close(self) -> None:
        """Close all of them."""
        self._idle.clear()
        for connection in self._all:
            connection.close()
        self._all.clear()
        await asyncio.sleep(0)  # the loop lets go of a closed connection in its next turn

    def _drop(self, connection: Connection) -> None:
        connection.close()
        self._all.discard(connection)


async def _connect(origin: Origin) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        Connection,
        origin.host,
        origin.port,
        ssl=origin.tls,
        server_hostname=None if origin.tls is None else origin.host.rstrip("."),
        happy_eyeballs_delay=_NEXT_ADDRESS_S,
    )
    return connection


async def _named(connect: Callable[[], Awaitable[Connection]], *, within_s: float) -> Connection:
    """Wait for a connection, and name what kept it from coming about."""
    try:
        async with asyncio.timeout(within_s):
            return await connect()
    except TimeoutError as error:
        raise Fault("connect_timeout") from error
    except ssl.SSLCertVerificationError as error:
        raise Fault("certificate", error.verify_message or str(error)) from error
    except ssl.SSLError as error:
        raise Fault("tls", str(error)) from error
    except (socket.gaierror, UnicodeError) as error:
        raise Fault("dns") from error
    except OSError as error:
        raise Fault("no_connection", str(error)) from error
