"""Defenses behind a wire: workers that pull from one feed, never a task a sample."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from guardmark.core.manifest import LatencyMode
from guardmark.core.record import asking_about
from guardmark.engine import memory
from guardmark.engine.asking import asking
from guardmark.engine.calls import as_decision
from guardmark.engine.desk import PendingSample
from guardmark.store.codes import FLAG_COLD, FLAG_PLANNED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from guardmark.core.sample import Prompt
    from guardmark.engine.desk import Recorder
    from guardmark.engine.ledger import RunMonitor
    from guardmark.engine.plan import AnyDefense


def feed_of(desks: Sequence[Recorder], ledger: RunMonitor) -> Iterator[PendingSample]:
    """Yield what is not stored yet, sample by sample, repeat after repeat.

    Several workers may pull from the one iterator: it never waits.
    """
    for desk in desks:
        for chunk in ledger.writer.stored.pending(desk.lane, order=ledger.order):
            for position, is_attack, prompt in zip(
                chunk.positions, chunk.attacks, chunk.prompts, strict=True
            ):
                if ledger.is_done(desk):
                    return
                yield PendingSample(
                    desk=desk, position=position, is_attack=is_attack, prompt=prompt
                )


class Pace:
    """Planned send times at a constant rate."""

    def __init__(self, rate_per_s: float) -> None:
        self.interval_ns = int(1e9 / rate_per_s)
        self._next_ns = perf_counter_ns()

    async def turn(self) -> int:
        """Wait for the next planned send time."""
        planned = self._next_ns
        self._next_ns += self.interval_ns
        ahead = planned - perf_counter_ns()
        if ahead > 0:
            await asyncio.sleep(ahead / 1e9)
        return planned


async def ask_each(
    ask: Callable[[Prompt], Awaitable[Any]],
    feed: Iterator[PendingSample],
    *,
    ledger: RunMonitor,
    pace: Pace | None,
    is_cold: bool,
) -> None:
    """Pull samples and ask about them, one after the other: the work of one worker."""
    flags = FLAG_COLD if is_cold else 0
    for item in feed:
        if not ledger.may_go_on():
            return
        planned = None if pace is None else await pace.turn()
        # Others asked while this one waited for its turn: a budget may be spent by now.
        if planned is not None and not ledger.may_go_on():
            return
        lane = item.desk.lane
        with asking_about(item.desk.name, lane.repeat, item.position):
            answer, took = await memory.ask(
                ask, (item.prompt,), ledger=ledger, part=item.desk.name, repeat=lane.repeat
            )
        if planned is not None and took is not None:
            flags, took = flags | FLAG_PLANNED, perf_counter_ns() - planned
        ledger.took_decision(item, as_decision(answer), latency_ns=took, flags=flags)
        ledger.store()
        flags = 0


def workers_of(
    defense: AnyDefense, feed: Iterator[PendingSample], *, ledger: RunMonitor
) -> list[Coroutine[Any, Any, None]]:
    """Return the coroutines that ask a defense about everything in a feed."""
    timing = ledger.plan.timing
    is_open = timing.mode is LatencyMode.OPEN
    pace = Pace(timing.rate_per_s or 1.0) if is_open else None
    ask = asking(defense)
    return [
        ask_each(ask, feed, ledger=ledger, pace=pace, is_cold=number >= timing.warmup)
        for number in range(ledger.plan.in_flight(defense.name))
    ]
