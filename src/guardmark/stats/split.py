"""Orders and splits by group that depend on a seed and on names, never on the rows' order."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from guardmark.stats.arguments import require_fraction

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


def split_by_group(groups: Sequence[str], *, share: float = 0.5, seed: int) -> NDArray[np.bool_]:
    """Choose the samples of the calibration split, whole groups at a time.

    A group's side follows from the seed and its name alone, so it does not move when samples
    are added, left out or reordered. The share is met on average, not exactly.

    Args:
        groups: Name of each sample's group, shape (n,).
        share: Expected share of groups in the calibration split, strictly between 0 and 1.
        seed: Any integer; the same seed gives the same split.

    Returns:
        True for the calibration split, False for the samples to report on, shape (n,).

    Raises:
        ValueError: If `share` is not in (0, 1).
    """
    require_fraction("share", share)
    limit = int(share * 2**64)
    # Without a table of names: they are mostly distinct, and it would outweigh the samples.
    sides = (_number(name, seed) < limit for name in groups)
    return np.fromiter(sides, dtype=np.bool_, count=len(groups))


def order_groups(groups: Iterable[str], *, seed: int) -> list[str]:
    """Put distinct group names in a seeded random order.

    The order that early stopping needs: a run that stops early has then seen a random part.

    Args:
        groups: Group names; repeats are dropped.
        seed: Any integer; the same seed and names give the same order.

    Returns:
        Each name once.
    """
    return sorted(set(groups), key=lambda name: (_number(name, seed), name))


def _number(name: str, seed: int) -> int:
    digest = sha256(f"{seed}\0{name}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")
