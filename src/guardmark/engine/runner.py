"""Many samples through all parts of a plan, each answer stored exactly once."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from enum import StrEnum
from functools import partial
from os import cpu_count
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import BudgetReached, ConfigError, StorageError, UntrustworthyRun
from guardmark.core.manifest import LatencyMode
from guardmark.core.record import Stage
from guardmark.core.sample import View
from guardmark.core.values import dataclass
from guardmark.defenses.answers import NEXT_CONFIDENCE
from guardmark.engine import plan as planning
from guardmark.engine.execution.actors import ActorDefense, RayExecutor
from guardmark.engine.execution.batches import BatchExecutor, takes_batches
from guardmark.engine.execution.executor import DefenseWork
from guardmark.engine.execution.inline import InlineExecutor
from guardmark.engine.execution.service import ServiceExecutor
from guardmark.engine.execution.warm_up import warm_up
from guardmark.engine.plan import Workers
from guardmark.engine.recorder import open_recorder
from guardmark.engine.run_monitor import Halt, Progress, RunMonitor
from guardmark.engine.supervision import StopSignal, supervise
from guardmark.store.loop_load import LoopLoad
from guardmark.store.reader import RunState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.core.protocols import Guard, StopRule
    from guardmark.engine.execution.executor import Executor
    from guardmark.engine.plan import Plan
    from guardmark.store.records import RecordWriter


_GC_EVERY: Final = 20_000


class Ending(StrEnum):
    """How a run ended."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    EARLY = "early"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What an invocation did.

    Attributes:
        ending: How it ended.
        reason: Why it ended before its plan was done, or nothing.
        planned: Records that the whole run will have.
        stored: Records that it has.
        added: Records that this invocation added.
        calls: Calls and requests of this invocation.
        tokens: Tokens that services reported.
        cost: Money, as far as prices are known.
        elapsed_s: Seconds that it took.
        mean_in_flight: How many calls were under way at once, on average.
        loop_lag_ms: How late the event loop came at most.
        notes: What deserves a word when it is over.
    """

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
    notes: tuple[str, ...] = ()


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
    this thread or its local workers, one after the other; services are asked side by side.
    """
    planning.check(plan)
    counters = progress or Progress()
    monitor = RunMonitor(
        plan, writer, progress=counters, stop=stop or StopSignal(), stop_rule=stop_rule
    )
    threshold = gc.get_threshold()
    gc.freeze()  # what is loaded stays: looking at it again and again is wasted
    gc.set_threshold(_GC_EVERY, *threshold[1:])
    try:
        await _carry_out(monitor, counters)
        monitor.store(is_forced=True)
        monitor.note_early_end()
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
    writer.finish(run_state(monitor))
    raise_for(monitor)
    return summary_of(monitor, counters)


_ENDINGS: Mapping[Halt | None, Ending] = {
    Halt.INTERRUPTED: Ending.INTERRUPTED,
    Halt.EARLY: Ending.EARLY,
}
_STATES: dict[Halt | None, RunState] = {
    **dict.fromkeys((Halt.INTERRUPTED, Halt.BUDGET, Halt.TIME), RunState.INTERRUPTED),
    **dict.fromkeys((Halt.ERRORS, Halt.POLICY, Halt.CONFIDENCE), RunState.FAILED),
}


def run_state(monitor: RunMonitor) -> RunState:
    """Return how a run stands that came to the end of an invocation."""
    return _STATES.get(monitor.halt, RunState.COMPLETE)


def raise_for(monitor: RunMonitor) -> None:
    """Raise the error of a run that was halted by a budget, by time, by errors or by a policy."""
    if monitor.halt in {Halt.BUDGET, Halt.TIME}:
        next_step = "give the same command again to go on; its budget begins anew."
        if monitor.halt is Halt.BUDGET and not monitor.progress.done:
            next_step = (
                "raise the limit: looking at each service and warming up (latency.warmup) took all "
                "of it."
            )
        raise BudgetReached(
            f"The budget is reached: {monitor.reason}. {monitor.added} records were added.\n"
            f"Next: {next_step}"
        )
    if monitor.halt is Halt.CONFIDENCE:
        raise UntrustworthyRun(f"Stopped: {monitor.reason}.\n{NEXT_CONFIDENCE}")
    if monitor.halt in {Halt.ERRORS, Halt.POLICY}:
        raise UntrustworthyRun(
            f"Stopped: {monitor.reason}.\n"
            "Next: guardmark show RUN --errors tells what failed; then go on, or start again"
            " with --fresh."
        )


def summary_of(monitor: RunMonitor, progress: Progress) -> RunSummary:
    """Say what an invocation did."""
    elapsed = monitor.elapsed_s
    return RunSummary(
        ending=_ENDINGS.get(monitor.halt, Ending.COMPLETE),
        reason=monitor.reason,
        planned=progress.planned,
        stored=progress.done,
        added=monitor.added,
        calls=monitor.calls,
        tokens=monitor.tokens,
        cost=monitor.cost,
        elapsed_s=elapsed,
        mean_in_flight=monitor.asker.busy_ns / 1e9 / elapsed if elapsed else 0.0,
        loop_lag_ms=monitor.lag_ns / 1e6,
        notes=tuple(monitor.notes),
    )


