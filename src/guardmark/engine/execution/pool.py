"""Calls in threads or processes, in chunks: for defenses that answer at once."""

from __future__ import annotations

import asyncio
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import UntrustworthyRun
from guardmark.engine.calls import Answers, decide_all, skipping
from guardmark.engine.execution import worker
from guardmark.engine.execution.executor import DealtSamples
from guardmark.engine.execution.inline import SLICE_NS, next_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor as ConcurrentExecutor
    from multiprocessing.process import BaseProcess

    from guardmark.core.protocols import InlineDefense
    from guardmark.core.sample import Prompt
    from guardmark.engine.execution.executor import DefenseWork

_CHUNK: Final = 64
_TICK_S: Final = 0.2
_PATIENCE_S: Final = 0.4  # for the call that every worker is in when the run is to end


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """Workers, how they are asked, and how they are told to end."""

    executor: ConcurrentExecutor
    ask: Callable[[Sequence[Prompt]], asyncio.Future[Answers]]
    stop: Callable[[], None]
    kill: Callable[[], None]


class ThreadExecutor:
    """Calls a defense in threads of this process."""

    runs_alone: Final = True

    def __init__(self, defense: InlineDefense, count: int) -> None:
        self._defense = defense
        self._count = count

    async def execute(self, work: DefenseWork) -> None:
        """Ask chunk by chunk, as many threads at once as there are."""
        await _ask_pool(_threads(self._defense, self._count), work, limit=2 * self._count)


class ProcessExecutor:
    """Calls a defense in processes, each of which builds its own."""

    runs_alone: Final = True

    def __init__(self, factory: Callable[[], InlineDefense], count: int) -> None:
        self._factory = factory
        self._count = count

    async def execute(self, work: DefenseWork) -> None:
        """Ask chunk by chunk, as many processes at once as there are."""
        await _ask_pool(_processes(self._factory, self._count), work, limit=2 * self._count)


async def _ask_pool(pool: _Pool, work: DefenseWork, *, limit: int) -> None:
    """Keep the workers of a pool busy, and end them with the run.

    A worker hands back what it was dealt all at once; what it has finished when a call of the
    same chunk hangs is lost, so slow defenses get one sample at a time. A run that must end
    waits a moment for the call each worker is in; what a worker has finished by then is stored.
    """
    waiting, monitor, size = dict[asyncio.Future[Answers], DealtSamples](), work.monitor, 1
    try:
        while True:
            while len(waiting) < limit and (dealt := work.deal(size)) is not None:
                waiting[pool.ask(dealt.chunk.prompts)] = dealt
            if not waiting or monitor.halt is not None:
                break
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=_TICK_S)
            size = _record_finished(waiting, work, size)
            monitor.may_go_on()
        if waiting:
            pool.stop()
            await asyncio.wait(waiting, timeout=_PATIENCE_S)
            _record_finished(waiting, work, size)
    except BrokenExecutor as error:
        if not monitor.may_go_on():
            return  # whoever ended us ended the processes too
        raise UntrustworthyRun(
            f"A process that ran {work.name} died (out of memory, or it could not start).\n"
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


def _record_finished(
    waiting: dict[asyncio.Future[Answers], DealtSamples], work: DefenseWork, size: int
) -> int:
    """Record what has come; return how many samples to deal from now on."""
    for future in [future for future in waiting if future.done()]:
        dealt, (decisions, latencies) = waiting.pop(future), future.result()
        work.record(dealt, decisions, latencies)
        took = sum(latencies)
        work.monitor.busy_ns += took
        if took >= SLICE_NS // 2:
            size = len(latencies)  # of those that took so long, not of those dealt since
        size = next_size(size, took, most=_CHUNK)
    work.monitor.store()
    return size


def _threads(defense: InlineDefense, count: int) -> _Pool:
    over, executor = Event(), ThreadPoolExecutor(count)
    decide = skipping(defense.decide_now, defense.view)
    ask = partial(decide_all, decide, is_over=over.is_set)
    return _Pool(
        executor=executor,
        ask=lambda prompts: _loop().run_in_executor(executor, ask, prompts),
        stop=over.set,
        kill=lambda: None,  # a thread cannot be ended from outside
    )


def _processes(factory: Callable[[], InlineDefense], count: int) -> _Pool:
    # Loaded on use: five hundredths of a second of a run that asks in line.
    import pickle
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    context, others = get_context("spawn"), set(active_children())
    with _signals_for_us_alone():  # Python starts a process that looks after semaphores
        over = context.Event()
        executor = ProcessPoolExecutor(
            count, mp_context=context, initializer=worker.build, initargs=(factory, over)
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
