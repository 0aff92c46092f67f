"""Calls in batches, for defenses that gain from them: by count, by tokens, by like length."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.core.errors import BudgetReached
from guardmark.core.manifest import LatencyMode
from guardmark.core.protocols import BatchLimits
from guardmark.engine.calls import decide_batch
from guardmark.engine.run_monitor import Halt
from guardmark.engine.supervision import supervise
from guardmark.store.schema import FLAG_AMORTISED, FLAG_COLD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.core.outcome import Decision
    from guardmark.core.protocols import Guard
    from guardmark.engine.asking import AskBatch
    from guardmark.engine.execution.executor import DefenseWork
    from guardmark.engine.plan import Plan
    from guardmark.engine.recorder import PendingSample
    from guardmark.engine.run_monitor import RunMonitor

_WINDOW: Final = 16  # batches that are sorted by length together
_ALONE: Final = BatchLimits(max_count=1)
_CHARS_PER_TOKEN: Final = 3.0  # on the safe side for English; a model's own limit is its own affair


def form(samples: Sequence[PendingSample], guard: Guard) -> Iterator[list[PendingSample]]:
    """Cut samples into batches of like length."""
    limits, view = limits_of(guard), guard.capabilities.view
    shown = (len(sample.prompt.shown(view) or "") for sample in samples)
    sized = [(1 + int(length / _CHARS_PER_TOKEN), at) for at, length in enumerate(shown)]
    batch: list[PendingSample] = []
    for size, at in sorted(sized):
        # Sorted: the newest is the longest, so it sets the padded width.
        is_wide = limits.max_tokens is not None and size * (len(batch) + 1) > limits.max_tokens
        if batch and (is_wide or len(batch) >= limits.max_count):
            yield batch
            batch = []
        batch.append(samples[at])
    if batch:
        yield batch


def batches_of(feed: Iterator[PendingSample], guard: Guard) -> Iterator[list[PendingSample]]:
    """Cut a feed into batches, window by window, so that memory stays flat."""
    while window := list(islice(feed, _WINDOW * max(1, limits_of(guard).max_count))):
        yield from form(window, guard)


def limits_of(guard: Guard) -> BatchLimits:
    """Return how large a batch of a guard may be, as it is now."""
    return guard.capabilities.batch or _ALONE


def takes_batches(guard: Guard, plan: Plan) -> bool:
    """Tell whether a guard is asked in batches.

    Where single calls are timed, every guard is asked one by one.
    """
    is_loaded = plan.timing.mode is LatencyMode.LOADED
    return is_loaded and guard.capabilities.batch is not None


class BatchExecutor:
    """Asks a guard about batches of samples of like length."""

    runs_alone: Final = False

    def __init__(
        self, guard: Guard, *, ask: AskBatch | None = None, count: int | None = None
    ) -> None:
        self._guard, self._count = guard, count
        self._ask = ask or partial(decide_batch, guard)

    async def execute(self, work: DefenseWork) -> None:
        """Ask batch by batch, one at a time unless the plan says more."""
        batches, plan = batches_of(work.samples(), self._guard), work.monitor.plan
        at_once = range(self._count or plan.batches_in_flight(work.name))
        is_cold = not plan.timing.warmup
        asking = (self._ask_on(batches, work.monitor, is_cold=is_cold) for _ in at_once)
        await supervise(asking, work.monitor.tick)

    async def _ask_on(
        self, batches: Iterator[list[PendingSample]], monitor: RunMonitor, *, is_cold: bool
    ) -> None:
        """Pull batches and ask about them, one after the other: the work of one worker."""
        for batch in batches:
            room = affordable(batch, monitor)
            if not room:
                return
            try:
                await ask_batch(self._ask, batch[:room], monitor=monitor, is_cold=is_cold)
            except BudgetReached as reached:
                monitor.end(Halt.BUDGET, str(reached))
                return
            is_cold = False


class BatchQueue:
    """Where single samples wait for company, so that a guard is asked about batches of them."""

    def __init__(self, guard: Guard, monitor: RunMonitor) -> None:
        self._guard = guard
        self._monitor = monitor
        self._waiting: asyncio.Queue[_Waiting | None] = asyncio.Queue()
        self.servers = monitor.plan.batches_in_flight(guard.name)
        self.most_waiting = limits_of(guard).max_count * (self.servers + 1)

    async def ask(self, sample: PendingSample) -> Recorded | None:
        """Return what was decided; None where the run ends before the sample's turn."""
        answered: asyncio.Future[Recorded | None] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait(_Waiting(sample, answered))
        return await answered

    async def serve(self) -> None:
        """Ask batch after batch, until the queue is closed: one of `servers` at once."""
        limits, ask = limits_of(self._guard), partial(decide_batch, self._guard)
        is_open = True
        while is_open:
            waiting, is_open = await _gather(self._waiting, limits)
            answers = {each.sample.question().row: each.answered for each in waiting}
            for batch in form([each.sample for each in waiting], self._guard):
                decided = await self._ask(ask, batch)
                for sample, recorded in zip(batch, decided, strict=False):
                    _answer(answers.pop(sample.question().row), recorded)
            for unanswered in answers.values():
                _answer(unanswered, None)

    async def _ask(self, ask: AskBatch, batch: Sequence[PendingSample]) -> list[Recorded]:
        """Ask about as much of a batch as may be paid for."""
        room = affordable(batch, self._monitor)
        if not room:
            return []
        try:
            return await ask_batch(ask, batch[:room], monitor=self._monitor)
        except BudgetReached as reached:
            self._monitor.end(Halt.BUDGET, str(reached))
            return []

    def close(self) -> None:
        """End all that serve, after what waits."""
        for _ in range(self.servers):
            self._waiting.put_nowait(None)


