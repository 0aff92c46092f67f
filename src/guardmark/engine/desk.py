"""Where the answers of one part arrive, and what is on its way there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guardmark.core.sample import Prompt
    from guardmark.engine.progress import ProgressCounts
    from guardmark.store.lanes import RecordBatch


class Recorder:
    """Where the answers of one part arrive: its lane and its counts."""

    __slots__ = ("lane", "name", "tally")

    def __init__(self, lane: RecordBatch, tally: ProgressCounts) -> None:
        self.lane = lane
        self.tally = tally
        self.name = tally.name


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSample:
    """One sample on its way to a defense."""

    desk: Recorder
    position: int
    is_attack: bool
    prompt: Prompt
