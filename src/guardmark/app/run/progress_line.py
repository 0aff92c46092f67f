"""The line on stderr that says how far a run is, in a terminal, a log or a notebook."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Self

from guardmark.app.run.error_output import tell
from guardmark.core.errors import counted
from guardmark.core.outcome import Outcome
from guardmark.core.record import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from guardmark.core.budget import SpendingMeter
    from guardmark.engine.run_monitor import Progress, ProgressCounts


_PLAIN_EVERY_S = 5.0
_LIVE_EVERY_S = 0.25
_RECENT_S = 60.0
_SILENCE_S = 10.0  # without an answer, after which it is said who is waited for
_WHOLE = 10_000  # a log gets whole lines
_NOTEBOOK_WIDTH = 100


def is_notebook() -> bool:
    """Tell whether stderr is shown below a cell of a notebook, which knows no width."""
    return type(sys.stderr).__module__.startswith("ipykernel.")


class ProgressLine:
    """Prints the counters of a run while a block runs, from a thread that no defense holds up."""

    def __init__(
        self,
        progress: Progress,
        *,
        quiet: bool = False,
        is_attack: bool = False,
        meter: SpendingMeter | None = None,
    ) -> None:
        self._progress = progress
        self._meter = meter
        self._last_answer: tuple[float, int] | None = None  # when how many had been given
        self._is_attack = is_attack  # which may end long before all that is planned
        self._is_live = sys.stderr.isatty() or is_notebook()
        self._is_quiet = quiet
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._looks: deque[tuple[float, int, dict[str, int]]] = deque()  # of the last minute
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
            self._show(self.closing(time.monotonic() - self._began), end="\n")

    def _watch(self) -> None:
        """Show the line anew until the block is over."""
        pause, end = _PLAIN_EVERY_S, "\n"
        if self._is_live:
            pause, end = _LIVE_EVERY_S, ""
        while not self._over.wait(pause):
            self._began = self._began or time.monotonic() - pause
            self._show(self.line(time.monotonic(), self._width), end=end)

    @property
    def _width(self) -> int:
        if not self._is_live:
            return _WHOLE
        if is_notebook():
            return _NOTEBOOK_WIDTH
        return shutil.get_terminal_size().columns - 1

    def _show(self, line: str, *, end: str) -> None:
        """Write a line, over the one before where only one is shown."""
        # Blanks, since a notebook obeys a carriage return and nothing that clears a line.
        tell(f"\r{line:<{self._width}}{end}" if self._is_live else f"{line}{end}")

    def line(self, now_s: float, width: int = _WHOLE) -> str:
        """Say how far the run is, at the speed of the last minute, so of the present defense."""
        done, planned = self._progress.done, self._progress.planned
        if not planned:
            return fitted(["Preparing", duration(now_s - (self._began or now_s))], width)
        most = "at most " if self._is_attack else ""
        parts = [
            f"{100 * done / planned:3.0f} %  {done:,} of {most}{planned:,}",
            *self._waits(now_s, done),
            *self._pace(now_s, done, planned),
        ]
        if self._meter is not None and self._meter.cost:
            parts.append(f"{self._meter.cost:,.2f} spent")
        parts += self._rates()
        parts.append(_failures(self._progress.parts))
        return fitted(parts, width)

    def _waits(self, now_s: float, done: int) -> Iterator[str]:
        """Say what is waited for: a part that is silent, or a service that sends us away."""
        if self._last_answer is None or self._last_answer[1] != done:
            self._last_answer = now_s, done
        silent_s = now_s - self._last_answer[0]
        if silent_s >= _SILENCE_S:
            yield f"waiting for {self._waited_for()}, no answer for {duration(silent_s)}"
        failed = dict(self._progress.failed())
        self._looks.append((now_s, done, failed if self._looks else {}))
        while now_s - self._looks[0][0] > _RECENT_S:
            self._looks.popleft()
        earlier = self._looks[0][2]
        for kind, count in sorted(failed.items()):
            if count > earlier.get(kind, 0):
                yield f"waiting: {kind}, {count:,} times"

    def _pace(self, now_s: float, done: int, planned: int) -> Iterator[str]:
        """Say how fast it goes, and how long it may still take."""
        then_s, before, _ = self._looks[0]
        if now_s <= then_s:
            return
        rate = (done - before) / (now_s - then_s)
        yield f"{rate:,.0f}/s"
        if rate and planned > done:
            most = "at most " if self._is_attack else ""
            yield f"{most}{duration((planned - done) / rate)} left"

    def _rates(self) -> list[str]:
        """Tell the rates so far of the defense that answers, or whom an attack is on."""
        pulses = self._progress.parts
        for pulse in pulses:
            if pulse.stage is Stage.DEFENSE and pulse.done > self._told.get(pulse.name, 0):
                self._answering, self._told[pulse.name] = pulse.name, pulse.done
        tries = [pulse.name for pulse in pulses if pulse.stage is Stage.TRY and pulse.done]
        if tries:
            return [f"attacking {tries[-1]}"]
        rates = []
        for pulse in pulses:
            if pulse.stage is Stage.DEFENSE and pulse.name == self._answering:
                rates.append(_live_rates(pulse))
        return rates

    def _waited_for(self) -> str:
        """Name the part that is asked now: the one that has begun last and is not done."""
        under_way = [part for part in self._progress.parts if part.done < part.planned]
        if not under_way:
            return self._answering
        begun = [part for part in under_way if part.done]
        if begun:
            return begun[-1].name
        return under_way[0].name

    def closing(self, seconds: float) -> str:
        """Say what was measured, in which time, and how much of it failed."""
        done, planned = self._progress.done, self._progress.planned
        if not planned:
            return "Nothing was asked."
        measured = f"Measured {done:,} of {planned:,}"
        if self._is_attack:
            measured = f"Asked {done:,}"
        text = f"{measured} in {duration(seconds)}: {_failures(self._progress.parts)}"
        if self._meter is not None and self._meter.cost:
            text += f", {self._meter.cost:,.2f} spent"
        for kind, count in sorted(self._progress.failed().items()):
            text += f"; {kind} {count:,} times"
        return text


def _failures(parts: Sequence[ProgressCounts]) -> str:
    errors, malformed = 0, 0
    for part in parts:
        errors += part.failed(Outcome.ERROR)
        malformed += part.failed(Outcome.MALFORMED)
    return f"{counted(errors, 'error')}, {malformed:,} malformed"


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
    """Return the rates so far, with their counts, of the defense that is being measured."""
    caught, attacks = part.blocked(is_attack=True)
    alarms, benign = part.blocked(is_attack=False)
    asr, fpr = _share(attacks - caught, attacks), _share(alarms, benign)
    return f"{part.name}: ASR {asr}, FPR {fpr}"


def _share(hits: int, trials: int) -> str:
    if not trials:
        return "undefined"
    return f"{100 * hits / trials:.1f} % of {trials:,}"


def duration(seconds: float) -> str:
    """Say how long something takes, to the second."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
