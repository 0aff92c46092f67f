"""Attacks split by their groups, so that none is searched with what it taught itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDS: Final = 5
"""Parts into which attacks are split, so that none profits from what was seen of itself."""


def fold_numbers(groups: Sequence[str]) -> list[int]:
    """Split attacks by their groups."""
    order = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    return [order[group] % FOLDS for group in groups]
