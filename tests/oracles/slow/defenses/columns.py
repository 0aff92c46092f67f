"""Samples and decisions of a run as columns, a few bytes each, for slow references.

Plain arrays of the standard library: a million samples fit beside everything else.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.oracles.slow.source import ERRORS, OUTCOMES, word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.oracles.slow.source import Kind, Source

ALONE: Final = -1
"""Group of a sample that shares its group with none and is answered once."""
NOTHING: Final = -1
"""Marks what is absent in a column of numbers from 0."""
_AMORTISED, _COLD, _CACHED, _PLANNED = 1, 2, 4, 16

_SAMPLES: Final = (
    "SELECT s.position, s.kind, s.length, g.first FROM samples s"
    " JOIN kinds k ON k.id = s.kind LEFT JOIN"
    " (SELECT coalesce(origin, id) AS name, min(position) AS first FROM samples"
    " GROUP BY coalesce(origin, id) HAVING count(*) > 1) g"
    " ON g.name = coalesce(s.origin, s.id) ORDER BY s.position"
)
_DECISIONS: Final = (
    "SELECT sample, repeat, outcome, ifnull(error_kind, -1), flags, ifnull(latency_ns, -1), score"
    " FROM records WHERE defense = (SELECT id FROM defenses WHERE name = ?) AND stage = 0"
    " AND layer = (SELECT id FROM layers WHERE name = 'run') ORDER BY repeat, sample"
)
_REPEATED: Final = "SELECT EXISTS (SELECT 1 FROM records WHERE stage = 0 AND repeat > 0)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The samples of a run, one place each, in order."""

    positions: array[int] = field(default_factory=lambda: array("q"))
    kinds: array[int] = field(default_factory=lambda: array("i"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    groups: array[int] = field(default_factory=lambda: array("q"))
    of_kind: dict[int, Kind]

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(self.positions)

    def group_count(self) -> int:
        """Return how many groups there are."""
        return self.groups.count(ALONE) + len(set(self.groups) - {ALONE})

    def place(self, position: int) -> int:
        """Return the place of a position, or `NOTHING` where no sample has it."""
        positions = self.positions
        if position < len(positions) and positions[position] == position:
            return position  # as nearly always: nothing is missing
        at = bisect_left(positions, position)
        return at if at < len(positions) and positions[at] == position else NOTHING

    def group(self, place: int) -> int:
        """Return what tells the group at a place from others."""
        known = self.groups[place]
        return self.positions[place] if known == ALONE else known

    def is_attack(self, place: int) -> bool:
        """Return the label at a place."""
        return self.of_kind[self.kinds[place]].is_attack


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What one defense decided in the run itself, one row each, by repeat, then sample."""

    places: array[int] = field(default_factory=lambda: array("i"))
    repeats: array[int] = field(default_factory=lambda: array("i"))
    outcomes: bytearray = field(default_factory=bytearray)
    errors: array[int] = field(default_factory=lambda: array("b"))
    flags: bytearray = field(default_factory=bytearray)
    latencies_ns: array[int] = field(default_factory=lambda: array("q"))
    scores: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.places)

    def is_timed(self, row: int) -> bool:
        """Whether a time counts: measured, warm, uncached; of errors only timeouts."""
        if self.latencies_ns[row] == NOTHING or self.flags[row] & (_COLD | _CACHED):
            return False
        return OUTCOMES[self.outcomes[row]] != "error" or self.is_late(row)

    def is_late(self, row: int) -> bool:
        """Whether no answer came in time."""
        return self.errors[row] != NOTHING and word(ERRORS, self.errors[row]) == "timeout"

    def is_cold(self, row: int) -> bool:
        """Whether it was answered before the service was warm."""
        return bool(self.flags[row] & _COLD)

    def is_cached(self, row: int) -> bool:
        """Whether it was kept from an earlier run."""
        return bool(self.flags[row] & _CACHED)

    def is_amortised(self, row: int) -> bool:
        """Whether its time is a share of a batch's."""
        return bool(self.flags[row] & _AMORTISED)

    def is_from_plan(self, row: int) -> bool:
        """Whether its time counts from when it was planned."""
        return bool(self.flags[row] & _PLANNED)


def read_samples(source: Source) -> Samples:
    """Read the samples of a run into columns."""
    found = Samples(of_kind=source.kinds)
    # With repeats even a sample of its own is answered more than once.
    (is_repeated,) = source.connection.execute(_REPEATED).fetchone()
    for position, kind, length, first in source.connection.execute(_SAMPLES):
        found.positions.append(position)
        found.kinds.append(kind)
        found.lengths.append(length)
        lone = position if is_repeated else ALONE
        found.groups.append(lone if first is None else first)
    return found


def read_decisions(source: Source, samples: Samples, defense: str) -> Decisions:
    """Read what one defense decided into columns."""
    found = Decisions()
    for position, repeat, outcome, error, flags, latency_ns, score in source.connection.execute(
        _DECISIONS, (defense,)
    ):
        place = samples.place(position)
        if place == NOTHING:
            continue
        found.places.append(place)
        found.repeats.append(repeat)
        word(OUTCOMES, outcome)
        found.outcomes.append(outcome)
        found.errors.append(error)
        found.flags.append(flags)
        found.latencies_ns.append(latency_ns)
        found.scores.append(float("nan") if score is None else score)
    return found


def side_of(samples: Samples, places: Sequence[int], *, is_attack: bool) -> array[int]:
    """Return the rows whose sample has a label."""
    wanted = {number for number, kind in samples.of_kind.items() if kind.is_attack == is_attack}
    kinds = samples.kinds
    return array("i", [row for row, place in enumerate(places) if kinds[place] in wanted])
