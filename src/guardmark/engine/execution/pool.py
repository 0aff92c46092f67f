"""Calls in threads or in processes: for defenses that answer at once."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final

from guardmark.config.deadline import overrun_message
from guardmark.core.errors import UntrustworthyRun
from guardmark.core.outcome import ErrorKind
from guardmark.core.values import dataclass
from guardmark.defenses.calls.failure import Failure
from guardmark.engine.calls import Answers, decide_all, inline_decide
from guardmark.engine.execution import worker
from guardmark.engine.execution.executor import DealtSamples
from guardmark.engine.execution.inline import SLICE_NS, next_size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from concurrent.futures import Executor as ConcurrentExecutor
    from concurrent.futures import Future

    from guardmark.core.protocols import Guard
    from guardmark.core.sample import Prompt
    from guardmark.engine.execution.executor import DefenseWork
    from guardmark.engine.plan import BuiltPart

    Chunks = Collection[asyncio.Future[Answers]]

_CHUNK: Final = 64
_TICK_S: Final = 0.2
_LEFT: Final = 2  # where the note of a thread says that nobody waits for it
_MOST_STUCK: Final = 4  # threads that are left behind in calls
_PATIENCE_S: Final = 0.4  # for the call that every worker is in when the run is to end


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A chunk that a worker has."""

    dealt: DealtSamples
    slot: int


class PoolExecutor:
    """Calls a defense in threads of this process, or in processes, each of which builds its own."""

    runs_alone: Final = True

    def __init__(self, make: Callable[[], Threads | Processes]) -> None:
        self._make = make

    async def execute(self, work: DefenseWork) -> None:
        """Ask chunk by chunk, as many workers at once as there are."""
        pool, timeout_s = self._make(), work.guard.capabilities.timeout_s
        if timeout_s is not None:
            timeout_s += pool.grace_s
        await _PoolWork(pool, work, limit=2 * pool.count, timeout_s=timeout_s).ask_all()


class _PoolWork:
    """Keeps the workers of a pool busy, and ends them with the run.

    A worker hands back what it was dealt all at once; what it has finished when a call of the
    same chunk hangs is asked again, so slow defenses get one sample at a time. A run that must
    end waits a moment for the call each worker is in; what is finished by then is stored.
    """

    def __init__(
        self, pool: Threads | Processes, work: DefenseWork, *, limit: int, timeout_s: float | None
    ) -> None:
        self._pool = pool
        self._work = work
        self._timeout_s = timeout_s
        self._free = list(range(limit))
        self._waiting: dict[asyncio.Future[Answers], _Asked] = {}
        self._again: deque[DealtSamples] = deque()
        self._size = 1

    async def ask_all(self) -> None:
        """Ask about everything that is dealt."""
        waiting, monitor, pool = self._waiting, self._work.monitor, self._pool
        try:
            while True:
                self._deal()
                if not waiting or monitor.halt is not None:
                    break
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=_TICK_S)
                self._record_finished()
                self._give_up_late()
                monitor.may_go_on()
            if waiting:
                pool.stop()
                await asyncio.wait(waiting, timeout=_PATIENCE_S)
                self._record_finished()
        except BrokenExecutor as error:
            if not monitor.may_go_on():
                return  # whoever ended us ended the processes too
            raise UntrustworthyRun(
                f"A process that ran {self._work.name} died (out of memory, a crash, or "
                "it could not start); what is stored is kept.\nNext: use fewer workers; where its "
                "code crashes, give a function env, by which a crash is an error of one sample."
            ) from error
        finally:
            for future in waiting:
                if not future.cancel():
                    future.exception()  # looked at, so that asyncio does not complain of it
            pool.stop()
            pool.end(is_waiting=bool(waiting))

    def _deal(self) -> None:
        while self._free:
            dealt = self._again.popleft() if self._again else self._work.deal(self._size)
            if not dealt:
                return
            slot = self._free.pop()
            future = self._pool.ask(dealt.chunk.prompts, slot)
            self._waiting[future] = _Asked(dealt=dealt, slot=slot)

    def _record_finished(self) -> None:
        """Record what has come, and note how many samples to deal from now on."""
        for future in [future for future in self._waiting if future.done()]:
            decisions, latencies = future.result()
            asked = self._waiting.pop(future)
            self._free.append(asked.slot)
            self._work.record(asked.dealt, decisions, latencies)
            took = sum(latencies)
            self._work.monitor.asker.busy_ns += took
            if took >= SLICE_NS // 2:
                self._size = len(latencies)  # of those that took so long, not of those dealt since
            self._size = next_size(self._size, took, most=_CHUNK)
        self._work.monitor.store()

    def _give_up_late(self) -> None:
        """Record calls that take too long as errors, and ask again what is lost with them."""
        late: dict[asyncio.Future[Answers], tuple[int, int]] = {}
        unfinished = [future for future in self._waiting if not future.done()]
        for future in unfinished:
            index, began = self._pool.call_in(self._waiting[future].slot)
            took = monotonic() - began
            if self._timeout_s is not None and began and took > self._timeout_s:
                late[future] = (index, int(took * 1e9))
        if not late:
            return
        for future in self._pool.replace_workers(late, unfinished):
            future.cancel()
            asked = self._waiting.pop(future)
            self._free.append(asked.slot)
            if future in late:
                self._give_up(asked.dealt, *late[future])
            else:
                self._again.append(asked.dealt)

    def _give_up(self, dealt: DealtSamples, index: int, took_ns: int) -> None:
        chunk, recorder = dealt.chunk, dealt.recorder
        timeout_s = self._work.guard.capabilities.timeout_s or 0.0
        failure = Failure(ErrorKind.TIMEOUT, f"Overrun: {overrun_message(timeout_s)}")
        call = DealtSamples(recorder=recorder, chunk=chunk.part(index, index + 1))
        self._work.record(call, [failure.as_decision()], [took_ns])
        self._work.monitor.asker.busy_ns += took_ns
        for rest in (chunk.part(0, index), chunk.part(index + 1, len(chunk.positions))):
            if rest.positions:
                self._again.append(DealtSamples(recorder=recorder, chunk=rest))


