"""Calls in actors of a Ray cluster, each with a defense of its own; records stay with us."""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guardmark.core.errors import ConfigError, UntrustworthyRun
from guardmark.core.outcome import ErrorKind
from guardmark.defenses.calls.failure import Failure
from guardmark.defenses.deadline import overrun_message, timeout_of
from guardmark.engine.execution.batches import batches_of, takes_batches
from guardmark.engine.execution.worker import DefenseActor
from guardmark.engine.run_monitor import Halt, supervise
from guardmark.store.schema import FLAG_AMORTISED

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.defenses.calls.cluster import Cluster
    from guardmark.engine.calls import Answers
    from guardmark.engine.execution.executor import DefenseWork
    from guardmark.engine.plan import BuiltPart
    from guardmark.engine.recorder import PendingSample

    Batch = list[PendingSample]

_USUAL_BATCH: Final = 64
_QUEUED: Final = 2  # batches an actor has: the one it is asked about, and the next
_GRACE_S: Final = 5.0  # for the alarm of an actor, before the actor is ended
_MOST_DEATHS: Final = 12  # of actors in a row, with no batch answered between
_CRASHED: Final = Failure(ErrorKind.CRASH, "its worker died twice when it was asked this")


class RayExecutor:
    """Asks a defense in as many actors as the plan says; each loads it once."""

    runs_alone: Final = True

    def __init__(self, cluster: Cluster, factory: Callable[[], BuiltPart]) -> None:
        self._cluster = cluster
        self._factory = factory

    async def execute(self, work: DefenseWork) -> None:
        """Ask batch by batch; an actor that dies is replaced, and its batch asked in halves."""
        await _ActorWork(self._cluster, self._factory, work).ask_all()


class _Asked(NamedTuple):
    """A batch that an actor has."""

    batch: Batch
    answer: asyncio.Future[bytes]


