"""A wish to stop, from a signal handler or another thread."""

from __future__ import annotations


class StopSignal:
    """Set once; the engine looks at it many times a second.

    Attributes:
        reason: Why to stop; empty while nobody asked.
    """

    __slots__ = ("reason",)

    def __init__(self) -> None:
        self.reason = ""

    def set(self, reason: str = "interrupted") -> None:
        """Ask the run to end; what is finished is stored, what is in flight is dropped.

        Args:
            reason: Why, in a word.
        """
        self.reason = self.reason or reason

    @property
    def is_set(self) -> bool:
        """Whether somebody asked."""
        return bool(self.reason)
