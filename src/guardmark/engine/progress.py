"""How far a run is: counters that grow while it goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guardmark.store.schema import OUTCOME_CODE, OUTCOME_NAMES

if TYPE_CHECKING:
    from guardmark.core.outcome import Outcome
    from guardmark.core.record import Stage

OUTCOMES: Final = len(OUTCOME_NAMES)
"""Outcomes counted for each label; a count lies at `outcome + OUTCOMES * is_attack`."""


@dataclass(slots=True, eq=False)
class ProgressCounts:
    """Counts of one part by label and outcome."""

    name: str
    stage: Stage
    planned: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * (2 * OUTCOMES))

    @property
    def done(self) -> int:
        """Number of records."""
        return sum(self.counts)

    def failed(self, outcome: Outcome) -> int:
        """Number of answers that are none, of one kind."""
        return sum(self.counts[OUTCOME_CODE[outcome] :: OUTCOMES])

    def blocked(self, *, is_attack: bool) -> tuple[int, int]:
        """Return how many attacks, or benign samples, were blocked, and of how many answered."""
        allowed, blocked = self.counts[OUTCOMES * is_attack :][:2]
        return blocked, allowed + blocked


class Progress:
    """Counters of a run; written by the engine, read by anybody, also by another thread."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[ProgressCounts] = []

    def of(self, name: str, stage: Stage) -> ProgressCounts:
        """Return the counts of a part, new ones if it has none."""
        for part in self.parts:
            if part.name == name and part.stage == stage:
                return part
        part = ProgressCounts(name, stage)
        self.parts.append(part)
        return part

    @property
    def planned(self) -> int:
        """Records the run will have, as far as known."""
        return sum(part.planned for part in self.parts)

    @property
    def done(self) -> int:
        """Records the run has, earlier runs of the same command included."""
        return sum(part.done for part in self.parts)
