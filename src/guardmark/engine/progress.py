"""How far a run is: counters that grow while it goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guardmark.store.schema import OUTCOME_CODE, OUTCOME_NAMES

if TYPE_CHECKING:
    from guardmark.core.record import Stage

OUTCOMES: Final = len(OUTCOME_NAMES)
"""Outcomes counted for each label; a count lies at `outcome + OUTCOMES * is_attack`."""
_FAILED: Final = (OUTCOME_CODE["malformed"], OUTCOME_CODE["error"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PartProgress:
    """How far one part is, at one moment."""

    name: str
    stage: Stage
    planned: int
    done: int
    attacks_answered: int
    attacks_blocked: int
    benign_answered: int
    benign_blocked: int
    malformed: int
    errors: int


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

    def pulse(self) -> PartProgress:
        """Return the present counts as a value."""
        counts = list(self.counts)
        benign, attacks = counts[:OUTCOMES], counts[OUTCOMES:]
        malformed, error = _FAILED
        return PartProgress(
            name=self.name,
            stage=self.stage,
            planned=self.planned,
            done=sum(counts),
            attacks_answered=attacks[0] + attacks[1],
            attacks_blocked=attacks[1],
            benign_answered=benign[0] + benign[1],
            benign_blocked=benign[1],
            malformed=benign[malformed] + attacks[malformed],
            errors=benign[error] + attacks[error],
        )


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

    def snapshot(self) -> tuple[PartProgress, ...]:
        """Return the present counts of every part."""
        return tuple(part.pulse() for part in list(self.parts))
