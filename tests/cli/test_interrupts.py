"""The moments at which a signal to this process ends a command, and how."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from guardmark.cli.interrupts import ending_signals, interruptible
from guardmark.engine.supervision import StopSignal

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ring(number: int) -> None:
    """Send a signal to this process."""
    os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def signals_are_as_before() -> Iterator[None]:
    """Hear all of them, and check that a block gave back what it took."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in ENDING}
    yield
    for number, handler in before.items():
        assert signal.signal(number, handler) is signal.default_int_handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("number", ENDING)
def test_the_first_signal_ends_a_run_in_order(number: signal.Signals) -> None:
    """The block goes on until it looks, and reads which signal came."""
    stop = StopSignal()
    with interruptible(stop):
        ring(number)
        assert stop.reason == number.name
        assert stop.is_set


def test_the_second_signal_ends_at_once() -> None:
    """Whoever rings twice does not want to wait."""
    stop = StopSignal()
    with interruptible(stop):
        ring(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            ring(signal.SIGTERM)
        assert stop.is_set
    assert stop.reason == "SIGINT"


def test_a_terminal_that_hangs_up_twice_is_heard_once() -> None:
    """What ends in order is not cut off by the same terminal going."""
    stop = StopSignal()
    with interruptible(stop):
        ring(signal.SIGHUP)
        ring(signal.SIGHUP)
        assert stop.is_set
    assert stop.reason == "SIGHUP"


def test_a_block_that_never_looks_is_ended_by_the_fourth_alarm() -> None:
    """A call that does not come back holds up nobody for long."""
    stop = StopSignal()
    with interruptible(stop):
        ring(signal.SIGINT)
        signal.setitimer(signal.ITIMER_REAL, 0)  # the alarms of this test alone
        for _ in range(3):
            ring(signal.SIGALRM)
        with pytest.raises(KeyboardInterrupt):
            ring(signal.SIGALRM)
        assert stop.is_set


def test_a_block_that_has_looked_may_take_its_time() -> None:
    """Storing what came in is not cut off by alarms."""
    stop = StopSignal()
    with interruptible(stop):
        ring(signal.SIGINT)
        assert stop.is_set
        for _ in range(6):
            ring(signal.SIGALRM)
    assert stop.reason == "SIGINT"


def test_a_signal_after_the_last_look_is_heard_at_the_end() -> None:
    """A command that was told to end does not go on to the next step."""
    stop = StopSignal()
    with pytest.raises(KeyboardInterrupt), interruptible(stop):
        ring(signal.SIGTERM)


def test_a_hang_up_that_is_ignored_stays_ignored() -> None:
    """As `nohup` wants it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in set(ending_signals())
        stop = StopSignal()
        with interruptible(stop):
            ring(signal.SIGHUP)
        assert not stop.is_set
    finally:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
