"""Work side by side, and the wish to end it: who asks for it, and who sees it."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

_TICK_S: Final = 0.05


class Abandoned(KeyboardInterrupt):
    """Raised into a call that does not come back although the run is to end."""


class StopSignal:
    """Set once; the engine looks at it many times a second."""

    __slots__ = ("is_calling", "is_seen", "reason")

    def __init__(self) -> None:
        self.reason = ""
        self.is_calling = False
        self.is_seen = False

    def set(self, reason: str = "interrupted") -> None:
        """Ask the run to end; what is finished is stored, what is in flight is dropped."""
        self.reason = self.reason or reason

    def abandon_call(self) -> None:
        """Raise into the call that is under way if the run is to end.

        Raises:
            Abandoned: If it is.
        """
        if self.reason and self.is_calling:
            raise Abandoned

    @property
    def is_set(self) -> bool:
        """Whether somebody asked; who looks at it ends what is under way."""
        self.is_seen = bool(self.reason)
        return self.is_seen


async def supervise(
    work: Iterable[Coroutine[Any, Any, None]], tick: Callable[[int], bool] = lambda _lag_ns: True
) -> None:
    """Run coroutines beside each other until all are done, or a tick says that it is over.

    A tick is told in nanoseconds how late it comes. One that raises ends the others.
    """
    tasks = [asyncio.ensure_future(part) for part in work]
    try:
        pending = set(tasks)
        while pending:
            before = perf_counter_ns()
            done, pending = await asyncio.wait(
                pending, timeout=_TICK_S, return_when=asyncio.FIRST_EXCEPTION
            )
            for task in done:
                task.result()
            lag_ns = perf_counter_ns() - before - int(_TICK_S * 1e9) if pending else 0
            if not tick(lag_ns):
                return
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
