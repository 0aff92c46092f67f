"""Drawing whole groups with replacement, as weights, in blocks that fit in memory.

For figures that are no ratio of counts: areas, medians, agreement, fitted curves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_CELLS_AT_ONCE = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawPlan:
    """How often groups are drawn, and from which seed.

    Attributes:
        seed: Seed of the generator; the same seed gives the same draws.
        replicates: How many draws; at least 2.
    """

    seed: int = 0
    replicates: int = 2000

    def __post_init__(self) -> None:
        """Refuse a drawing that shows no spread."""
        if self.replicates < 2:
            raise ValueError(f"replicates must be at least 2, got {self.replicates}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")


def draw_weights(
    strata: Sequence[NDArray[np.int64]], *, drawing: DrawPlan, rows: int
) -> Iterator[NDArray[np.float64]]:
    """Yield how often each group is drawn, block by block.

    Args:
        strata: Disjoint arrays of group numbers, together 0 to K-1. From each stratum as many
            groups are drawn as it holds, so no stratum ever comes out empty.
        drawing: Seed and number of draws.
        rows: Cells per draw that the caller will need: it sets the size of a block.

    Yields:
        Weights of shape (block, K); the blocks together have `drawing.replicates` rows.
    """
    rng = np.random.default_rng(drawing.seed)
    groups = sum(len(stratum) for stratum in strata)
    block = max(1, _CELLS_AT_ONCE // max(1, rows, groups))
    for start in range(0, drawing.replicates, block):
        size = min(block, drawing.replicates - start)
        weights = np.zeros((size, groups))
        for stratum in strata:
            if len(stratum):
                share = np.full(len(stratum), 1 / len(stratum))
                weights[:, stratum] = rng.multinomial(len(stratum), share, size=size)
        yield weights
