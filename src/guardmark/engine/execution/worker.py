"""The other side of a pool of processes: what happens inside one of them."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from multiprocessing import parent_process
from threading import Thread
from typing import TYPE_CHECKING

from guardmark.core.outcome import ErrorKind
from guardmark.engine.calls import Failure, decide_all, skipping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.synchronize import Event

    from guardmark.core.outcome import Decision
    from guardmark.core.protocols import InlineDefense
    from guardmark.core.sample import Prompt

_CANNOT_TRAVEL = (pickle.PicklingError, AttributeError, RecursionError, TypeError, ValueError)
_built: list[Callable[[Sequence[Prompt]], bytes]] = []


def build(factory: Callable[[], InlineDefense], over: Event) -> None:
    """Make this process ready: deaf to Ctrl-C, bound to its parent, with a defense of its own."""
    # The parent hears Ctrl-C and ends the run in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout = sys.stderr  # what a defense prints is no part of our output
    Thread(target=_follow_parent, daemon=True).start()
    defense = factory()
    decide = skipping(defense.decide_now, defense.view)

    def ask_all(prompts: Sequence[Prompt]) -> bytes:
        decisions, latencies = decide_all(decide, prompts, is_over=over.is_set)
        try:
            return pickle.dumps((decisions, latencies))
        except _CANNOT_TRAVEL:
            return pickle.dumps(([_that_travels(each) for each in decisions], latencies))

    _built[:] = [ask_all]


def ask(prompts: Sequence[Prompt]) -> bytes:
    """Ask the defense of this process."""
    return _built[0](prompts)


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
