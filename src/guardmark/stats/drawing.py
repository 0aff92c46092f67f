"""Choosing whole groups by a seed: draws with replacement, a calibration split, a random order.

The draws serve figures that are no ratio of counts: areas, medians, agreement, fitted curves. Split
and order depend on the seed and on names, never on the rows' order.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.arguments import require_fraction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from guardmark.stats.arguments import Flags, Floats

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


def draw_weights(groups: int, *, drawing: DrawPlan, rows: int) -> Iterator[Floats]:
    """Yield how often each group is drawn when as many are drawn as there are, block by block.

    Args:
        groups: How many groups there are, K.
        drawing: Seed and number of draws.
        rows: Cells per draw that the caller will need: it sets the size of a block.

    Yields:
        Weights of shape (block, K); the blocks together have `drawing.replicates` rows.
    """
    rng = np.random.default_rng(drawing.seed)
    block = max(1, _CELLS_AT_ONCE // max(1, rows, groups))
    for start in range(0, drawing.replicates, block):
        size = min(block, drawing.replicates - start)
        shares = np.full(groups, 1 / max(1, groups))
        yield rng.multinomial(groups, shares, size=size).astype(np.float64)


def percentile_limits(drawn: Floats, confidence: float) -> tuple[float, float]:
    """Return the two quantiles of draws that leave half of the rest outside on each side.

    Args:
        drawn: The draws, shape (r,), r at least 1; none may be NaN.
        confidence: Share of the draws between both, in (0, 1).
    """
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def split_by_group(groups: Sequence[str], *, share: float = 0.5, seed: int) -> Flags:
    """Choose the samples of the calibration split, true in the result, by whole groups.

    A group's side follows from the seed and its name alone, so it does not move when samples are
    added, left out or reordered. The expected share of groups, in (0, 1), is met on average.
    """
    require_fraction("share", share)
    limit = int(share * 2**64)
    # Without a table of names: they are mostly distinct, and it would outweigh the samples.
    sides = (_number(name, seed) < limit for name in groups)
    return np.fromiter(sides, dtype=np.bool_, count=len(groups))


def order_groups(groups: Iterable[str], *, seed: int) -> list[str]:
    """Put distinct group names in a seeded random order.

    The order that early stopping needs: a run that stops early has then seen a random part.
    """
    return sorted(set(groups), key=lambda name: (_number(name, seed), name))


def _number(name: str, seed: int) -> int:
    digest = sha256(f"{seed}\0{name}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")
