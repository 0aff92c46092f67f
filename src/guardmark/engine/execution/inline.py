"""Calls in this thread: for defenses that answer at once, one call after the other."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from guardmark.engine.calls import decide_unless_abandoned, skipping
from guardmark.engine.execution.executor import READ_TOGETHER

if TYPE_CHECKING:
    from guardmark.core.protocols import InlineDefense
    from guardmark.engine.execution.executor import DefenseWork

SLICE_NS: Final = 30_000_000  # a stop is seen, and a slow defense's answers stored, this often
_MOST_WATCHED: Final = 64  # a rule that ends a defense early is heard this often


class InlineExecutor:
    """Calls a defense in this thread.

    Between slices of about 30 ms other tasks get their turn and the wish to stop is seen.
    """

    runs_alone: Final = True

    def __init__(self, defense: InlineDefense) -> None:
        self._decide = skipping(defense.decide_now, defense.view)

    async def execute(self, work: DefenseWork) -> None:
        """Ask slice by slice."""
        monitor, size = work.monitor, 1
        most = READ_TOGETHER if monitor.rule is None else _MOST_WATCHED
        while (dealt := work.deal(size)) is not None:
            began = perf_counter_ns()
            decisions, latencies = decide_unless_abandoned(
                self._decide, dealt.chunk.prompts, monitor.stop
            )
            took = perf_counter_ns() - began
            work.record(dealt, decisions, latencies)
            monitor.busy_ns += took
            monitor.store(count=READ_TOGETHER)
            size = next_size(size, took, most=most)
            await asyncio.sleep(0)


def next_size(size: int, took_ns: int, *, most: int) -> int:
    """Return how many samples fill a slice, after some took a time: few at first, then more."""
    if took_ns < SLICE_NS // 2:
        return min(2 * size, most)
    return max(1, min(size * SLICE_NS // took_ns, most))
