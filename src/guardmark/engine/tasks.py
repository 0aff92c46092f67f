"""One defense with the desks of its repeats, and its warm-up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import islice
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeGuard

from guardmark.core.manifest import LatencyMode
from guardmark.core.protocols import BatchDefense, InlineDefense
from guardmark.core.record import Stage
from guardmark.engine.asking import asking
from guardmark.engine.calls import as_decision, attempt, decide_unless_abandoned, skipping
from guardmark.engine.watch import supervise
from guardmark.store.codes import FLAG_COLD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from guardmark.core.outcome import Decision
    from guardmark.core.sample import Prompt
    from guardmark.engine.desk import Recorder
    from guardmark.engine.ledger import RunMonitor
    from guardmark.engine.plan import AnyDefense, Plan
    from guardmark.store.lanes import RecordBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class DefenseTask:
    """One defense and where its answers go."""

    defense: AnyDefense
    desks: tuple[Recorder, ...]

    @property
    def name(self) -> str:
        """Name of the defense."""
        return self.defense.name


def takes_batches(defense: AnyDefense, plan: Plan) -> TypeGuard[BatchDefense]:
    """Tell whether a defense is asked in batches.

    Where single calls are timed, every defense is asked one by one.
    """
    return plan.timing.mode is LatencyMode.LOADED and isinstance(defense, BatchDefense)


async def warm_up(task: DefenseTask, ledger: RunMonitor) -> None:
    """Make the warm-up calls of a defense, unless nothing is left to measure.

    They are made as the measured calls will be: beside each other where those are, so that
    as many connections are open when measuring begins.
    """
    wanted, stored = ledger.plan.timing.warmup, ledger.writer.stored
    total = ledger.writer.sample_count
    if not wanted or all(
        stored.count(desk.lane) >= total or ledger.is_done(desk) for desk in task.desks
    ):
        return
    lane, plan = _free_lane(task.name, ledger), ledger.plan
    every = (
        pair
        for chunk in stored.pending(None)
        for pair in zip(chunk.positions, chunk.prompts, strict=True)
    )
    samples = islice(every, wanted)
    width, ask = plan.in_flight(task.name), asking(task.defense)
    if isinstance(task.defense, InlineDefense):
        width, ask = 1, _at_once(task.defense, ledger)
    await supervise(
        [_warm_each(ask, samples, lane=lane, ledger=ledger) for _ in range(min(width, wanted))],
        ledger,
    )


def _at_once(defense: InlineDefense, ledger: RunMonitor) -> Callable[[Prompt], Awaitable[Decision]]:
    decide = skipping(defense.decide_now, defense.view)

    async def ask(prompt: Prompt) -> Decision:
        decisions, _ = decide_unless_abandoned(decide, [prompt], ledger.stop)
        if not decisions:
            await asyncio.Event().wait()  # abandoned: whoever supervises us will cancel us
        return decisions[0]

    return ask


async def _warm_each(
    ask: Callable[[Prompt], Awaitable[Decision]],
    samples: Iterator[tuple[int, Prompt]],
    *,
    lane: RecordBatch,
    ledger: RunMonitor,
) -> None:
    flags = FLAG_COLD
    for position, prompt in samples:
        if not ledger.may_go_on():
            return
        ledger.calls += 1
        start = perf_counter_ns()
        decision = as_decision(await attempt(ask, prompt))
        took = perf_counter_ns() - start
        lane.add_decision(position, decision, latency_ns=took, flags=flags)
        ledger.added += 1
        if decision.evidence is not None:
            ledger.spend(decision.evidence)
        flags = 0


def _free_lane(name: str, ledger: RunMonitor) -> RecordBatch:
    # Each process warms up anew; its calls get a repeat of their own.
    lanes: Iterator[RecordBatch] = (
        ledger.writer.lane(name, Stage.WARMUP, repeat=repeat) for repeat in range(1 << 31)
    )
    return next(lane for lane in lanes if not ledger.writer.stored.count(lane))
