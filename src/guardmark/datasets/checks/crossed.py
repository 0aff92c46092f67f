"""Rows that share a second origin: a column whose values occur in most groups, as injections do.

Tasks times injections is the usual case: the group of a row is its task, and rows of one injection
are alike too. Where a data set names one factor alone, and the other has fewer values, intervals
are far too narrow.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass
from guardmark.datasets.formats.turns import CONVERSATION, JOINED, TURN, TURNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.core.sample import Sample

_LEAST_VALUES: Final = 3  # of both factors: two values are a condition and not a draw
_LEAST_FILLED: Final = 0.5  # of all pairs of a group and a value
_MOST_COLUMNS: Final = 3
_OF_TURNS: Final = (CONVERSATION, TURN, TURNS, JOINED)
"""What is noted of a turn: its number is a condition of every conversation, and no draw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossedColumn:
    """A column of metadata that crosses the groups.

    Attributes:
        name: Of the column.
        values: How many it has.
        groups: Groups that have any of them.
        filled: Share of all pairs of a group and a value that occur.
    """

    name: str
    values: int
    groups: int
    filled: float

    @property
    def has_fewer(self) -> bool:
        """Whether it has fewer values than there are groups, so that it should be the group."""
        return self.values < self.groups


def find_crossed(samples: Sequence[Sample]) -> tuple[CrossedColumn, ...]:
    """Find columns of metadata whose values occur in most groups, those with fewest values first.

    A column that is unique to a row, equal for all, or nested in the groups crosses nothing. Text,
    whole numbers and truth values count.
    """
    pairs: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    rows: defaultdict[str, int] = defaultdict(int)
    for sample in samples:
        for name, value in sample.metadata.items():
            is_ours = name in _OF_TURNS and CONVERSATION in sample.metadata
            if isinstance(value, str | int) and not is_ours:
                pairs[name].add((sample.lineage, str(value)))
                rows[name] += 1
    columns = []
    for name, seen in pairs.items():
        groups, values = {group for group, _ in seen}, {value for _, value in seen}
        filled = len(seen) / (len(groups) * len(values))
        if min(len(groups), len(values)) < _LEAST_VALUES or filled < _LEAST_FILLED:
            continue
        columns.append(
            CrossedColumn(name=name, values=len(values), groups=len(groups), filled=filled)
        )
    return tuple(sorted(columns, key=lambda each: (each.values, each.name)))


def crossed_line(column: CrossedColumn) -> str:
    """Say how a column crosses the groups."""
    return (
        f"metadata.{column.name}: {column.values:,} values, which occur in most of "
        f"{column.groups:,} groups ({column.filled:.0%} of all pairs)"
    )


def note_crossed(samples: Sequence[Sample]) -> Iterator[str]:
    """Say which columns cross the groups, and which of both should be the group."""
    for column in find_crossed(samples)[:_MOST_COLUMNS]:
        if column.has_fewer:
            alone = f"where one has to do, {column.name} alone: it has fewer values"
        else:
            alone = "where one has to do, the groups as they are: they have fewer values"
        yield (
            f"Rows are crossed: {crossed_line(column)}. Rows that share a value are alike, as rows "
            "of a group are, and intervals know the groups alone. Next: name both (map: {group: "
            f"[GROUP, {column.name}]}}), or {alone}."
        )
