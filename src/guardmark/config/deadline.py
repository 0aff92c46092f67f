"""How long a call in this process may take, and the alarm that ends it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from threading import current_thread, main_thread
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from guardmark.config.settings import Settings
from guardmark.core.errors import UntrustworthyRun
from guardmark.core.outcome import ErrorKind

if TYPE_CHECKING:
    from collections.abc import Callable

_AGAIN_S: Final = 0.5  # a part may swallow what is raised in it: it is raised again
_ALARM: Final = getattr(signal, "SIGALRM", None)  # not there on Windows
FOLDER_TIMEOUT_S: Final = 1.5  # time of a part that nobody but a run folder names
LOST_S: Final = 20.0  # in overruns one after the other, before no more is asked
PATTERN_TIMEOUT_S: Final = 10.0  # time of a defense that searches with regular expressions
CODE_TIMEOUT_S: Final = 60.0  # time of a function, and of a batch of a local model


class Overrun(BaseException):
    """Raised into a call that took all of its time; no `except Exception` of a part holds it."""


class CallAlarm:
    """Ends the call that this thread is in once its time is over, by an alarm of the system.

    Unlike a thread it ends a search of `re`; it works in the main thread, not on Windows.
    """

    __slots__ = ("_before", "_began", "_finished_s", "_look", "_stopped", "_timeout_s")

    def __init__(
        self,
        timeout_s: float | None,
        *,
        finished_s: Callable[[], float] | None = None,
        look: Callable[[], None] | None = None,
    ) -> None:
        """Take the time of one call, and what the calls before it took in this context."""
        self._timeout_s = timeout_s
        self._finished_s = finished_s
        self._look = look
        self._began = 0.0
        self._before: Any = None
        self._stopped = (0.0, 0.0)

    def __enter__(self) -> Self:
        """Set the alarm."""
        if _ALARM is None or self._timeout_s is None or current_thread() is not main_thread():
            self._timeout_s = None
            return self
        self._began = monotonic()
        self._before = signal.signal(_ALARM, self._on_alarm)
        self._stopped = signal.setitimer(signal.ITIMER_REAL, self._timeout_s, _AGAIN_S)
        return self

    def __exit__(self, *_: object) -> None:
        """Put the alarm off, and set again what was set before."""
        if _ALARM is None or self._timeout_s is None:
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(_ALARM, self._before)
        left_s, interval_s = self._stopped
        if left_s:  # somebody else's alarm
            left_s = max(1e-3, left_s - (monotonic() - self._began))
            signal.setitimer(signal.ITIMER_REAL, left_s, interval_s)

    def _on_alarm(self, _number: int, _frame: object) -> None:
        if self._look is not None:
            self._look()
        if self._timeout_s is None:
            return
        finished_s = 0.0 if self._finished_s is None else self._finished_s()
        left_s = self._began + finished_s + self._timeout_s - monotonic()
        if left_s <= 0:
            raise Overrun(overrun_message(self._timeout_s))
        signal.setitimer(signal.ITIMER_REAL, left_s, _AGAIN_S)


@dataclass(slots=True, kw_only=True)
class Patience:
    """Ends what would take hours: overruns in a row, or slow calls of what a folder names.

    Attributes:
        is_foreign: Whether what is asked comes from a stranger's folder.
        lost_s: Seconds that went to calls that were too slow.
    """

    is_foreign: bool = False
    lost_s: float = 0.0

    def note(self, name: str, took_ns: int, error: ErrorKind | None = None) -> None:
        """Note a call, and raise where there were too many that did not end."""
        took_s = took_ns / 1e9
        if self.is_foreign:
            most_s = 2 * FOLDER_TIMEOUT_S
            is_lost = 6 * took_s > FOLDER_TIMEOUT_S
        else:
            most_s = max(LOST_S, 2.5 * took_s)
            is_lost = error is ErrorKind.TIMEOUT
        if is_lost:
            self.lost_s += took_s
        elif not self.is_foreign:
            self.lost_s = 0.0
        if self.lost_s > most_s:
            raise UntrustworthyRun(
                f"{name} is asked no more: {self.lost_s:.0f} s went to slow calls. All is saved.\n"
                "Next: repair it, and measure again with your own configuration (guardmark run)."
            )


def overrun_message(timeout_s: float) -> str:
    """Say that a call took too long."""
    return f"no answer within {timeout_s:g} s (timeout_s)"


class GrownSettings(Settings):
    """Settings that grew: what is left unset is not written, so that older runs stay the same."""

    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_unset(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        usual = {name: fields[name].get_default(call_default_factory=True) for name in self.later}
        written = write(self).items()
        return {k: v for k, v in written if k not in usual or getattr(self, k) != usual[k]}


class TimedSettings(GrownSettings):
    """Settings of a part that runs in this process."""

    later: ClassVar[tuple[str, ...]] = ("timeout_s",)
    timeout_s: float = Field(CODE_TIMEOUT_S, gt=0, le=86_400)
