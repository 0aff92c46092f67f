"""One timer for all calls of a service: they have the same time, so the oldest ends first.

The time of a call runs from when it has its connection: looking up the name, connecting and the
handshake of TLS have a time of their own, and whoever is slow at the one may use all of the other.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from contextvars import Token
    from types import TracebackType


_PRESENT: ContextVar[_Call | None] = ContextVar("_PRESENT", default=None)


def start_time() -> None:
    """Let the time of the present call run, if there is one, anew with each connection."""
    call = _PRESENT.get()
    if call is not None:
        call.start()


class Deadline:
    """Ends calls that take too long; a timer for each would cost a tenth of its CPU."""

    __slots__ = ("_calls", "_loop", "_timer", "_within_s")

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._calls: dict[_Call, None] = {}  # in the order in which they end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def call(self) -> _Call:
        """Return a context for one call of the present task; it raises TimeoutError when late."""
        return _Call(self)

    def begin(self, call: _Call, task: asyncio.Task[Any]) -> float:
        """Watch over a call."""
        loop = task.get_loop()
        ends_s = loop.time() + self._within_s
        self._calls[call] = None
        if self._timer is None or self._loop is not loop:
            self._loop, self._timer = loop, loop.call_at(ends_s, self._look)
        return ends_s

    def end(self, call: _Call) -> None:
        """Watch over a call no longer."""
        self._calls.pop(call, None)

    def _look(self) -> None:
        self._timer = None
        if self._loop is None:
            return
        now_s = self._loop.time()
        for call in self._calls:
            if call.ends_s > now_s:
                self._timer = self._loop.call_at(call.ends_s, self._look)
                return
            call.cancel()


class _Call:
    """The time of one call; as `asyncio.timeout`, but for the timer."""

    __slots__ = ("_cancelling", "_deadline", "_is_late", "_task", "_token", "ends_s")

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._is_late = False
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._token: Token[_Call | None] | None = None
        self.ends_s = 0.0

    def __enter__(self) -> Self:
        task = self._task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a call is made by a task")
        self._cancelling = task.cancelling()
        self._token = _PRESENT.set(self)
        return self

    def start(self) -> None:
        """Let its time run from now."""
        if self._task is not None:
            if self.ends_s:
                self._deadline.end(self)  # calls are kept in the order in which they end
            self.ends_s = self._deadline.begin(self, self._task)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._deadline.end(self)
        if self._token is not None:
            _PRESENT.reset(self._token)
        if not self._is_late or self._task is None:
            return
        # Somebody else's wish to cancel goes through; ours becomes what it means.
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def cancel(self) -> None:
        """End it; once."""
        if not self._is_late and self._task is not None:
            self._is_late = True
            self._task.cancel()
