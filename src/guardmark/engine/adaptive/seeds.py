"""Seeds after the first: what they are derived from, and which layers their tries stand in."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from guardmark.engine.adaptive.trial import ADAPTIVE, BLIND, LAYERS, NULL

if TYPE_CHECKING:
    from collections.abc import Iterable

REPEATED: Final = (ADAPTIVE, BLIND, NULL)
"""Arms that every seed has; all else is asked once."""
_SEED: Final = re.compile(rf"{ADAPTIVE}/seed-[1-9][0-9]*")


def derive_seed(seed: int, number: int) -> int:
    """Return the seed of the n-th repetition of the search.

    Args:
        seed: Of the run.
        number: From 1; the first is the seed of the run.
    """
    if number == 1:
        return seed
    return int.from_bytes(sha256(f"{seed}\0adaptive seed\0{number}".encode()).digest()[:6], "big")


def seed_layer(layer: str, number: int) -> str:
    """Return the layer of an arm at the n-th seed.

    Args:
        layer: Of the arm at the first seed.
        number: From 1.

    Returns:
        For example `adaptive/seed-2/blind`; at the first seed the layer itself.
    """
    return layer if number == 1 else f"{ADAPTIVE}/seed-{number}{layer.removeprefix(ADAPTIVE)}"


def first_layer(layer: str) -> str:
    """Return the layer of the same arm at the first seed.

    Args:
        layer: Of any seed, or of anything else, which is returned as it is.
    """
    found = _SEED.match(layer)
    return layer if found is None else f"{ADAPTIVE}{layer[found.end() :]}"


def asked_layers(stored: Iterable[str]) -> tuple[str, ...]:
    """Return the layers of what a defense was asked, the first seed's first.

    Args:
        stored: Layers of a record file.
    """
    numbers = sorted(
        int(found.group().rpartition("-")[2])
        for layer in stored
        if (found := _SEED.fullmatch(layer)) is not None
    )
    return (*LAYERS, *(seed_layer(arm, number) for number in numbers for arm in REPEATED))
