"""How busy the event loop of a run was while it waited for services."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

LOOP_LOAD: Final = "loop_load"
"""Key under which the records keep it."""


class LoopLoad(NamedTuple):
    """Processor time of the loop's thread, of the time that it ran."""

    busy_ns: int = 0
    total_ns: int = 0

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read what the records keep; nothing is no load."""
        busy, _, total = (text or "0:0").partition(":")
        return cls(int(busy), int(total))

    @property
    def text(self) -> str:
        """As the records keep it."""
        return f"{self.busy_ns}:{self.total_ns}"

    @property
    def share(self) -> float | None:
        """Share of the time that the thread was busy, or None where it did not run."""
        return self.busy_ns / self.total_ns if self.total_ns else None
