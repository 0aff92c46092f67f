"""Data sets parted so that nothing stands on both sides."""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import TYPE_CHECKING

from guardmark.core.errors import ConfigError
from guardmark.datasets.duplicates import families_of
from guardmark.datasets.near_duplicates import THRESHOLD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.core.sample import Sample

_PARTS_OF_ONE = 2**64


def assign_parts(
    samples: Sequence[Sample],
    shares: Mapping[str, float],
    *,
    seed: int = 0,
    threshold: float | None = THRESHOLD,
) -> tuple[str, ...]:
    """Say for each sample in which part it belongs.

    A group goes to one part as a whole, and so do groups that near-duplicates join: otherwise
    a defense tuned on one part would be measured on what it has seen. The hash of seed and
    group decides, so that a group keeps its part when samples are added, and shares are met on
    the average rather than exactly.
    """
    if not shares or min(shares.values()) <= 0 or not math.isclose(sum(shares.values()), 1):
        raise ConfigError(
            f"The shares of the parts must be above 0 and add to 1, got {_written(shares)}.\n"
            "Write them like --into train=0.7 --into test=0.3."
        )
    return tuple(
        _part(family, shares, seed) for family in families_of(samples, threshold=threshold)
    )


def _part(family: str, shares: Mapping[str, float], seed: int) -> str:
    digest = blake2b(f"{seed}\x1f{family}".encode(), digest_size=8).digest()
    place = int.from_bytes(digest) / _PARTS_OF_ONE
    *others, last = shares
    reached = 0.0
    for name in others:
        reached += shares[name]
        if place < reached:
            return name
    return last  # the rest, whatever rounding left of it


def _written(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={share:g}" for name, share in shares.items()) or "none"
