"""Signals that end a run in order: Ctrl-C, termination, a closed terminal."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from guardmark.engine.supervision import StopSignal

_HANGUP = getattr(signal, "SIGHUP", None)  # neither is there on Windows
_ALARM = getattr(signal, "SIGALRM", None)
_PATIENCE_S = 0.5
_RINGS = 4


def ending_signals() -> Iterator[int]:
    """Name the signals that ask a command to end."""
    yield from (signal.SIGINT, signal.SIGTERM)
    # A command started with nohup goes on when the terminal closes.
    if _HANGUP is not None and signal.getsignal(_HANGUP) is not signal.SIG_IGN:
        yield _HANGUP


@contextmanager
def interruptible(stop: StopSignal) -> Iterator[None]:
    """Turn the first Ctrl-C or termination into an orderly end; the second one ends at once.

    A call that does not come back by then is abandoned, as is what comes before the first or after
    the last. What parts print goes to stderr: stdout carries what the command says.
    """
    rings = 0

    def on_signal(number: int, _frame: object) -> None:
        # A terminal that closes may hang up more than once.
        if stop.reason and number != _HANGUP:
            raise KeyboardInterrupt
        stop.set(signal.Signals(number).name)
        if _ALARM is not None:
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S, _PATIENCE_S)

    def on_alarm(_number: int, _frame: object) -> None:
        nonlocal rings
        rings += 1
        stop.abandon_call()
        if rings >= _RINGS and not stop.is_seen:
            raise KeyboardInterrupt

    handlers: dict[int, Callable[[int, object], None]] = dict.fromkeys(ending_signals(), on_signal)
    if _ALARM is not None:
        handlers[_ALARM] = on_alarm
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        with redirect_stdout(sys.stderr):
            yield
        if stop.reason and not stop.is_seen:
            raise KeyboardInterrupt
    finally:
        if _ALARM is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
