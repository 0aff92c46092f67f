"""The other side of a pool: what happens inside one of its processes, or an actor of a cluster."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
from threading import Thread
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING

from guardmark.core.errors import GuardmarkError
from guardmark.core.outcome import Decision, ErrorKind
from guardmark.core.sample import Prompt
from guardmark.core.values import dataclass
from guardmark.defenses.calls.failure import Failure
from guardmark.defenses.guard import as_guard
from guardmark.engine.calls import (
    Answers,
    as_coroutine,
    as_decision,
    attempt,
    decide_all,
    decide_batch,
    inline_decide,
)

if TYPE_CHECKING:
    from collections.abc import Callable, MutableSequence, Sequence
    from multiprocessing.synchronize import Event

    from guardmark.core.manifest import PartManifest
    from guardmark.core.protocols import Capabilities, Guard
    from guardmark.engine.plan import BuiltPart

_CANNOT_TRAVEL = (pickle.PicklingError, AttributeError, RecursionError, TypeError, ValueError)
_built: list[Callable[[Sequence[Prompt], int], bytes]] = []


def build(factory: Callable[[], BuiltPart], over: Event, calls: MutableSequence[float]) -> None:
    """Make this process ready: deaf to Ctrl-C, bound to its parent, with a defense of its own."""
    # The parent hears Ctrl-C and ends the run in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout = sys.stderr  # what a defense prints is no part of our output
    Thread(target=_follow_parent, daemon=True).start()
    guard = as_guard(factory().part)
    decide, timeout_s = inline_decide(guard), guard.capabilities.timeout_s

    def ask_all(prompts: Sequence[Prompt], slot: int) -> bytes:
        watched = note_calls(over.is_set, calls, slot)
        decisions, latencies = decide_all(decide, prompts, is_over=watched, timeout_s=timeout_s)
        calls[2 * slot + 1] = 0.0
        return _packed(decisions, latencies)

    _built[:] = [ask_all]


def ask(prompts: Sequence[Prompt], slot: int) -> bytes:
    """Ask the defense of this process."""
    return _built[0](prompts, slot)


def _packed(decisions: list[Decision], latencies: list[int]) -> bytes:
    """Return answers as they leave a process; a decision that cannot leave becomes an error."""
    try:
        return pickle.dumps((decisions, latencies))
    except _CANNOT_TRAVEL:
        return pickle.dumps(([_that_travels(each) for each in decisions], latencies))


def note_calls(
    is_over: Callable[[], bool], calls: MutableSequence[float], slot: int
) -> Callable[[], bool]:
    """Note before each call of a chunk that it begins, where whoever ends late calls looks."""
    index = -1

    def is_over_now() -> bool:
        nonlocal index
        index += 1
        calls[2 * slot + 1] = monotonic()  # first: a call that just begins is not late
        calls[2 * slot] = index
        return is_over()

    return is_over_now


def _that_travels(decision: Decision) -> Decision:
    try:
        pickle.dumps(decision)
    except _CANNOT_TRAVEL as error:
        message = f"the decision cannot leave its process: {type(error).__name__}: {error}"
        return Failure(ErrorKind.CONTRACT, message).as_decision()
    return decision


def _follow_parent() -> None:
    """End when the parent is gone, however it ended: nobody waits for the answers any more."""
    from multiprocessing import parent_process  # where a process was started, it is loaded already

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltThere:
    """What a worker says of the defense that it has built."""

    manifest: PartManifest
    remarks: Sequence[str] | None
    capabilities: Capabilities


class DefenseActor:
    """One worker of a cluster: it builds its defense once, and keeps it from batch to batch."""

    def __init__(self) -> None:
        # One loop for all batches: pipes of a defense in a process belong to it.
        self._runner = asyncio.Runner()
        self._guard: Guard

    def load(self, factory: Callable[[], BuiltPart], warmup: int) -> BuiltThere | str:
        """Build the defense and ask it a few times; say what it is, or why that cannot be."""
        try:
            built = factory()
        except GuardmarkError as error:
            return str(error)
        self._guard = as_guard(built.part)
        for _ in range(warmup):  # no measured call is a cold one
            self._answers([Prompt.of_text("Which vegetables can I plant in early spring?")])
        return BuiltThere(
            manifest=built.manifest,
            remarks=built.remarks,
            capabilities=self._guard.capabilities,
        )

    def ask(self, prompts: Sequence[Prompt]) -> bytes:
        """Return decisions and latencies, or nothing where the batch was too much for memory."""
        try:
            return _packed(*self._answers(prompts))
        except MemoryError:
            return b""

    def close(self) -> None:
        """Give the loop back."""
        self._runner.close()

    def _answers(self, prompts: Sequence[Prompt]) -> Answers:
        guard, began = self._guard, perf_counter_ns()
        if guard.capabilities.batch is not None:
            work = decide_batch(guard, prompts, on_failure=_give_up_without_memory)
            decisions = self._runner.run(work)
            share = (perf_counter_ns() - began) // len(prompts)
            return decisions, [share] * len(prompts)
        if guard.capabilities.is_inline:
            decide = inline_decide(guard)
            return decide_all(decide, prompts, timeout_s=guard.capabilities.timeout_s)
        # Outside of this class: a coroutine in it would have Ray make it an actor of tasks.
        return self._runner.run(_one_by_one(guard, prompts))


async def _one_by_one(guard: Guard, prompts: Sequence[Prompt]) -> Answers:
    ask, decisions, latencies = as_coroutine(guard), list[Decision](), list[int]()
    for prompt in prompts:
        began = perf_counter_ns()
        decisions.append(as_decision(await attempt(ask, prompt)))
        latencies.append(perf_counter_ns() - began)
    return decisions, latencies


def _give_up_without_memory(failure: Failure) -> None:
    if "MemoryError" in failure.message or "out of memory" in failure.message.lower():
        raise MemoryError
