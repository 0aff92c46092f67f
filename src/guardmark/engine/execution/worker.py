"""The other side of a pool of processes: what happens inside one of them."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from multiprocessing import parent_process
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING

from guardmark.core.outcome import ErrorKind
from guardmark.defenses.calls.failure import Failure
from guardmark.defenses.deadline import timeout_of
from guardmark.engine.calls import decide_all, skipping

if TYPE_CHECKING:
    from collections.abc import Callable, MutableSequence, Sequence
    from multiprocessing.synchronize import Event

    from guardmark.core.outcome import Decision
    from guardmark.core.protocols import InlineDefense
    from guardmark.core.sample import Prompt
    from guardmark.engine.plan import BuiltPart

_CANNOT_TRAVEL = (pickle.PicklingError, AttributeError, RecursionError, TypeError, ValueError)
_built: list[Callable[[Sequence[Prompt], int], bytes]] = []


def build(factory: Callable[[], BuiltPart], over: Event, calls: MutableSequence[float]) -> None:
    """Make this process ready: deaf to Ctrl-C, bound to its parent, with a defense of its own."""
    # The parent hears Ctrl-C and ends the run in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout = sys.stderr  # what a defense prints is no part of our output
    Thread(target=_follow_parent, daemon=True).start()
    defense: InlineDefense = factory().part
    decide, timeout_s = skipping(defense.decide_now, defense.view), timeout_of(defense)

    def ask_all(prompts: Sequence[Prompt], slot: int) -> bytes:
        watched = note_calls(over.is_set, calls, slot)
        decisions, latencies = decide_all(decide, prompts, is_over=watched, timeout_s=timeout_s)
        calls[2 * slot + 1] = 0.0
        return packed(decisions, latencies)

    _built[:] = [ask_all]


def ask(prompts: Sequence[Prompt], slot: int) -> bytes:
    """Ask the defense of this process."""
    return _built[0](prompts, slot)


def packed(decisions: list[Decision], latencies: list[int]) -> bytes:
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
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
