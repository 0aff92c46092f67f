"""What a run with a rule had seen at each look, put together again from its stored answers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from tests.oracles.slow.source import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.oracles.slow.defenses.columns import Samples
    from tests.oracles.slow.defenses.recount import Recount
    from tests.oracles.slow.source import Source

_LOOKS: Final = 100
_DECIDED: Final = {"allow", "block"}


class Course:
    """Values of samples in the order in which their groups were asked about."""

    def __init__(self, rows: Iterable[tuple[int, int]]) -> None:
        told = sorted(rows)
        self._ranks = [rank for rank, _ in told]
        self._values = [value for _, value in told]
        totals: dict[int, list[int]] = {}
        for rank, value in told:
            total = totals.setdefault(rank, [0, 0])
            total[0] += value
            total[1] += 1
        self._groups = list(totals)
        self._sums = [(total, count) for total, count in totals.values()]

    def values(self, end: int) -> Sequence[int]:
        """Return the values of the first so many groups of the run."""
        return self._values[: bisect_left(self._ranks, end)]

    def sums(self, end: int) -> Sequence[tuple[int, int]]:
        """Return sum and number of the values of each of the first so many groups with any."""
        return self._sums[: bisect_left(self._groups, end)]

    def group(self, number: int) -> int:
        """Return which group of the run the so-manieth sum belongs to, from 0."""
        return self._groups[number]


class Looks:
    """The order of groups, and how many of them each look covers."""

    def __init__(self, source: Source, samples: Samples) -> None:
        seed, names = source.manifest["seed"], source.groups()

        def drawn(name: str) -> tuple[bytes, str]:
            return sha256(f"{seed}\0{name}".encode("utf-8", "surrogatepass")).digest()[:8], name

        ranks = {name: rank for rank, name in enumerate(sorted(set(names), key=drawn))}
        self._ranks = [ranks[name] for name in names]
        self._samples = samples
        step = max(1, len(ranks) // _LOOKS)
        self.ends = [*range(step, len(ranks), step), len(ranks)] if ranks else []
        self._largest = {label: self._most(is_attack=label) for label in (True, False)}

    def largest(self, *, is_attack: bool) -> int:
        """Return how many samples of a label the largest group holds."""
        return self._largest[is_attack]

    def taken(self, found: Recount) -> int | None:
        """Return how many looks the answers of a defense allow; None when nothing is left to ask.

        A look needs an answer, be it an error, to every sample of the groups it covers.
        """
        answered = bytearray(len(self._ranks))
        for place in found.decisions.places:
            answered[place] = 1
        waiting = [rank for rank, has in zip(self._ranks, answered, strict=True) if not has]
        return bisect_right(self.ends, min(waiting)) if waiting else None

    def look_with(self, group: int) -> int:
        """Return the first look that covers a group."""
        return bisect_right(self.ends, group)

    def errors(self, found: Recount, *, is_attack: bool) -> Course:
        """Return 1 for each wrong decision of a defense and 0 for each right one."""
        marks = self._marks(found, is_attack=is_attack)
        return Course((self._ranks[place], mark) for place, mark in marks.items())

    def gaps(self, one: Recount, two: Recount, *, is_attack: bool) -> Course:
        """Return 1, 0 or -1 for each sample both decided: who alone was wrong."""
        first, second = (self._marks(each, is_attack=is_attack) for each in (one, two))
        return Course(
            (self._ranks[place], first[place] - second[place]) for place in first if place in second
        )

    def _marks(self, found: Recount, *, is_attack: bool) -> dict[int, int]:
        """Return by place whether a decision was wrong, as it was made when the rule watched."""
        wrong, told = "allow" if is_attack else "block", found.decisions
        names = ((row, OUTCOMES[told.outcomes[row]]) for row in found.sides()[not is_attack])
        return {told.places[row]: int(name == wrong) for row, name in names if name in _DECIDED}

    def _most(self, *, is_attack: bool) -> int:
        labelled = Counter(
            rank
            for place, rank in enumerate(self._ranks)
            if self._samples.is_attack(place) == is_attack
        )
        return max(labelled.values(), default=0)
