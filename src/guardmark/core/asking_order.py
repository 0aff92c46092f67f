"""The seeded random order in which a run asks about its samples; times are read in it again."""

from __future__ import annotations

from array import array
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_IN_GROUPS: Final = 10_000  # samples; beyond, rows out of order cost as much as the rest
_BLOCK: Final = 50  # neighbours that are asked about together where there are more samples


def order_samples(groups: Iterable[str], count: int, *, seed: int) -> Sequence[int]:
    """Return the positions of so many samples, whose groups are named, in the order of asking.

    Data come sorted by category or label, so a run that is stopped before its end would have seen
    some of them and not others. Whole groups stay together, or blocks of neighbours in large data.
    """
    random = Random(seed)
    if count > MOST_IN_GROUPS:
        blocks = [range(at, min(at + _BLOCK, count)) for at in range(0, count, _BLOCK)]
        random.shuffle(blocks)
        return array("q", chain.from_iterable(blocks))
    ranks: dict[str, float] = {}
    ranked = [ranks.setdefault(group, random.random()) for group in groups]
    return sorted(range(count), key=ranked.__getitem__)
