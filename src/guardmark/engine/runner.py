"""Many samples through all parts of a plan, each answer stored exactly once."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import BudgetReached, StorageError, UntrustworthyRun
from guardmark.core.manifest import LatencyMode
from guardmark.core.protocols import BatchDefense, InlineDefense, SampleBound
from guardmark.core.record import Stage
from guardmark.engine import plan as planning
from guardmark.engine.batches import ask_batches, batches_of
from guardmark.engine.execution.inline import AT_ONCE, run_inline
from guardmark.engine.execution.pool import run_pooled
from guardmark.engine.execution.service import feed_of, workers_of
from guardmark.engine.ledger import Halt, RunMonitor
from guardmark.engine.pipeline import PipelineRunner
from guardmark.engine.plan import Workers
from guardmark.engine.progress import Progress
from guardmark.engine.stop import StopSignal
from guardmark.engine.tasks import DefenseTask, takes_batches, warm_up
from guardmark.engine.watch import supervise
from guardmark.store.records import RunState

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from guardmark.core.protocols import StopRule
    from guardmark.engine.plan import AnyDefense, Plan
    from guardmark.store.records import RecordWriter


_GC_EVERY: Final = 20_000


class Ending(StrEnum):
    """How a run ended."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    EARLY = "early"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What an invocation did."""

    ending: Ending
    reason: str
    planned: int
    stored: int
    added: int
    calls: int
    tokens: int
    cost: float
    elapsed_s: float
    mean_in_flight: float
    loop_lag_ms: float


async def run(
    plan: Plan,
    writer: RecordWriter,
    *,
    progress: Progress | None = None,
    stop: StopSignal | None = None,
    stop_rule: StopRule | None = None,
) -> RunSummary:
    """Do what is planned and not stored yet.

    Every combination of defense, sample, repeat and stage is stored exactly once, however
    often a run is interrupted and continued. Defenses that answer at once are called in
    line, one after the other; those behind a wire work beside each other.
    """
    planning.check(plan)
    counters = progress or Progress()
    ledger = RunMonitor(
        plan, writer, progress=counters, stop=stop or StopSignal(), stop_rule=stop_rule
    )
    threshold = gc.get_threshold()
    gc.freeze()  # what is loaded stays: looking at it again and again is wasted
    gc.set_threshold(_GC_EVERY, *threshold[1:])
    try:
        await _carry_out(ledger, counters)
        ledger.store(is_forced=True)
        ledger.note_early_end()
    except StorageError:
        raise
    except asyncio.CancelledError:
        writer.finish(RunState.INTERRUPTED)
        raise
    except BaseException:
        writer.finish(RunState.FAILED)
        raise
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()
    writer.plan(counters.planned)
    writer.finish(_STATES.get(ledger.halt, RunState.COMPLETE) if ledger.halt else RunState.COMPLETE)
    raise_for(ledger)
    return summary_of(ledger, counters)


_STATES = {
    Halt.INTERRUPTED: RunState.INTERRUPTED,
    Halt.BUDGET: RunState.INTERRUPTED,
    Halt.TIME: RunState.INTERRUPTED,
    Halt.ERRORS: RunState.FAILED,
    Halt.POLICY: RunState.FAILED,
}


def raise_for(ledger: RunMonitor) -> None:
    """Raise the error that stands for an early end, if there is one."""
    if ledger.halt in {Halt.BUDGET, Halt.TIME}:
        raise BudgetReached(
            f"The budget is reached: {ledger.reason}. {ledger.added} records were added.\n"
            "Next: give the same command again to go on; its budget begins anew."
        )
    if ledger.halt in {Halt.ERRORS, Halt.POLICY}:
        raise UntrustworthyRun(
            f"Stopped: {ledger.reason}.\n"
            "Next: guardmark show RUN --errors tells what failed; then go on, or start again"
            " with --fresh."
        )


