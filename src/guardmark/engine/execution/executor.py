"""What every executor gets, and what is asked of it: the plug-in point for where calls are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from guardmark.core.sample import View
from guardmark.core.values import dataclass
from guardmark.engine.recorder import PendingSample
from guardmark.store.schema import FLAG_COLD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.core.outcome import Decision
    from guardmark.core.protocols import Guard
    from guardmark.core.sample import Prompt
    from guardmark.engine.recorder import Recorder
    from guardmark.engine.run_monitor import RunMonitor
    from guardmark.store.samples import Chunk

READ_TOGETHER: Final = 1000  # samples read, and decisions committed, together
_READ_IN_FLIGHT: Final = 250  # fewer, where reading stalls calls in flight


class Executor(Protocol):
    """Asks one defense about every sample that is left, wherever the calls are made.

    What it gets: a `DefenseWork`. `deal` hands over a chunk of prompts of one repeat, as many
    as asked for at most; `samples` hands them over one by one.

    What it gives back: for each chunk dealt, the decisions and their latencies in nanoseconds,
    taken where the call is made, in the order of the prompts of that chunk, by `record`. Chunks
    may come back in any order: each knows its repeat and the positions of its samples. A chunk
    may come back cut short; what is missing is asked by the next invocation. Recording is the
    affair of the work, which stores each sample exactly once.

    How it stops: `deal` returns None and `samples` ends as soon as the run must end, or nothing
    is left. The executor then waits a moment at most for calls under way, records what is
    finished and drops the rest. It may be cancelled at any `await`.

    What it owns: its threads, processes and connections to other machines. They are released
    before `execute` returns or raises.
    """

    @property
    def runs_alone(self) -> bool:
        """Whether its calls keep this machine busy, so that nothing is measured beside it."""
        ...

    async def execute(self, work: DefenseWork) -> None:
        """Ask about everything that is dealt, and record every decision.

        Raises:
            UntrustworthyRun: If what makes the calls broke down, so that the run cannot go on.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DealtSamples:
    """A chunk of samples of one repeat, on its way through an executor."""

    recorder: Recorder
    chunk: Chunk


class DefenseWork:
    """What is left to ask of one defense in all repeats, and where its decisions go."""

    def __init__(self, guard: Guard, recorders: tuple[Recorder, ...], monitor: RunMonitor) -> None:
        self.guard = guard
        self.recorders = recorders
        self.monitor = monitor
        self._chunks = self._read(READ_TOGETHER)
        self._dealing: DealtSamples | None = None
        self._is_cold = monitor.plan.timing.warmup == 0
        self._price = monitor.spending.prices.get(guard.name)

    @property
    def name(self) -> str:
        """Name of the defense."""
        return self.guard.name

    @property
    def reads_answers(self) -> bool:
        """Whether the guard stands behind a model and reads its answers."""
        return self.guard.capabilities.view is View.RESPONSE

    @property
    def is_asked_once(self) -> bool:
        """Whether it is asked in the first repeat alone, whose answers stand for the others."""
        return any(recorder.later for recorder in self.recorders)

    @property
    def asked_in(self) -> tuple[Recorder, ...]:
        """The recorders of the repeats in which it is asked."""
        return self.recorders[:1] if self.is_asked_once else self.recorders

    @property
    def planned(self) -> int:
        """How many calls the whole run makes, those of earlier invocations included."""
        return self.monitor.writer.sample_count * len(self.recorders)

    def deal(self, most: int) -> DealtSamples | None:
        """Return the next samples, or None when there are none or no call may be made."""
        size = self.monitor.room(most)
        if not size or self._is_done():
            return None
        rest = self._dealing or next(self._chunks, None)
        if rest is None:
            return None
        if self._price is not None:
            costs = [self._price.of_call(prompt) for prompt in rest.chunk.prompts[:size]]
            size = self.monitor.affordable(costs)
            if not size:
                return None
            self.monitor.meter.reserve(sum(costs[:size]))
        dealt, left = rest.chunk.part(0, size), rest.chunk.part(size, len(rest.chunk.positions))
        self._dealing = DealtSamples(recorder=rest.recorder, chunk=left) if left.positions else None
        self.monitor.dealt += len(dealt.positions)
        return DealtSamples(recorder=rest.recorder, chunk=dealt)

    def record(
        self, dealt: DealtSamples, decisions: Sequence[Decision], latencies: Sequence[int]
    ) -> None:
        """Store and count the decisions about the samples of a chunk, or about its first."""
        chunk = dealt.chunk.part(0, len(decisions))
        flags = FLAG_COLD if self._is_cold else 0
        if self._price is not None:
            self.monitor.meter.reserve(-self._cost_of(chunk.prompts))
        dealt.recorder.record_decisions(chunk, decisions, latencies, flags=flags)
        self.monitor.dealt -= len(decisions)
        self._is_cold = self._is_cold and not decisions

    def samples(self) -> Iterator[PendingSample]:
        """Yield what is left, sample by sample, repeat after repeat."""
        for dealt in self._read(_READ_IN_FLIGHT):
            chunk = dealt.chunk
            for position, is_attack, prompt in zip(
                chunk.positions, chunk.attacks, chunk.prompts, strict=True
            ):
                if self._is_done():
                    return
                yield PendingSample(dealt.recorder, position, is_attack, prompt)

    def _cost_of(self, prompts: Sequence[Prompt]) -> float:
        """Return what is set aside for calls about some prompts."""
        return 0.0 if self._price is None else sum(map(self._price.of_call, prompts))

    def _read(self, size: int) -> Iterator[DealtSamples]:
        monitor = self.monitor
        stored = monitor.writer.stored
        for recorder in self.asked_in:
            for chunk in stored.pending(recorder.batch, size=size, order=monitor.order):
                yield DealtSamples(recorder=recorder, chunk=chunk)

    def _is_done(self) -> bool:
        # A defense has one count of what is planned and done over all of its repeats.
        return self.monitor.is_done(self.recorders[0].progress)
