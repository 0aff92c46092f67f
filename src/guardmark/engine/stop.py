"""A wish to stop, from a signal handler or another thread."""

from __future__ import annotations


class Abandoned(KeyboardInterrupt):
    """Raised into a call that does not come back although the run is to end."""


class StopSignal:
    """Set once; the engine looks at it many times a second."""

    __slots__ = ("is_calling", "reason")

    def __init__(self) -> None:
        self.reason = ""
        self.is_calling = False

    def set(self, reason: str = "interrupted") -> None:
        """Ask the run to end; what is finished is stored, what is in flight is dropped."""
        self.reason = self.reason or reason

    @property
    def is_set(self) -> bool:
        """Whether somebody asked."""
        return bool(self.reason)