def summary_of(ledger: RunMonitor, progress: Progress) -> RunSummary:
    """Say what an invocation did."""
    endings = {Halt.INTERRUPTED: Ending.INTERRUPTED, Halt.EARLY: Ending.EARLY}
    elapsed = ledger.elapsed_s
    return RunSummary(
        ending=endings.get(ledger.halt, Ending.COMPLETE) if ledger.halt else Ending.COMPLETE,
        reason=ledger.reason,
        planned=progress.planned,
        stored=progress.done,
        added=ledger.added,
        calls=ledger.calls,
        tokens=ledger.tokens,
        cost=ledger.cost,
        elapsed_s=elapsed,
        mean_in_flight=ledger.busy_ns / 1e9 / elapsed if elapsed else 0.0,
        loop_lag_ms=ledger.lag_ns / 1e6,
    )


async def _carry_out(ledger: RunMonitor, progress: Progress) -> None:
    plan = ledger.plan
    tasks = [_task(defense, ledger) for defense in plan.defenses]
    flow = None if plan.pipeline is None else PipelineRunner(plan.pipeline, ledger, arms=tasks)
    ledger.writer.begin(progress.planned)
    inside = set() if flow is None else flow.asks
    for task in tasks:
        if task.name not in inside and _is_inline(task, plan):
            await _run_inline(task, ledger)
    waiting = [task for task in tasks if task.name not in inside and not _is_inline(task, plan)]
    for task in tasks:
        if task.name in inside or task in waiting:
            await warm_up(task, ledger)
    if plan.timing.mode is LatencyMode.ISOLATED:
        for task in waiting:
            await supervise(_workers(task, ledger), ledger)
        waiting = []
    work = [worker for task in waiting for worker in _workers(task, ledger)]
    if flow is not None:
        ledger.store(is_forced=True)  # the flow reads the decisions of the other arms
        work += flow.work()
    await supervise(work, ledger)


def _task(defense: AnyDefense, ledger: RunMonitor) -> DefenseTask:
    desks = tuple(
        ledger.desk(defense.name, Stage.DEFENSE, repeat=repeat)
        for repeat in range(ledger.plan.repeats)
    )
    return DefenseTask(defense=defense, desks=desks)


def _is_inline(task: DefenseTask, plan: Plan) -> bool:
    if plan.timing.mode is LatencyMode.OPEN or not isinstance(task.defense, InlineDefense):
        return False
    is_single = plan.timing.mode is LatencyMode.ISOLATED
    return is_single or not isinstance(task.defense, BatchDefense)


async def _run_inline(task: DefenseTask, ledger: RunMonitor) -> None:
    defense = task.defense
    if not isinstance(defense, InlineDefense):
        return
    await warm_up(task, ledger)
    is_pooled = ledger.plan.workers is not Workers.INLINE
    is_pooled = is_pooled and ledger.plan.timing.mode is not LatencyMode.ISOLATED
    # What answers by looking samples up knows them in this process only, and gains nothing.
    is_pooled = is_pooled and not isinstance(defense, SampleBound)
    is_cold = ledger.plan.timing.warmup == 0
    ask = run_pooled if is_pooled else run_inline
    for desk in task.desks:
        stored = ledger.writer.stored
        chunks = stored.pending(desk.lane, size=AT_ONCE, order=ledger.order)
        await ask(defense, desk, ledger=ledger, chunks=chunks, is_cold=is_cold)
        is_cold = False


def _workers(task: DefenseTask, ledger: RunMonitor) -> list[Coroutine[Any, Any, None]]:
    plan, defense = ledger.plan, task.defense
    feed = feed_of(task.desks, ledger)
    is_cold = plan.timing.warmup == 0
    if not takes_batches(defense, plan):
        return workers_of(defense, feed, ledger=ledger)
    batches, count = batches_of(feed, defense), plan.concurrency_of.get(defense.name, 1)
    return [ask_batches(defense, batches, ledger=ledger, is_cold=is_cold) for _ in range(count)]
