"""Calls before the measured ones, so that connections are open and caches are warm."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

from guardmark.core.errors import BudgetReached
from guardmark.core.record import Stage
from guardmark.engine.asking import Question
from guardmark.engine.calls import (
    as_coroutine,
    as_decision,
    decide_all,
    inline_decide,
)
from guardmark.engine.run_monitor import Halt
from guardmark.engine.supervision import supervise
from guardmark.store.schema import FLAG_COLD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from guardmark.core.outcome import Decision
    from guardmark.core.protocols import Guard
    from guardmark.core.sample import Prompt
    from guardmark.engine.execution.executor import DefenseWork
    from guardmark.engine.run_monitor import RunMonitor
    from guardmark.engine.supervision import StopSignal
    from guardmark.store.records import RecordBatch


async def warm_up(work: DefenseWork) -> None:
    """Make the warm-up calls of a defense, unless nothing is left to measure.

    They are made as the measured calls will be: beside each other where those are, so that
    as many connections are open when measuring begins.
    """
    monitor = work.monitor
    wanted, stored = monitor.plan.timing.warmup, monitor.writer.stored
    total = monitor.writer.sample_count
    if not wanted or all(
        stored.count(recorder.batch) >= total or monitor.is_done(recorder.progress)
        for recorder in work.recorders
    ):
        return
    batch, plan = _free_batch(work.name, monitor), monitor.plan
    every = (
        pair
        for chunk in stored.pending(None)
        for pair in zip(chunk.positions, chunk.prompts, strict=True)
    )
    samples = islice(every, wanted)
    width, ask = plan.in_flight(work.name), as_coroutine(work.guard)
    if work.guard.capabilities.is_inline:
        width, ask = 1, inline_ask(work.guard, monitor.stop)
    await supervise(
        [
            _warm_each(ask, samples, name=work.name, batch=batch, monitor=monitor)
            for _ in range(min(width, wanted))
        ],
        monitor.tick,
    )


def inline_ask(guard: Guard, stop: StopSignal) -> Callable[[Prompt], Awaitable[Decision]]:
    """Return what asks a guard in this process; an abandoned call waits to be cancelled."""
    decide, timeout_s = inline_decide(guard), guard.capabilities.timeout_s

    async def ask(prompt: Prompt) -> Decision:
        decisions: list[Decision] = []
        if not stop.is_set:
            decisions, _ = decide_all(decide, [prompt], timeout_s=timeout_s, stop=stop)
        if not decisions:
            await asyncio.Event().wait()  # abandoned: whoever supervises us will cancel us
        return decisions[0]

    return ask


async def _warm_each(
    ask: Callable[[Prompt], Awaitable[Decision]],
    samples: Iterator[tuple[int, Prompt]],
    *,
    name: str,
    batch: RecordBatch,
    monitor: RunMonitor,
) -> None:
    flags = FLAG_COLD
    for position, prompt in samples:
        if not monitor.may_go_on():
            return
        try:
            answer, took = await monitor.asker.put(ask, Question(name, (prompt,)))
        except BudgetReached as reached:
            monitor.end(Halt.BUDGET, str(reached))
            return
        decision = as_decision(answer)
        batch.add(position, decision, latency_ns=took, flags=flags)
        monitor.added += 1
        if decision.evidence is not None:
            monitor.spend(decision.evidence)
        flags = 0


def _free_batch(name: str, monitor: RunMonitor) -> RecordBatch:
    # Each process warms up anew; its calls get a repeat of their own.
    writer = monitor.writer
    batches = (writer.record_batch(name, Stage.WARMUP, repeat=n) for n in range(1 << 31))
    return next(batch for batch in batches if not writer.stored.count(batch))
