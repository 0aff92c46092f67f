"""Calls to a guard that keeps the state of a conversation: turn after turn, never two at once."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guardmark.core.errors import BudgetReached, counted
from guardmark.core.manifest import LatencyMode
from guardmark.engine.calls import as_coroutine, as_decision
from guardmark.engine.execution.service import Pace
from guardmark.engine.recorder import PendingSample
from guardmark.engine.run_monitor import Halt
from guardmark.engine.supervision import supervise
from guardmark.store.schema import FLAG_COLD, FLAG_PLANNED
from guardmark.store.turns import read_talks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from guardmark.core.manifest import RunManifest
    from guardmark.core.outcome import Decision
    from guardmark.core.protocols import Guard
    from guardmark.core.sample import Prompt
    from guardmark.engine.asking import Question
    from guardmark.engine.execution.executor import DefenseWork
    from guardmark.engine.recorder import Recorder
    from guardmark.engine.run_monitor import RunMonitor
    from guardmark.store.records import RecordWriter

_LENGTH: Final = 32  # characters of a session id


class _Turn(NamedTuple):
    """A turn on its way to the guard, and whether its answer is stored already."""

    sample: PendingSample
    is_stored: bool


class SessionExecutor:
    """Asks a defense behind a wire, conversation by conversation, as many at once as is planned.

    The answers of a conversation are stored together, when its last turn was answered: what a kill
    breaks off is asked about from its first turn, under another session.
    """

    runs_alone: Final = False

    def __init__(self, guard: Guard) -> None:
        self._ask = as_coroutine(guard)

    async def execute(self, work: DefenseWork) -> None:
        """Ask until nothing is left."""
        monitor, plan = work.monitor, work.monitor.plan
        timing = plan.timing
        pace = Pace(timing.rate_per_s or 1.0) if timing.mode is LatencyMode.OPEN else None
        feed, broken = conversations_of(work), list[int]()
        await supervise(
            _ask_in_turn(
                self._ask,
                feed,
                monitor=monitor,
                pace=pace,
                is_cold=number >= timing.warmup,
                broken=broken,
            )
            for number in range(min(plan.in_flight(work.name), work.planned))
        )
        if broken:
            talks, answers = counted(len(broken), "conversation"), counted(sum(broken), "answer")
            monitor.reason += (
                f"; {work.name}: {talks} broken off, {answers} not stored (asked again from the "
                "first turn, under another session)"
            )


def session_id(manifest: RunManifest | None, *words: object) -> str:
    """Return the id of a conversation: equal runs and words give equal ids, others never do."""
    run = "" if manifest is None else f"{manifest.name}\0{manifest.created_utc}"
    said = "\0".join([run, *map(str, words)])
    return sha256(said.encode(errors="surrogatepass")).hexdigest()[:_LENGTH]


def conversations_of(work: DefenseWork) -> Iterator[list[_Turn]]:
    """Yield each conversation of which something is left, whole and in order, repeat by repeat."""
    monitor = work.monitor
    writer = monitor.writer
    talks = _ordered(monitor)
    begun = writer.begin_sessions()
    for recorder in work.recorders:
        pending = {
            position
            for chunk in writer.stored.pending(recorder.batch)
            for position in chunk.positions
        }
        for positions in talks:
            if pending.isdisjoint(positions):
                continue
            if monitor.is_done(recorder.progress):
                return
            yield _begin(writer, recorder, positions, pending=pending, begun=begun)


def _ordered(monitor: RunMonitor) -> list[list[int]]:
    """Return the positions of each conversation by turn, in the order in which samples are asked.

    A sample that is no turn is a conversation by itself.
    """
    turns: dict[str, list[tuple[int, int]]] = {}
    talk_of: dict[int, str] = {}
    for stored in read_talks(monitor.writer.connection).turns:
        turns.setdefault(stored.conversation, []).append((stored.turn, stored.position))
        talk_of[stored.position] = stored.conversation
    begun, ordered = set[str](), list[list[int]]()
    for position in monitor.order:
        talk = talk_of.get(position)
        if talk is None:
            ordered.append([position])
        elif talk not in begun:
            begun.add(talk)
            ordered.append([place for _, place in sorted(turns[talk])])
    return ordered


def _begin(
    writer: RecordWriter,
    recorder: Recorder,
    positions: list[int],
    *,
    pending: set[int],
    begun: int,
) -> list[_Turn]:
    """Read the turns of a conversation, and give them the session that is theirs alone."""
    samples = [writer.sample(position) for position in positions]
    words = recorder.part, samples[-1].id, recorder.batch.repeat, begun
    session = session_id(writer.manifest, *words)
    return [
        _Turn(
            PendingSample(
                recorder, position, sample.is_attack, replace(sample.prompt, session=session)
            ),
            is_stored=position not in pending,
        )
        for position, sample in zip(positions, samples, strict=True)
    ]


class _AnsweredTurn(NamedTuple):
    """A turn with its decision, which waits for the end of its conversation."""

    turn: _Turn
    decision: Decision
    latency_ns: int | None
    flags: int


async def _ask_in_turn(
    ask: Callable[[Prompt], Awaitable[Any]],
    feed: Iterator[list[_Turn]],
    *,
    monitor: RunMonitor,
    pace: Pace | None,
    is_cold: bool,
    broken: list[int],
) -> None:
    """Pull conversations and ask about their turns, one after the other: the work of one worker."""
    flags, under_way = FLAG_COLD if is_cold else 0, monitor.writer.under_way
    for turns in feed:
        answered: list[_AnsweredTurn] = []
        try:
            for turn in turns:
                if not monitor.may_go_on():
                    return
                planned = None if pace is None else await pace.turn()
                if planned is not None and not monitor.may_go_on():
                    return
                question = turn.sample.question()
                row = question.row
                if row is not None and not turn.is_stored:
                    under_way.leave(row)  # until it is stored, not until it is answered
                # Never from the answer cache: the service has to hear every turn.
                answer, took = await monitor.asker.put(ask, _without_row(question))
                if planned is not None:
                    flags, took = flags | FLAG_PLANNED, perf_counter_ns() - planned
                answered.append(_AnsweredTurn(turn, as_decision(answer), took, flags))
                flags = 0
        except BudgetReached as reached:
            monitor.end(Halt.BUDGET, str(reached))
            return
        finally:
            if len(answered) < len(turns) and answered:
                broken.append(len(answered))
        _record(answered, monitor)


def _without_row(question: Question) -> Question:
    return question._replace(row=None)


def _record(answered: list[_AnsweredTurn], monitor: RunMonitor) -> None:
    """Store all answers of a conversation, between two commits."""
    for (sample, is_stored), decision, latency_ns, flags in answered:
        if is_stored:
            continue
        sample.recorder.record_decision(sample, decision, latency_ns=latency_ns, flags=flags)
        row = sample.question().row
        if row is not None:
            monitor.writer.under_way.arrive(row)
    monitor.store()