class Threads:
    """Threads of this process; one that does not come back is left behind."""

    grace_s: Final = 0.0

    def __init__(self, guard: Guard, count: int) -> None:
        self._name, self.count = guard.name, count
        self._timeout_s = guard.capabilities.timeout_s
        self._decide = inline_decide(guard)
        self._over = Event()
        self._notes: dict[int, list[float]] = {}
        self._executor = ThreadPoolExecutor(count)
        self._submitted: dict[asyncio.Future[Answers], tuple[Future[Answers], list[float]]] = {}
        self._left_behind: list[Future[Answers]] = []

    def ask(self, prompts: Sequence[Prompt], slot: int) -> asyncio.Future[Answers]:
        """Ask in a thread that is free."""
        # A list of its own: a thread that is left behind may still write to the one it has.
        note = self._notes[slot] = [0.0, 0.0, 0.0]
        watched = worker.note_calls(lambda: bool(note[_LEFT]) or self._over.is_set(), note, 0)
        call = self._executor.submit(decide_all, self._decide, prompts, is_over=watched)
        future = asyncio.wrap_future(call)
        self._submitted[future] = (call, note)
        future.add_done_callback(lambda done: self._submitted.pop(done, None))
        return future

    def call_in(self, slot: int) -> tuple[int, float]:
        """Return which call of its chunk a worker is in, and since when; 0 for in none."""
        index, began, _ = self._notes[slot]
        return int(index), began

    def replace_workers(self, late: Chunks, open_chunks: Chunks) -> Chunks:
        """Leave the pool to those that still work in it, and start another; return what is lost.

        Raises:
            UntrustworthyRun: If too many threads are left behind, each of which takes its share
                of the machine from the calls that are measured.
        """
        for call, note in [self._submitted[future] for future in late]:
            note[_LEFT] = 1.0
            self._left_behind.append(call)
        stuck = sum(not call.done() for call in self._left_behind)
        if stuck >= _MOST_STUCK:
            raise UntrustworthyRun(
                f"{stuck} calls of {self._name} have not come back within {self._timeout_s:g} s,"
                " and a thread cannot be ended.\n"
                "Next: set run.workers to processes, whose workers are ended and started again;"
                " what is stored is kept."
            )
        before, self._executor = self._executor, ThreadPoolExecutor(self.count)
        lost = [each for each in open_chunks if each in late or self._submitted[each][0].cancel()]
        before.shutdown(wait=False)
        return lost

    def stop(self) -> None:
        """Have no further call begun."""
        self._over.set()

    def end(self, *, is_waiting: bool) -> None:  # noqa: ARG002 - a thread cannot be ended
        """Start nothing more."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class Processes:
    """Processes of our own; one that does not come back is ended, and all are started anew."""

    grace_s: Final = 2.0  # a worker ends most calls by itself; those that hear no alarm end with it

    def __init__(self, factory: Callable[[], BuiltPart], count: int) -> None:
        # Loaded on use: five hundredths of a second of a run that asks in line.
        from multiprocessing import active_children, get_context
        from multiprocessing.sharedctypes import RawArray

        self._factory, self.count = factory, count
        self._context, self._others = get_context("spawn"), set(active_children())
        self._calls = RawArray("d", 4 * count)
        with _signals_for_us_alone():  # Python starts a process that looks after semaphores
            self._over = self._context.Event()
            self._executor = self._started()

    def _started(self) -> ConcurrentExecutor:
        from concurrent.futures import ProcessPoolExecutor

        return ProcessPoolExecutor(
            self.count,
            mp_context=self._context,
            initializer=worker.build,
            initargs=(self._factory, self._over, self._calls),
        )

    def ask(self, prompts: Sequence[Prompt], slot: int) -> asyncio.Future[Answers]:
        """Ask in a process that is free."""
        self._calls[2 * slot + 1] = 0.0  # what a process that was ended had noted
        return asyncio.ensure_future(self._ask(prompts, slot))

    async def _ask(self, prompts: Sequence[Prompt], slot: int) -> Answers:
        import pickle

        with _signals_for_us_alone():  # a new process may be started for it
            future = asyncio.get_running_loop().run_in_executor(
                self._executor, worker.ask, prompts, slot
            )
        answers: Answers = pickle.loads(await future)  # noqa: S301 - from a process of our own
        return answers

    def call_in(self, slot: int) -> tuple[int, float]:
        """Read a slot."""
        return int(self._calls[2 * slot]), self._calls[2 * slot + 1]

    def replace_workers(self, late: Chunks, open_chunks: Chunks) -> Chunks:  # noqa: ARG002 - all go
        """End all processes and start others; return the chunks that are lost with them."""
        self.end(is_waiting=True)
        with _signals_for_us_alone():
            # A process may have ended while it held the lock of the event.
            self._over = self._context.Event()
            self._executor = self._started()
        return open_chunks

    def stop(self) -> None:
        """Have no further call begun."""
        self._over.set()

    def end(self, *, is_waiting: bool) -> None:
        """End the processes; those in a call at once."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        if is_waiting:
            self._kill()

    def _kill(self) -> None:
        from multiprocessing import active_children

        for child in active_children():
            if child not in self._others:
                child.terminate()


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