async def _carry_out(monitor: RunMonitor, progress: Progress) -> None:
    plan = monitor.plan
    elsewhere = frozenset[str]() if plan.pipeline is None else plan.pipeline.only_elsewhere
    every = [_work(guard, monitor) for guard in plan.guards if guard.name not in elsewhere]
    pipeline = None
    if plan.pipeline is not None:
        from guardmark.engine.pipeline import PipelineRunner

        pipeline = PipelineRunner(plan.pipeline, monitor, guards=every)
    monitor.writer.plan(progress.planned)
    asked_by_pipeline = set() if pipeline is None else pipeline.asks
    asked_directly = [(work, choose_executor(work.guard, plan)) for work in every]
    asked_directly = [
        (work, executor) for work, executor in asked_directly if work.name not in asked_by_pipeline
    ]
    exclusive = {work.name for work, executor in asked_directly if executor.runs_alone}
    for work, executor in asked_directly:
        if executor.runs_alone:
            await warm_up(work)
            await executor.execute(work)
    for work in every:
        if work.name not in exclusive:
            await warm_up(work)
    concurrent = [(work, executor) for work, executor in asked_directly if not executor.runs_alone]
    # The pipeline goes through repeat after repeat: what stands for all of them is asked before.
    first = [executor.execute(work) for work, executor in concurrent if work.is_asked_once]
    waiting = [executor.execute(work) for work, executor in concurrent if not work.is_asked_once]
    if plan.timing.mode is LatencyMode.ISOLATED:
        for each in first + waiting:
            await supervise([each], monitor.tick)
        first, waiting = [], []
    began_ns, busy_ns = perf_counter_ns(), thread_time_ns()
    await supervise(first, monitor.tick)
    if pipeline is not None:
        monitor.store(is_forced=True)  # the pipeline reads the decisions of the other arms
        waiting += pipeline.work()
    await supervise(waiting, monitor.tick)
    if pipeline is not None or any(isinstance(each, ServiceExecutor) for _, each in concurrent):
        # What only waits for services leaves its thread idle; one that is never idle is late
        # to read the answers, and their times are its own.
        load = LoopLoad(thread_time_ns() - busy_ns, perf_counter_ns() - began_ns)
        monitor.writer.note_load(load)


def _work(guard: Guard, monitor: RunMonitor) -> DefenseWork:
    recorders = tuple(
        open_recorder(monitor, guard.name, Stage.DEFENSE, repeat=repeat)
        for repeat in range(monitor.plan.repeats)
    )
    # Answers of the model differ by repeat, so a guard that reads them is asked in each. A run that
    # was begun before answers were shared goes on as it began.
    reads_answers = guard.capabilities.view is View.RESPONSE
    keeps_session = guard.capabilities.keeps_session
    is_once = guard.name in monitor.plan.asked_once and not reads_answers and not keeps_session
    if is_once and len({monitor.writer.stored.count(each.batch) for each in recorders}) == 1:
        later = tuple(recorder.batch for recorder in recorders[1:])
        recorders = (replace(recorders[0], later=later), *recorders[1:])
    return DefenseWork(guard, recorders, monitor)


def choose_executor(guard: Guard, plan: Plan) -> Executor:
    """Return what makes the calls of a guard, by what it can and by the plan."""
    if guard.capabilities.keeps_session:
        from guardmark.engine.execution.sessions import SessionExecutor

        return SessionExecutor(guard)
    if isinstance(guard, ActorDefense):
        return RayExecutor(guard)
    if guard.capabilities.is_inline and plan.timing.mode is not LatencyMode.OPEN:
        return _executor_here(guard, plan)
    return BatchExecutor(guard) if takes_batches(guard, plan) else ServiceExecutor(guard)


def _executor_here(guard: Guard, plan: Plan) -> Executor:
    """Return what calls a guard that answers at once: in line, in threads or in processes."""
    is_single = plan.timing.mode is LatencyMode.ISOLATED
    # What answers by looking samples up knows them in this process only.
    if is_single or plan.workers is Workers.INLINE or guard.capabilities.needs_samples:
        return InlineExecutor(guard)
    # Loaded where they are chosen: most runs need neither threads nor processes.
    from guardmark.engine.execution.pool import PoolExecutor, Processes, Threads

    count = plan.worker_count or cpu_count() or 1
    if plan.workers is Workers.THREADS:
        # What keeps every other thread from running gains nothing there, and cannot be ended.
        if guard.capabilities.holds_interpreter:
            return InlineExecutor(guard)
        return PoolExecutor(partial(Threads, guard, count))
    factory = plan.factories.get(guard.name)
    if factory is None:
        raise ConfigError(
            f"{guard.name} cannot run in processes: it cannot be built there.\n"
            "Next: set workers to threads or inline."
        )
    return PoolExecutor(partial(Processes, factory, count))