class Recorded(NamedTuple):
    """A decision, and the code under which its outcome was stored."""

    decision: Decision
    code: int


class _Waiting(NamedTuple):
    """A sample that waits, and who waits for its answer."""

    sample: PendingSample
    answered: asyncio.Future[Recorded | None]


def _answer(waiting: asyncio.Future[Recorded | None], recorded: Recorded | None) -> None:
    """Hand a decision over, unless whoever waited for it gave up."""
    if not waiting.done():
        waiting.set_result(recorded)


async def _gather(
    queue: asyncio.Queue[_Waiting | None], limits: BatchLimits
) -> tuple[list[_Waiting], bool]:
    """Take what waits in a queue, and wait a little for more; say whether the queue is open."""
    first = await queue.get()
    if first is None:
        return [], False
    clock = asyncio.get_running_loop().time
    taken, deadline = [first], clock() + limits.max_wait_s
    while len(taken) < limits.max_count:
        left = deadline - clock()
        try:
            more = queue.get_nowait() if left <= 0 else await asyncio.wait_for(queue.get(), left)
        except (asyncio.QueueEmpty, TimeoutError):
            break
        if more is None:
            return taken, False
        taken.append(more)
    return taken, True


def affordable(batch: Sequence[PendingSample], monitor: RunMonitor) -> int:
    """Return about how many samples of a batch calls and money are left."""
    room = monitor.room(len(batch))
    price = monitor.spending.prices.get(batch[0].recorder.part)
    if price is None or not room:
        return room
    return monitor.affordable([price.of_call(sample.prompt) for sample in batch[:room]])


async def ask_batch(
    ask: AskBatch,
    samples: Sequence[PendingSample],
    *,
    monitor: RunMonitor,
    is_cold: bool = False,
) -> list[Recorded]:
    """Ask about one batch, and store its decisions, each with its share of the time."""
    questions = [sample.question() for sample in samples]
    decisions, share = await monitor.asker.ask_together(ask, questions)
    flags = FLAG_COLD if is_cold else 0
    recorded = []
    for sample, decision in zip(samples, decisions, strict=True):
        is_shared = decision.latency_ns is None and len(samples) > 1
        marks = flags | FLAG_AMORTISED if is_shared else flags
        code = sample.recorder.record_decision(sample, decision, latency_ns=share, flags=marks)
        recorded.append(Recorded(decision, code))
    monitor.store()
    return recorded
