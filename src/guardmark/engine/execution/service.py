"""Calls that wait for somebody else: workers that pull from one feed, never a task a sample."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import BudgetReached
from guardmark.core.manifest import LatencyMode
from guardmark.engine.calls import as_coroutine, as_decision
from guardmark.engine.run_monitor import Halt
from guardmark.engine.supervision import supervise
from guardmark.store.schema import FLAG_COLD, FLAG_PLANNED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from guardmark.core.protocols import Guard
    from guardmark.core.sample import Prompt
    from guardmark.engine.execution.executor import DefenseWork
    from guardmark.engine.recorder import PendingSample
    from guardmark.engine.run_monitor import RunMonitor


class Pace:
    """Planned send times at a constant rate."""

    def __init__(self, rate_per_s: float) -> None:
        self.interval_ns = int(1e9 / rate_per_s)
        self._next_ns = perf_counter_ns()

    async def turn(self) -> int:
        """Wait for the next planned send time."""
        planned = self._next_ns
        self._next_ns += self.interval_ns
        ahead = planned - perf_counter_ns()
        if ahead > 0:
            await asyncio.sleep(ahead / 1e9)
        return planned


async def ask_each(
    ask: Callable[[Prompt], Awaitable[Any]],
    feed: Iterator[PendingSample],
    *,
    monitor: RunMonitor,
    pace: Pace | None,
    is_cold: bool,
) -> None:
    """Pull samples and ask about them, one after the other: the work of one worker."""
    flags, asker = FLAG_COLD if is_cold else 0, monitor.asker
    for sample in feed:
        if not monitor.may_go_on():
            return
        planned = None if pace is None else await pace.turn()
        # Others asked while this one waited for its turn: a budget may be spent by now.
        if planned is not None and not monitor.may_go_on():
            return
        try:
            answer, took = await asker.ask(ask, sample.question())
        except BudgetReached as reached:
            monitor.end(Halt.BUDGET, str(reached))
            return
        if planned is not None and took is not None:
            flags, took = flags | FLAG_PLANNED, perf_counter_ns() - planned
        sample.recorder.record_decision(sample, as_decision(answer), latency_ns=took, flags=flags)
        monitor.store()
        flags = 0


class ServiceExecutor:
    """Asks a defense behind a wire, sample by sample, as many at once as the plan allows."""

    runs_alone: Final = False

    def __init__(self, guard: Guard) -> None:
        self._ask = as_coroutine(guard)

    async def execute(self, work: DefenseWork) -> None:
        """Ask until nothing is left."""
        plan, feed = work.monitor.plan, work.samples()
        timing = plan.timing
        pace = Pace(timing.rate_per_s or 1.0) if timing.mode is LatencyMode.OPEN else None
        await supervise(
            ask_each(
                self._ask, feed, monitor=work.monitor, pace=pace, is_cold=number >= timing.warmup
            )
            for number in range(min(plan.in_flight(work.name), work.planned))
        )
