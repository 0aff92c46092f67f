"""Defenses that answer at once, asked by threads or processes, in chunks."""

from __future__ import annotations

import asyncio
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import cpu_count
from threading import Event
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import ConfigError, UntrustworthyRun
from guardmark.engine.calls import decide_all, skipping
from guardmark.engine.execution import worker
from guardmark.engine.plan import Workers
from guardmark.store.codes import FLAG_COLD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor
    from multiprocessing.process import BaseProcess

    from guardmark.core.protocols import InlineDefense
    from guardmark.core.sample import Prompt
    from guardmark.engine.calls import Answers
    from guardmark.engine.desk import Recorder
    from guardmark.engine.ledger import RunMonitor
    from guardmark.engine.plan import Plan
    from guardmark.store.samples import Chunk

_CHUNK: Final = 64
_SLICE_NS: Final = 30_000_000
_TICK_S: Final = 0.2
_PATIENCE_S: Final = 0.4  # for the call that every worker is in when the run is to end


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """Workers, how they are asked, and how they are told to end."""

    executor: Executor
    ask: Callable[[Sequence[Prompt]], asyncio.Future[Answers]]
    stop: Callable[[], None]
    kill: Callable[[], None]


async def run_pooled(
    defense: InlineDefense,
    desk: Recorder,
    *,
    ledger: RunMonitor,
    chunks: Iterable[Chunk],
    is_cold: bool,
) -> None:
    """Ask a defense about samples in threads or processes, timed inside the worker.

    A run that must end waits a moment for the call each worker is in; what a worker has
    finished by then is stored.
    """
    pool, hand = _pool(defense, ledger.plan), _Hand(chunks, ledger)
    waiting: dict[asyncio.Future[Answers], Chunk] = {}
    limit = 2 * _count(ledger.plan)
    try:
        while True:
            while len(waiting) < limit and not ledger.is_done(desk) and (part := hand.deal()):
                waiting[pool.ask(part.prompts)] = part
            if not waiting or ledger.halt is not None:
                break
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=_TICK_S)
            is_cold = _take(waiting, desk, hand=hand, is_cold=is_cold)
            ledger.may_go_on()
        if waiting:
            pool.stop()
            await asyncio.wait(waiting, timeout=_PATIENCE_S)
            _take(waiting, desk, hand=hand, is_cold=is_cold)
    except BrokenExecutor as error:
        if not ledger.may_go_on():
            return  # whoever ended us ended the processes too
        raise UntrustworthyRun(
            f"A process that ran {defense.name} died (out of memory, or it could not start).\n"
            "Next: use fewer workers, or set workers to inline; what is stored is kept."
        ) from error
    finally:
        for future in waiting:
            if not future.cancel():
                future.exception()  # looked at, so that asyncio does not complain of it
        pool.stop()
        pool.executor.shutdown(wait=False, cancel_futures=True)
        if waiting:
            pool.kill()


class _Hand:
    """Deals samples out, as far as the budget goes: few at first, more to who is quick.

    A worker hands back what it was dealt all at once; what it has finished when a call of the
    same chunk hangs is lost, so slow defenses get one sample at a time.
    """

    def __init__(self, chunks: Iterable[Chunk], ledger: RunMonitor) -> None:
        self.ledger = ledger
        self._chunks = iter(chunks)
        self._chunk: Chunk | None = None
        self._size = 1
        limit = ledger.plan.budget.calls
        # Calls that were dealt out are spent, though nobody has answered yet.
        self._left = None if limit is None else limit - ledger.calls

    def deal(self) -> Chunk | None:
        """Return the next samples, or None when there are none or no call may be made."""
        if not self.ledger.may_go_on():
            return None
        if self._chunk is None or not self._chunk.positions:
            self._chunk = next(self._chunks, None)
        size = self._size if self._left is None else min(self._size, self._left)
        if self._chunk is None or size <= 0:
            return None
        dealt = self._chunk.part(0, size)
        self._chunk = self._chunk.part(size, len(self._chunk.positions))
        if self._left is not None:
            self._left -= len(dealt.positions)
        return dealt

    def learn(self, latencies: Sequence[int]) -> None:
        """Deal more or less from now on."""
        took = sum(latencies)
        if took < _SLICE_NS // 2:
            self._size = min(2 * self._size, _CHUNK)
        else:
            self._size = max(1, len(latencies) * _SLICE_NS // took)


def _take(
    waiting: dict[asyncio.Future[Answers], Chunk], desk: Recorder, *, hand: _Hand, is_cold: bool
) -> bool:
    """Store what has come; return whether the first answer is still awaited."""
    ledger = hand.ledger
    for future in [future for future in waiting if future.done()]:
        part, (decisions, latencies) = waiting.pop(future), future.result()
        part = part.part(0, len(decisions))
        flags = FLAG_COLD if is_cold else 0
        ledger.took_all(desk, part, decisions=decisions, latencies=latencies, flags=flags)
        ledger.busy_ns += sum(latencies)
        hand.learn(latencies)
        is_cold = is_cold and not decisions
    ledger.store()
    return is_cold


def _count(plan: Plan) -> int:
    return plan.worker_count or cpu_count() or 1


def _pool(defense: InlineDefense, plan: Plan) -> _Pool:
    return _threads(defense, plan) if plan.workers is Workers.THREADS else _processes(defense, plan)


def _threads(defense: InlineDefense, plan: Plan) -> _Pool:
    over, executor = Event(), ThreadPoolExecutor(_count(plan))
    decide = skipping(defense.decide_now, defense.view)
    ask = partial(decide_all, decide, is_over=over.is_set)
    return _Pool(
        executor=executor,
        ask=lambda prompts: _loop().run_in_executor(executor, ask, prompts),
        stop=over.set,
        kill=lambda: None,  # a thread cannot be ended from outside
    )


def _processes(defense: InlineDefense, plan: Plan) -> _Pool:
    factory = plan.factories.get(defense.name)
    if factory is None:
        raise ConfigError(
            f"{defense.name} cannot run in processes: it cannot be built there.\n"
            "Next: set workers to threads or inline."
        )
    # Loaded on use: five hundredths of a second of a run that asks in line.
    import pickle
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    context, others = get_context("spawn"), set(active_children())
    with _signals_for_us_alone():  # Python starts a process that looks after semaphores
        over = context.Event()
        executor = ProcessPoolExecutor(
            _count(plan), mp_context=context, initializer=worker.build, initargs=(factory, over)
        )

    async def ask(prompts: Sequence[Prompt]) -> Answers:
        with _signals_for_us_alone():  # a new process may be started for it
            future = _loop().run_in_executor(executor, worker.ask, prompts)
        answers: Answers = pickle.loads(await future)  # noqa: S301 - from a process of our own
        return answers

    return _Pool(
        executor=executor,
        ask=lambda prompts: asyncio.ensure_future(ask(prompts)),
        stop=over.set,
        kill=lambda: _end(child for child in active_children() if child not in others),
    )


def _end(children: Iterable[BaseProcess]) -> None:
    for child in children:
        child.terminate()


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@contextmanager
def _signals_for_us_alone() -> Iterator[None]:
    """Hold Ctrl-C and hang-ups back while a process is started: it inherits being deaf to them.

    A terminal sends them to all processes; those that have not begun yet would die of it with
    a traceback, and the run would take that for a fault of theirs.
    """
    import signal

    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
