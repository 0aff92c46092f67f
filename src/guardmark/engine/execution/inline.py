"""Calls in this thread, slice by slice: for defenses that answer at once."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Final

from guardmark.engine.calls import inline_decide
from guardmark.engine.execution.executor import READ_TOGETHER

if TYPE_CHECKING:
    from guardmark.core.protocols import Guard
    from guardmark.engine.execution.executor import DefenseWork

SLICE_NS: Final = 30_000_000  # a stop is seen, and a slow defense's answers stored, this often
_MOST_WATCHED: Final = 64  # a rule that ends a defense early is heard this often


class InlineExecutor:
    """Calls a defense in this thread.

    Between slices of about 30 ms other tasks get their turn and the wish to stop is seen.
    """

    runs_alone: Final = True

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._timeout_s = guard.capabilities.timeout_s

    async def execute(self, work: DefenseWork) -> None:
        """Ask slice by slice."""
        monitor, size = work.monitor, 1
        most = READ_TOGETHER if monitor.rule is None else _MOST_WATCHED
        while (dealt := work.deal(size)) is not None:
            decide = inline_decide(self._guard, has_images=dealt.chunk.has_images)
            began, worked = perf_counter_ns(), _Worked()
            decisions, latencies = monitor.asker.ask_here(
                decide, dealt.chunk.prompts, timeout_s=self._timeout_s, stop=monitor.stop
            )
            took = perf_counter_ns() - began
            work.record(dealt, decisions, latencies)
            monitor.store(count=READ_TOGETHER)
            size = next_size(size, worked.since(took), most=most)
            await asyncio.sleep(0)


class _Worked:
    """How long a slice takes of itself, without the time in which other programs had the processor.

    Else a busy machine would make slices shorter, and a run that a rule ends would ask about other
    samples than on a quiet one. Where nobody counts the waits of a thread, all that passed counts.
    """

    def __init__(self) -> None:
        self._cpu_ns, self._waits = thread_time_ns(), _waits()

    def since(self, wall_ns: int) -> int:
        """Return the time of the processor where nothing was waited for, else what has passed."""
        waits = _waits()
        is_waiting = waits is None or waits != self._waits
        return wall_ns if is_waiting else min(wall_ns, thread_time_ns() - self._cpu_ns)


def _waits() -> int | None:
    """Return how often this thread gave the processor away of its own accord."""
    try:
        from resource import RUSAGE_THREAD, getrusage
    except ImportError:  # not on every system
        return None
    return getrusage(RUSAGE_THREAD).ru_nvcsw


def next_size(size: int, took_ns: int, *, most: int) -> int:
    """Return how many samples fill a slice, after some took a time: few at first, then more."""
    if took_ns < SLICE_NS // 2:
        return min(2 * size, most)
    return max(1, min(size * SLICE_NS // took_ns, most))