class _ActorWork:
    """What is left to ask of one defense, and what its actors have met."""

    def __init__(
        self, cluster: Cluster, factory: Callable[[], BuiltPart], work: DefenseWork
    ) -> None:
        self._cluster, self._factory, self._monitor = cluster, factory, work.monitor
        self._name, self._timeout_s = work.name, timeout_of(work.defense)
        feed, defense = work.samples(), work.defense
        self._is_batched = takes_batches(defense, work.monitor.plan)
        if takes_batches(defense, work.monitor.plan):
            self._most = cluster.settings.batch or defense.batch_limits.max_count
            self._batches = batches_of(feed, defense)
        else:
            self._most = cluster.settings.batch or _USUAL_BATCH
            self._batches = iter(lambda: list(islice(feed, self._most)), [])
        self._again: deque[Batch] = deque()
        self._died_on: set[tuple[object, int]] = set()
        self._deaths = 0

    async def ask_all(self) -> None:
        """Ask about everything; where nothing is left, no cluster is joined."""
        if first := self._next():
            self._again.append(first)
            self._cluster.joined()
            workers = range(self._cluster.workers)
            await supervise((self._serve() for _ in workers), self._monitor.tick)

    async def _serve(self) -> None:
        """Keep one actor busy, and those that take its place."""
        actor: Any = None
        waiting: deque[_Asked] = deque()
        try:
            while True:
                while len(waiting) < _QUEUED and (batch := self._next()):
                    if actor is None:
                        self._again.append(batch)  # for another actor that is ready before
                        actor = await self._started()
                    else:
                        asked = actor.ask.remote([sample.prompt for sample in batch])
                        waiting.append(_Asked(batch, asyncio.wrap_future(asked.future())))
                if not waiting:
                    return
                if not await self._is_answered(waiting[0]):
                    self._again.extend(asked.batch for asked in list(waiting)[1:])
                    self._end(actor, waiting)
                    actor = None
                else:
                    waiting.popleft()
        finally:
            self._end(actor, waiting)

    def _next(self) -> Batch | None:
        """Return a batch, or None where there is none or no call may be made."""
        if self._again:
            batch = self._again.popleft()
            if not (self._monitor.may_go_on() or self._monitor.halt is Halt.BUDGET):
                return None
        else:
            batch = next(self._batches, [])
            batch = batch[: self._monitor.room(len(batch))]
            self._monitor.calls += len(batch)
        if len(batch) > self._most:
            self._again.append(batch[self._most :])
        return batch[: self._most] or None

    async def _started(self) -> Any:
        settings, ray, began = self._cluster.settings, self._cluster.joined(), perf_counter()
        needs = {"num_cpus": settings.cpus_per_worker, "num_gpus": settings.gpus_per_worker}
        kind = ray.remote(**needs)(DefenseActor)
        while True:
            actor = kind.remote()
            loading = actor.load.remote(self._factory, self._monitor.plan.timing.warmup)
            try:
                refused = await asyncio.wrap_future(loading.future())
            except ray.exceptions.RayActorError as error:
                self._note_death(error)
                continue
            except ray.exceptions.RayTaskError as error:  # what its package raises while it loads
                refused = f"{type(error.cause).__name__}: {error.cause}"
            if refused:
                ray.kill(actor)
                raise ConfigError(f"A worker cannot ask {self._name}: {refused}")
            took_s = perf_counter() - began
            self._monitor.notes.append(f"{self._name}: a worker was ready after {took_s:.1f} s")
            return actor

    async def _is_answered(self, asked: _Asked) -> bool:
        """Record what an actor answers, or see to what it does not; tell whether it still works."""
        batch, limit_s = asked.batch, self._timeout_s
        await asyncio.wait({asked.answer}, timeout=limit_s and limit_s * len(batch) + _GRACE_S)
        if not asked.answer.done():
            message = f"Overrun: {overrun_message(limit_s or 0.0)}"
            self._ask_again(batch, "did not come back", Failure(ErrorKind.TIMEOUT, message))
            return False
        errors, error = self._cluster.joined().exceptions, asked.answer.exception()
        if isinstance(error, errors.RayError) and not isinstance(error, errors.RayTaskError):
            self._note_death(error)
            key = (batch[0].recorder.batch.key, batch[0].position)
            self._ask_again(batch, "died", _CRASHED if key in self._died_on else None)
            self._died_on.add(key)
            return False
        if answer := asked.answer.result():
            self._deaths = 0
            self._record(batch, pickle.loads(answer))  # noqa: S301 - of our own actor
        else:
            self._ask_again(batch, "ran out of memory", None)
        return True

    def _record(self, batch: Batch, answers: Answers) -> None:
        flags = FLAG_AMORTISED if self._is_batched and len(batch) > 1 else 0
        for sample, decision, latency in zip(batch, *answers, strict=True):
            sample.recorder.record_decision(sample, decision, latency_ns=latency, flags=flags)
        self._monitor.busy_ns += sum(answers[1])
        self._monitor.store()

    def _ask_again(self, batch: Batch, what: str, last: Failure | None) -> None:
        """Ask about a batch in two halves; about a single sample once more, or record a failure."""
        middle = (len(batch) + 1) // 2
        if len(batch) > 1:
            self._most = min(self._most, middle)
            self._again += [batch[:middle], batch[middle:]]
            note = f"a worker {what}; its batch of {len(batch)} is asked again in halves"
            self._monitor.notes.append(f"{self._name}: {note}")
        elif last is None:
            self._again.append(batch)
        else:
            failed = last.as_decision()
            batch[0].recorder.record_decision(batch[0], failed, latency_ns=None)

    def _note_death(self, error: BaseException) -> None:
        self._deaths += 1
        if self._deaths >= _MOST_DEATHS:
            raise UntrustworthyRun(
                f"{self._deaths} workers of {self._name} died in a row: {str(error)[:300]}\n"
                "Next: give each more memory, or a smaller run.batch; what is stored is kept."
            ) from error

    def _end(self, actor: Any, waiting: deque[_Asked]) -> None:
        if actor is not None:
            self._cluster.joined().kill(actor)
        for asked in waiting:
            asked.answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        waiting.clear()
