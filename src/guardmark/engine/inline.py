"""Defenses that answer at once: called in line, or by threads or processes in chunks."""

from __future__ import annotations

import asyncio
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from functools import partial
from os import cpu_count
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import ConfigError, UntrustworthyRun
from guardmark.engine.calls import decide_all, skipping
from guardmark.engine.plan import Workers
from guardmark.store.codes import FLAG_COLD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from guardmark.core.outcome import Decision
    from guardmark.core.protocols import InlineDefense
    from guardmark.core.sample import Prompt
    from guardmark.engine.desk import Desk
    from guardmark.engine.ledger import Ledger
    from guardmark.engine.plan import Plan
    from guardmark.store.samples import Chunk

_SLICE_NS: Final = 30_000_000  # a stop is seen, and a slow defense's answers stored, this often
_MOST: Final = 1000
_MOST_WATCHED: Final = 64  # a rule that ends a defense early is heard this often
_POOL_CHUNK: Final = 64

Answers = tuple[list["Decision"], list[int]]


async def run_inline(
    defense: InlineDefense, desk: Desk, *, ledger: Ledger, chunks: Iterable[Chunk], is_cold: bool
) -> None:
    """Ask a defense about samples in this thread.

    Between slices of about 30 ms other tasks get their turn and the wish to stop is seen.

    Args:
        defense: What is asked.
        desk: Where its answers go.
        ledger: Counts and limits.
        chunks: Samples to ask about.
        is_cold: Whether the first call is the first of this process.
    """
    decide = skipping(defense.decide_now, defense.view)
    size, most = 1, _MOST_WATCHED if ledger.has_rule else _MOST
    for chunk in chunks:
        start = 0
        while start < len(chunk.positions):
            size = ledger.room(size)
            if not size or ledger.is_done(desk):
                return
            part = chunk.part(start, start + size)
            began = perf_counter_ns()
            decisions, latencies = decide_all(decide, part.prompts)
            took = perf_counter_ns() - began
            flags = FLAG_COLD if is_cold else 0
            ledger.took_all(desk, part, decisions=decisions, latencies=latencies, flags=flags)
            is_cold = False
            ledger.busy_ns += took
            ledger.store()
            start += len(decisions)
            size = min(_next_size(size, took), most)
            await asyncio.sleep(0)


def _next_size(size: int, took_ns: int) -> int:
    if took_ns < _SLICE_NS // 2:
        return min(2 * size, _MOST)
    return max(1, size * _SLICE_NS // took_ns)


async def run_pooled(
    defense: InlineDefense, desk: Desk, *, ledger: Ledger, chunks: Iterable[Chunk], is_cold: bool
) -> None:
    """Ask a defense about samples in threads or processes, timed inside the worker.

    Args:
        defense: What is asked; processes build their own from the plan's factory.
        desk: Where its answers go.
        ledger: Counts and limits.
        chunks: Samples to ask about.
        is_cold: Whether the first calls are the first of this process.

    Raises:
        ConfigError: If processes are wanted and the plan has no factory for the defense.
        UntrustworthyRun: If a process died.
    """
    executor, ask = _pool(defense, ledger.plan)
    waiting: dict[asyncio.Future[Answers], Chunk] = {}
    parts = _parts(chunks)
    limit = 2 * _count(ledger.plan)
    try:
        while True:
            while (
                len(waiting) < limit
                and not ledger.is_done(desk)
                and (part := _next(parts, ledger)) is not None
            ):
                future = asyncio.get_running_loop().run_in_executor(executor, ask, part.prompts)
                waiting[future] = part
            if not waiting or ledger.halt is not None:
                break
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=0.2)
            for future in done:
                part, (decisions, latencies) = waiting.pop(future), future.result()
                flags = FLAG_COLD if is_cold else 0
                ledger.took_all(desk, part, decisions=decisions, latencies=latencies, flags=flags)
                ledger.busy_ns += sum(latencies)
                is_cold = False
            ledger.store()
            ledger.may_go_on()
    except BrokenExecutor as error:
        raise UntrustworthyRun(
            f"A process that ran {defense.name} died (out of memory, or it could not start).\n"
            "Next: use fewer workers, or set workers to inline; what is stored is kept."
        ) from error
    finally:
        for future in waiting:
            if not future.cancel():
                future.exception()  # looked at, so that asyncio does not complain of it
        executor.shutdown(wait=False, cancel_futures=True)


def _next(parts: Iterator[Chunk], ledger: Ledger) -> Chunk | None:
    return next(parts, None) if ledger.may_go_on() else None


def _parts(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    for chunk in chunks:
        for start in range(0, len(chunk.positions), _POOL_CHUNK):
            yield chunk.part(start, start + _POOL_CHUNK)


def _count(plan: Plan) -> int:
    return plan.worker_count or cpu_count() or 1


def _pool(
    defense: InlineDefense, plan: Plan
) -> tuple[Executor, Callable[[Sequence[Prompt]], Answers]]:
    if plan.workers is Workers.THREADS:
        decide = skipping(defense.decide_now, defense.view)
        return ThreadPoolExecutor(_count(plan)), partial(decide_all, decide)
    factory = plan.factories.get(defense.name)
    if factory is None:
        raise ConfigError(
            f"{defense.name} cannot run in processes: it cannot be built there.\n"
            "Next: set workers to threads or inline."
        )
    # Loaded on use: five hundredths of a second of a run that asks in line.
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    context = get_context("spawn")
    pool = ProcessPoolExecutor(
        _count(plan), mp_context=context, initializer=_build, initargs=(factory,)
    )
    return pool, _ask_built


_built: list[Callable[[Prompt], Decision]] = []


def _build(factory: Callable[[], InlineDefense]) -> None:
    defense = factory()
    _built[:] = [skipping(defense.decide_now, defense.view)]


def _ask_built(prompts: Sequence[Prompt]) -> Answers:
    return decide_all(_built[0], prompts)
