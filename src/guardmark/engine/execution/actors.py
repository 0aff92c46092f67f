"""Defenses in actors of a Ray cluster, each with a copy of its own; records stay with us."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import dataclass, field, replace
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from guardmark.config.deadline import overrun_message
from guardmark.core.errors import ConfigError, UntrustworthyRun
from guardmark.core.outcome import ErrorKind
from guardmark.core.protocols import BatchLimits
from guardmark.defenses.calls.failure import Failure
from guardmark.engine.execution.batches import BatchExecutor, limits_of
from guardmark.engine.execution.process import run_on_loop
from guardmark.engine.execution.worker import BuiltThere, DefenseActor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guardmark.core.outcome import Decision
    from guardmark.core.sample import Prompt
    from guardmark.engine.calls import Answers
    from guardmark.engine.execution.cluster import Cluster
    from guardmark.engine.execution.executor import DefenseWork
    from guardmark.engine.plan import BuiltPart

_USUAL_BATCH: Final = 64
_QUEUED: Final = 2  # batches an actor has: the one it is asked about, and the next
_GRACE_S: Final = 5.0  # for the alarm of an actor, before the actor is ended
_MOST_DEATHS: Final = 12  # of actors in a row, with no batch answered between
_LATE: Final = "did not come back"
_CRASHED: Final = Failure(ErrorKind.CRASH, "its worker died twice when it was asked this")


@dataclass(slots=True, eq=False)
class _ActorQueue:
    """One actor after the other, and how many batches wait for it; it answers them in order."""

    actor: Any = None
    load: int = 0
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class ActorDefense:
    """A defense that only actors build: what one of them says of it, and their answers."""

    def __init__(self, name: str, factory: Callable[[], BuiltPart], cluster: Cluster) -> None:
        self.name, self.factory, self.cluster = name, factory, cluster
        self._queues, self._warmup, self._deaths = [_ActorQueue()], 0, 0
        self.built = run_on_loop(self._described())
        most = cluster.settings.batch or _USUAL_BATCH
        stated = self.built.capabilities
        self._gains_from_batches = stated.batch is not None
        self.capabilities = replace(
            stated, is_inline=False, batch=stated.batch or BatchLimits(max_count=most)
        )
        if cluster.settings.batch:
            self._ask_fewer(most)

    async def _described(self) -> BuiltThere:
        actor, built = await self._started()
        self.cluster.joined().kill(actor)  # beside those of other defenses it might have no room
        return built

    def allow(self, actors: int, *, warmup: int) -> None:
        """Let more than one actor start, each of which is warmed up before it is asked."""
        self._queues += [_ActorQueue() for _ in range(actors - len(self._queues))]
        self._warmup = max(1, warmup)

    async def close(self) -> None:
        """End all actors; one starts when a part that stays here asks this defense again."""
        for queue in self._queues:
            self._end(queue)
        self._queues = [_ActorQueue()]

    async def decide_all(
        self, prompts: Sequence[Prompt], *, has_died: bool = False
    ) -> list[Decision]:
        """Ask the actor with the least to do; where it fails, another one, in halves."""
        most = limits_of(self).max_count
        if len(prompts) > most:
            decided = await self.decide_all(prompts[:most])
            return decided + await self.decide_all(prompts[most:])
        queue = min(self._queues, key=attrgetter("load"))
        queue.load += 1
        try:
            answer = await self._answer(queue, prompts)
        finally:
            queue.load -= 1
        if isinstance(answer, list):
            return answer
        if answer and len(prompts) > 1:
            note = f"a worker {answer}; its batch of {len(prompts)} is asked again in halves"
            self.cluster.notes.append(f"{self.name}: {note}")
            self._ask_fewer((len(prompts) + 1) // 2)
        elif answer == _LATE:
            message = f"Overrun: {overrun_message(self.capabilities.timeout_s or 0.0)}"
            return [Failure(ErrorKind.TIMEOUT, message).as_decision()]
        elif answer and has_died:
            return [_CRASHED.as_decision()]
        return await self.decide_all(prompts, has_died=has_died or bool(answer))

    def _ask_fewer(self, most: int) -> None:
        limits = limits_of(self)
        fewer = replace(limits, max_count=min(most, limits.max_count))
        self.capabilities = replace(self.capabilities, batch=fewer)

    async def _answer(self, queue: _ActorQueue, prompts: Sequence[Prompt]) -> list[Decision] | str:
        """Return what an actor decides, what it met, or nothing where it ended without a fault."""
        actor, errors = await self._actor_of(queue), self.cluster.joined().exceptions
        asked = asyncio.wrap_future(actor.ask.remote(list(prompts)).future())
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        async with queue.turn:  # in order: before it no batch is late, and none is to blame
            if queue.actor is not actor:
                return ""
            timeout_s = self.capabilities.timeout_s
            limit_s = timeout_s and timeout_s * len(prompts) + _GRACE_S
            await asyncio.wait({asked}, timeout=limit_s)
            error = asked.exception() if asked.done() else None
            is_dead = isinstance(error, errors.RayError)
            if not asked.done() or (is_dead and not isinstance(error, errors.RayTaskError)):
                self._end(queue)
                if error:
                    self._note_death(error)
                return "died" if error else _LATE
        self._note_death(None)
        answer = asked.result()
        if not answer:
            return "ran out of memory"
        is_shared = self._gains_from_batches and len(prompts) > 1
        answers: Answers = pickle.loads(answer)  # noqa: S301 - of our own actor
        return [
            replace(each, latency_ns=took, amortised=is_shared) if each.latency_ns is None else each
            for each, took in zip(*answers, strict=True)
        ]

    async def _actor_of(self, queue: _ActorQueue) -> Any:
        async with queue.starting:
            if queue.actor is None:
                began = perf_counter()
                queue.actor, _ = await self._started()
                ready = f"a worker was ready after {perf_counter() - began:.1f} s"
                self.cluster.notes.append(f"{self.name}: {ready}")
            return queue.actor

    async def _started(self) -> tuple[Any, BuiltThere]:
        """Start an actor that has built the defense; one that dies meanwhile is replaced."""
        settings, ray = self.cluster.settings, self.cluster.joined()
        needs = {"num_cpus": settings.cpus_per_worker, "num_gpus": settings.gpus_per_worker}
        kind = ray.remote(**needs)(DefenseActor)
        while True:
            actor, said = kind.remote(), None
            try:
                loading = actor.load.remote(self.factory, self._warmup)
                said = await asyncio.wrap_future(loading.future())
            except ray.exceptions.RayActorError as error:
                self._note_death(error)
                continue
            except ray.exceptions.RayTaskError as error:  # what its package raises while it loads
                said = f"{type(error.cause).__name__}: {error.cause}"
            finally:
                if not isinstance(said, BuiltThere):  # also where nobody waits for it any more
                    ray.kill(actor)
            if isinstance(said, BuiltThere):
                return actor, said
            raise ConfigError(f"A worker cannot ask {self.name}: {said}")

    def _note_death(self, error: BaseException | None) -> None:
        self._deaths = self._deaths + 1 if error else 0
        if self._deaths >= _MOST_DEATHS:
            raise UntrustworthyRun(
                f"{self._deaths} workers of {self.name} died in a row: {str(error)[:300]}\n"
                "Next: give each more memory, or a smaller run.batch; what is stored is kept."
            ) from error

    def _end(self, queue: _ActorQueue) -> None:
        if queue.actor is not None:
            self.cluster.joined().kill(queue.actor)
        queue.actor = None


class RayExecutor:
    """Asks a defense in as many actors as the settings say; each loads it once."""

    runs_alone: Final = True

    def __init__(self, defense: ActorDefense) -> None:
        self._defense = defense

    async def execute(self, work: DefenseWork) -> None:
        """Ask batch by batch, so many at once that every actor has the next one already."""
        defense, count = self._defense, self._defense.cluster.workers
        defense.allow(count, warmup=work.monitor.plan.timing.warmup)
        batches = BatchExecutor(defense, ask=defense.decide_all, count=_QUEUED * count)
        try:
            await batches.execute(work)
        finally:
            work.monitor.notes += defense.cluster.notes
            defense.cluster.notes.clear()
            await defense.close()
