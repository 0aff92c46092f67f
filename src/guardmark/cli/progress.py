"""The progress line of a run on stderr, and how a signal ends a run in order."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Self

from guardmark.cli.terminal import ending_signals, in_line, tell
from guardmark.core.outcome import Outcome
from guardmark.core.record import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from guardmark.engine.run_monitor import Progress, ProgressCounts, StopSignal


_PLAIN_EVERY_S = 5.0
_LIVE_EVERY_S = 0.25
_RECENT_S = 60.0
_WHOLE = 10_000  # a log gets whole lines
_CLEAR = "\r\x1b[2K"


class ProgressLine:
    """Prints the counters of a run while a block runs, from a thread that no defense holds up."""

    def __init__(self, progress: Progress, *, quiet: bool = False, is_attack: bool = False) -> None:
        self._progress = progress
        self._is_attack = is_attack  # which may end long before all that is planned
        self._refused: deque[tuple[float, dict[str, int]]] = deque()
        self._is_live = sys.stderr.isatty()
        self._is_quiet = quiet
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._seen: deque[tuple[float, int]] = deque()
        self._told: dict[str, int] = {}
        self._answering = ""  # the defense from which an answer came last
        self._began: float | None = None  # when the first line was printed

    def __enter__(self) -> Self:
        """Start printing."""
        if not self._is_quiet:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop printing, leaving no half line behind."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._began is not None:
            tell(
                f"{_CLEAR if self._is_live else ''}{self.closing(time.monotonic() - self._began)}\n"
            )

    def _watch(self) -> None:
        pause = _LIVE_EVERY_S if self._is_live else _PLAIN_EVERY_S
        while not self._over.wait(pause):
            self._began = self._began or time.monotonic() - pause
            width = shutil.get_terminal_size().columns - 1 if self._is_live else _WHOLE
            line = self.line(time.monotonic(), width)
            tell(f"{_CLEAR}{line}" if self._is_live else f"{line}\n")

    def line(self, now_s: float, width: int = _WHOLE) -> str:
        """Say how far the run is, at the speed of the last minute, so of the present defense."""
        pulses = self._progress.parts
        done, planned = self._progress.done, self._progress.planned
        self._seen.append((now_s, done))
        while now_s - self._seen[0][0] > _RECENT_S:
            self._seen.popleft()
        then_s, before = self._seen[0]
        share = f"{100 * done / planned:3.0f} %" if planned else "  ? %"
        most, left = ("at most ", "at most ") if self._is_attack else ("", "")
        parts = [f"{share}  {done:,} of {most}{planned:,}"]
        if now_s > then_s:
            rate = (done - before) / (now_s - then_s)
            parts.append(f"{rate:,.0f}/s")
            if rate and planned > done:
                parts.append(f"{left}{duration((planned - done) / rate)} left")
        parts.extend(self._waiting(now_s))
        for pulse in pulses:
            if pulse.stage is Stage.DEFENSE and pulse.done > self._told.get(pulse.name, 0):
                self._answering, self._told[pulse.name] = pulse.name, pulse.done
        defenses = (pulse for pulse in pulses if pulse.stage is Stage.DEFENSE)
        tries = [pulse.name for pulse in pulses if pulse.stage is Stage.TRY and pulse.done]
        rates = (_live_rates(each) for each in defenses if each.name == self._answering)
        parts.extend([f"attacking {tries[-1]}"] if tries else rates)
        parts.append(_failures(pulses))
        return fitted(map(in_line, parts), width)

    def _waiting(self, now_s: float) -> Iterator[str]:
        """Say for what a service made us wait in the last minute."""
        if not self._refused:
            self._refused.append((now_s, {}))
        self._refused.append((now_s, dict(self._progress.failed())))
        while now_s - self._refused[1][0] > _RECENT_S:
            self._refused.popleft()
        before, now = self._refused[0][1], self._refused[-1][1]
        for kind, count in sorted(now.items()):
            if count > before.get(kind, 0):
                yield f"waiting: {kind}, {count:,} times"

    def closing(self, seconds: float) -> str:
        """Say what was measured, in which time, and how much of it failed."""
        done, planned = self._progress.done, self._progress.planned
        count = f"Asked {done:,}" if self._is_attack else f"Measured {done:,} of {planned:,}"
        again = (f"; {kind} {n:,} times" for kind, n in sorted(self._progress.failed().items()))
        failures = _failures(self._progress.parts)
        return f"{count} in {duration(seconds)}: {failures}{''.join(again)}"


def _failures(parts: Sequence[ProgressCounts]) -> str:
    errors = sum(part.failed(Outcome.ERROR) for part in parts)
    malformed = sum(part.failed(Outcome.MALFORMED) for part in parts)
    return f"{errors:,} errors, {malformed:,} malformed"


def fitted(parts: Iterable[str], width: int) -> str:
    """Join as many parts of a line as a width holds, whole ones; a first one too wide is cut."""
    line = ""
    for part in parts:
        longer = f"{line}  {part}" if line else part
        if line and len(longer) > width:
            break
        line = longer
    return line[: max(width, 0)]


def _live_rates(part: ProgressCounts) -> str:
    """The rates so far, with their counts, of the defense that is being measured."""
    caught, attacks = part.blocked(is_attack=True)
    pairs = ((attacks - caught, attacks), part.blocked(is_attack=False))
    asr, fpr = (f"{100 * n / of:.1f} % of {of:,}" if of else "undefined" for n, of in pairs)
    return f"{part.name}: ASR {asr}, FPR {fpr}"


def duration(seconds: float) -> str:
    """Say how long something takes, to the second."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


_HANGUP = getattr(signal, "SIGHUP", None)  # neither is there on Windows
_ALARM = getattr(signal, "SIGALRM", None)
_PATIENCE_S = 0.5
_RINGS = 4


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
