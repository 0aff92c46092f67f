"""Where the answers of one part arrive, and what is on its way there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guardmark.core.sample import Prompt
    from guardmark.engine.progress import Tally
    from guardmark.store.lanes import Lane


class Desk:
    """Where the answers of one part arrive: its lane and its counts."""

    __slots__ = ("lane", "name", "tally")

    def __init__(self, lane: Lane, tally: Tally) -> None:
        self.lane = lane
        self.tally = tally
        self.name = tally.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One sample on its way to a defense."""

    desk: Desk
    position: int
    is_attack: bool
    prompt: Prompt
