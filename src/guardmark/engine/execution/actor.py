"""The other side of a Ray cluster: what happens inside one actor."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns
from typing import TYPE_CHECKING

from guardmark.core.errors import GuardmarkError
from guardmark.core.outcome import Decision
from guardmark.core.protocols import BatchDefense, InlineDefense
from guardmark.core.sample import Prompt
from guardmark.defenses.deadline import timeout_of
from guardmark.engine.calls import (
    Answers,
    as_coroutine,
    as_decision,
    attempt,
    decide_all,
    decide_batch,
    skipping,
)
from guardmark.engine.execution.worker import packed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guardmark.defenses.calls.failure import Failure
    from guardmark.engine.plan import AnyDefense, BuiltPart


class DefenseActor:
    """One worker of a cluster: it builds its defense once, and keeps it from batch to batch."""

    def __init__(self) -> None:
        # One loop for all batches: pipes of a defense in a process belong to it.
        self._runner = asyncio.Runner()
        self._defense: AnyDefense

    def load(self, factory: Callable[[], BuiltPart], warmup: int) -> str:
        """Build the defense and ask it a few times; return why that cannot be, or nothing."""
        try:
            self._defense = factory().part
        except GuardmarkError as error:
            return str(error)
        for _ in range(max(1, warmup)):  # no measured call is a cold one
            self._answers([Prompt.of_text("Which vegetables can I plant in early spring?")])
        return ""

    def ask(self, prompts: Sequence[Prompt]) -> bytes:
        """Return decisions and latencies, or nothing where the batch was too much for memory."""
        try:
            return packed(*self._answers(prompts))
        except MemoryError:
            return b""

    def close(self) -> None:
        """Give the loop back."""
        self._runner.close()

    def _answers(self, prompts: Sequence[Prompt]) -> Answers:
        defense, began = self._defense, perf_counter_ns()
        if isinstance(defense, BatchDefense):
            work = decide_batch(defense, prompts, on_failure=_give_up_without_memory)
            decisions = self._runner.run(work)
            share = (perf_counter_ns() - began) // len(prompts)
            return decisions, [share] * len(prompts)
        if isinstance(defense, InlineDefense):
            decide = skipping(defense.decide_now, defense.view)
            return decide_all(decide, prompts, timeout_s=timeout_of(defense))
        # Outside of this class: a coroutine in it would have Ray make it an actor of tasks.
        return self._runner.run(_one_by_one(defense, prompts))


async def _one_by_one(defense: AnyDefense, prompts: Sequence[Prompt]) -> Answers:
    ask, decisions, latencies = as_coroutine(defense), list[Decision](), list[int]()
    for prompt in prompts:
        began = perf_counter_ns()
        decisions.append(as_decision(await attempt(ask, prompt)))
        latencies.append(perf_counter_ns() - began)
    return decisions, latencies


def _give_up_without_memory(failure: Failure) -> None:
    if "MemoryError" in failure.message or "out of memory" in failure.message.lower():
        raise MemoryError
