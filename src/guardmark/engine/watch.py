"""Keeping an eye on tasks while they work: stop, commits, the loop's own delay."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from guardmark.engine.ledger import Halt

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from guardmark.engine.ledger import RunMonitor

_TICK_S: Final = 0.05


async def supervise(work: Iterable[Coroutine[Any, Any, None]], ledger: RunMonitor) -> None:
    """Run coroutines beside each other until all are done or the run must end.

    Answers that arrived are committed in time even when no further ones come. A run that
    must end drops what is in flight, except when only a number of calls, tokens or money
    ran out: those calls were paid for, so they are finished and stored.
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
            if pending:
                ledger.note_lag(perf_counter_ns() - before - int(_TICK_S * 1e9))
            ledger.store()
            if not ledger.may_go_on() and ledger.halt is not Halt.BUDGET:
                return
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
