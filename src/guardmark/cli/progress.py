"""How far a run is, on stderr: a live line on a terminal, a plain line every 5 s otherwise."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Self

from guardmark.cli.terminal import tell
from guardmark.core.record import Stage

if TYPE_CHECKING:
    from guardmark.engine.progress import PartProgress, Progress

_PLAIN_EVERY_S = 5.0
_LIVE_EVERY_S = 0.25


class ProgressLine:
    """Prints the counters of a run while a block runs.

    A thread reads them, so that a defense which keeps the loop busy does not stop the line.
    """

    def __init__(self, progress: Progress, *, quiet: bool = False) -> None:
        self._progress = progress
        self._is_live = sys.stderr.isatty()
        self._is_quiet = quiet
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._began = 0.0
        self._done_before = 0

    def __enter__(self) -> Self:
        """Start printing."""
        self._began = time.monotonic()
        if not self._is_quiet:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop printing, leaving no half line behind."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._is_live and not self._is_quiet:
            tell("\r\x1b[2K")

    def _watch(self) -> None:
        pause = _LIVE_EVERY_S if self._is_live else _PLAIN_EVERY_S
        while not self._over.wait(pause):
            if not self._done_before:
                self._done_before = self._progress.done
            line = self._line()
            tell(f"\r\x1b[2K{line}" if self._is_live else f"{line}\n")

    def _line(self) -> str:
        pulses = self._progress.snapshot()
        done, planned = self._progress.done, self._progress.planned
        elapsed = time.monotonic() - self._began
        rate = (done - self._done_before) / elapsed if elapsed else 0.0
        share = f"{100 * done / planned:3.0f} %" if planned else "  ? %"
        parts = [f"{share}  {done:,} of {planned:,}", f"{rate:,.0f}/s"]
        if rate and planned > done:
            parts.append(f"{_duration((planned - done) / rate)} left")
        parts.extend(_live_rates(pulse) for pulse in pulses[-1:] if pulse.stage is Stage.DEFENSE)
        errors = sum(pulse.errors for pulse in pulses)
        malformed = sum(pulse.malformed for pulse in pulses)
        parts.append(f"{errors:,} errors, {malformed:,} malformed")
        return "  ".join(parts)


def _live_rates(pulse: PartProgress) -> str:
    """The rates so far, with their counts, of the defense that is being measured."""
    attacks, benign = pulse.attacks_answered, pulse.benign_answered
    missed = attacks - pulse.attacks_blocked
    success = f"{100 * missed / attacks:.1f} % of {attacks:,}" if attacks else "undefined"
    alarms = f"{100 * pulse.benign_blocked / benign:.1f} % of {benign:,}" if benign else "undefined"
    return f"{pulse.name}: ASR {success}, FPR {alarms}"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
