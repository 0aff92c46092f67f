"""In which order a run that may stop early asks, and when one looks."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.stats.drawing import order_groups

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.store.columns import SampleColumns

_LOOKS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """In which order samples are asked about, and when one looks.

    Attributes:
        order: Positions of samples, whole groups in seeded random order.
        groups: Number of each sample's group in that order, by position.
        is_attack: Labels, by position.
        bounds: How many samples of the order each look covers, rising.
    """

    order: array[int]
    groups: NDArray[np.int64]
    is_attack: NDArray[np.bool_]
    bounds: tuple[int, ...]

    def is_single(self, *, is_attack: bool) -> bool:
        """Tell whether no two samples of a label share a group."""
        counts = np.bincount(self.groups[self.is_attack == is_attack])
        return bool(counts.max(initial=0) <= 1)


def make_schedule(samples: SampleColumns, *, seed: int) -> Schedule:
    """Put whole groups in a seeded random order, a look after each hundredth of them."""
    names = samples.group.names
    rank = {name: at for at, name in enumerate(order_groups(names, seed=seed))}
    groups = np.array([rank[name] for name in names], dtype=np.int64)[samples.group.codes]
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups, minlength=len(rank)))
    step = max(1, len(rank) // _LOOKS)
    at = [*range(step, len(rank), step), len(rank)]
    return Schedule(
        order=array("q", order.astype(np.int64).tobytes()),
        groups=groups,
        is_attack=np.asarray(samples.is_attack),
        bounds=tuple(int(ends[groups_seen - 1]) for groups_seen in at) if rank else (),
    )
