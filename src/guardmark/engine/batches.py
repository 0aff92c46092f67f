"""Batches for defenses that gain from them: by count, by tokens, by likeness of length."""

from __future__ import annotations

from itertools import islice
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from guardmark.engine.asking import decide_batch
from guardmark.store.codes import FLAG_AMORTISED, FLAG_COLD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.core.protocols import BatchDefense
    from guardmark.core.sample import Prompt, View
    from guardmark.engine.desk import PendingSample
    from guardmark.engine.ledger import RunMonitor

_WINDOW: Final = 16  # batches that are sorted by length together
_CHARS_PER_TOKEN: Final = 3.0  # on the safe side for English; a model's own limit is its own affair


def tokens_of(prompt: Prompt, view: View) -> int:
    """Estimate the tokens a defense will see."""
    text = prompt.shown(view)
    return 1 + int(len(text or "") / _CHARS_PER_TOKEN)


def form(items: Sequence[PendingSample], defense: BatchDefense) -> Iterator[list[PendingSample]]:
    """Cut samples into batches of like length."""
    limits, view = defense.batch_limits, defense.view
    sized = [(tokens_of(item.prompt, view), at) for at, item in enumerate(items)]
    batch: list[PendingSample] = []
    for size, at in sorted(sized):
        # Sorted: the newest is the longest, so it sets the padded width.
        is_wide = limits.max_tokens is not None and size * (len(batch) + 1) > limits.max_tokens
        if batch and (is_wide or len(batch) >= limits.max_count):
            yield batch
            batch = []
        batch.append(items[at])
    if batch:
        yield batch


def batches_of(
    feed: Iterator[PendingSample], defense: BatchDefense
) -> Iterator[list[PendingSample]]:
    """Cut a feed into batches, window by window, so that memory stays flat."""
    while window := list(islice(feed, _WINDOW * max(1, defense.batch_limits.max_count))):
        yield from form(window, defense)


async def ask_batches(
    defense: BatchDefense,
    batches: Iterator[list[PendingSample]],
    *,
    ledger: RunMonitor,
    is_cold: bool,
) -> None:
    """Pull batches and ask about them, one after the other: the work of one worker."""
    for batch in batches:
        room = ledger.room(len(batch))
        if not room:
            return
        await ask_batch(defense, batch[:room], ledger=ledger, is_cold=is_cold)
        is_cold = False


async def ask_batch(
    defense: BatchDefense,
    items: Sequence[PendingSample],
    *,
    ledger: RunMonitor,
    is_cold: bool = False,
) -> list[int]:
    """Ask about one batch, and store its decisions, each with its share of the time."""
    ledger.calls += len(items)
    start = perf_counter_ns()
    decisions = await decide_batch(defense, [item.prompt for item in items])
    took = perf_counter_ns() - start
    ledger.busy_ns += took
    share = took // len(items)
    flags = (FLAG_COLD if is_cold else 0) | (FLAG_AMORTISED if len(items) > 1 else 0)
    codes = [
        ledger.took_decision(item, decision, latency_ns=share, flags=flags)
        for item, decision in zip(items, decisions, strict=True)
    ]
    ledger.store()
    return codes
