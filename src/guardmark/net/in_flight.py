"""How many requests are in flight at once, fixed or finding its own level."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

_START = 4
_SLOWER = 1.5
_STEP_BACK = 0.9


class Gate:
    """Lets in as many as its limit, which may move; an open one is entered at once."""

    __slots__ = ("_waiters", "inside", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit  # how many may be inside now
        self.inside = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Go in, waiting for a place if need be."""
        if self.inside < self.limit and not self._waiters:
            self.inside += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # the place was given to us at the moment we were cancelled
            else:
                with suppress(ValueError):
                    self._waiters.remove(turn)
            raise

    def leave(self) -> None:
        """Go out and let the next one in."""
        self.inside -= 1
        self._admit()

    def move_limit(self, limit: int) -> None:
        """Set another limit; those inside above it may finish."""
        self.limit = limit
        self._admit()

    def _admit(self) -> None:
        while self._waiters and self.inside < self.limit:
            turn = self._waiters.popleft()
            if not turn.done():
                self.inside += 1
                turn.set_result(None)


class AdaptiveLimit:
    """Moves a limit: up while latency holds, halved once a round when told to slow down."""

    def __init__(self, gate: Gate, ceiling: int) -> None:
        self._gate = gate
        self._ceiling = ceiling
        self._best_ns: float | None = None
        self._doubling = True
        self._deaf = 0
        gate.move_limit(min(_START, ceiling))
        self._size = self._left = gate.limit
        self._total_ns = 0

    def observe(self, service_ns: int, *, told_to_slow_down: bool) -> None:
        """Take note of one answer."""
        if self._deaf:
            self._deaf -= 1  # it was under way when the limit was halved
            return
        if told_to_slow_down:
            self._doubling = False
            self._deaf = self._gate.inside
            self._move(max(1, self._gate.limit // 2))
            return
        self._total_ns += service_ns
        self._left -= 1
        if self._left == 0:
            self._judge(self._total_ns / self._size)

    def _move(self, limit: int) -> None:
        """Set the limit and begin a round."""
        self._gate.move_limit(limit)
        self._size = self._left = limit
        self._total_ns = 0

    def _judge(self, mean_ns: float) -> None:
        limit = self._gate.limit
        if self._best_ns is None or mean_ns < self._best_ns:
            self._best_ns = mean_ns
        if mean_ns > _SLOWER * self._best_ns:
            self._doubling = False
            limit = max(1, int(limit * _STEP_BACK))
        else:
            limit = min(self._ceiling, limit * 2 if self._doubling else limit + 1)
        self._move(limit)
