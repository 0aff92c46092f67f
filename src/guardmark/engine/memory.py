"""Asking a part, unless an earlier run kept the answer to the very same question."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from guardmark.core.outcome import Decision, Response, Verdict
from guardmark.engine.calls import attempt
from guardmark.store.cache import key_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from guardmark.core.sample import Prompt
    from guardmark.engine.ledger import RunMonitor

    About = tuple[Prompt, *tuple[str, ...]]


async def ask(
    call: Callable[..., Awaitable[Any]],
    about: About,
    *,
    ledger: RunMonitor,
    part: str,
    repeat: int,
) -> tuple[Any, int | None]:
    """Ask a part and take the time, or recall its answer."""
    memory = ledger.plan.memory
    identity = None if memory is None else memory.identities.get(part)
    if memory is None or identity is None:
        return await _timed(call, about, ledger)
    asked = (about[0].digest().hex(), *about[1:])
    key = key_of(identity, repeat=repeat, asked=asked)
    kept = memory.cache.recall(key)
    if kept is not None:
        return kept, None
    answer, took = await _timed(call, about, ledger)
    if isinstance(answer, Decision | Response | Verdict):
        memory.cache.keep(key, answer)
    return answer, took


async def _timed(
    call: Callable[..., Awaitable[Any]], about: tuple[Any, ...], ledger: RunMonitor
) -> tuple[Any, int]:
    ledger.calls += 1
    start = perf_counter_ns()
    answer = await attempt(call, *about)
    took = perf_counter_ns() - start
    ledger.busy_ns += took
    return answer, took
