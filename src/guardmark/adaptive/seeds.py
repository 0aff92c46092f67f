"""Seeds after the first: what they are derived from."""

from __future__ import annotations

from hashlib import sha256


def derive_seed(seed: int, number: int) -> int:
    """Return the seed of the n-th repetition of the search."""
    if number == 1:
        return seed
    return int.from_bytes(sha256(f"{seed}\0adaptive seed\0{number}".encode()).digest()[:6], "big")
