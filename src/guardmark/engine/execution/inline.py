"""Defenses that answer at once, called in line."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from guardmark.engine.calls import decide_unless_abandoned, skipping
from guardmark.store.codes import FLAG_COLD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guardmark.core.protocols import InlineDefense
    from guardmark.engine.desk import Recorder
    from guardmark.engine.ledger import RunMonitor
    from guardmark.store.samples import Chunk

_SLICE_NS: Final = 30_000_000  # a stop is seen, and a slow defense's answers stored, this often
AT_ONCE: Final = 1000  # samples read, and answers committed, together
_MOST_WATCHED: Final = 64  # a rule that ends a defense early is heard this often


async def run_inline(
    defense: InlineDefense,
    desk: Recorder,
    *,
    ledger: RunMonitor,
    chunks: Iterable[Chunk],
    is_cold: bool,
) -> None:
    """Ask a defense about samples in this thread.

    Between slices of about 30 ms other tasks get their turn and the wish to stop is seen.
    """
    decide = skipping(defense.decide_now, defense.view)
    size, most = 1, _MOST_WATCHED if ledger.has_rule else AT_ONCE
    for chunk in chunks:
        start = 0
        while start < len(chunk.positions):
            size = ledger.room(size)
            if not size or ledger.is_done(desk):
                return
            part = chunk.part(start, start + size)
            began = perf_counter_ns()
            decisions, latencies = decide_unless_abandoned(decide, part.prompts, ledger.stop)
            part = part.part(0, len(decisions))
            took = perf_counter_ns() - began
            flags = FLAG_COLD if is_cold else 0
            ledger.took_all(desk, part, decisions=decisions, latencies=latencies, flags=flags)
            is_cold = is_cold and not decisions
            ledger.busy_ns += took
            ledger.store(count=AT_ONCE)
            start += len(decisions)
            size = min(_next_size(size, took), most)
            await asyncio.sleep(0)


def _next_size(size: int, took_ns: int) -> int:
    if took_ns < _SLICE_NS // 2:
        return min(2 * size, AT_ONCE)
    return max(1, size * _SLICE_NS // took_ns)
