"""Which texts share a batch: neighbours in length, under a budget of padded tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


_ALIKE = 0.8  # shortest to longest text of a batch: at most a fifth is padding


def token_batches(lengths: Sequence[int], *, budget: int, most: int = 64) -> list[list[int]]:
    """Group texts so that little is spent on padding.

    A batch costs its count times its longest text. In the order of their coming, short texts
    are padded to the long ones beside them; sorted by length under a budget they are not.

    Args:
        lengths: Tokens of each text.
        budget: Most tokens of one padded batch; a text longer than that goes alone.
        most: Most texts of one batch.

    Returns:
        Indices of each batch, longest texts first, so that memory peaks at the start.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batches: list[list[int]] = []
    for index in order:
        batch = batches[-1] if batches else []
        # Sorted: the first of a batch is its longest.
        longest = lengths[batch[0]] if batch else 0
        alike = lengths[index] >= _ALIKE * longest
        if batch and alike and len(batch) < most and (len(batch) + 1) * longest <= budget:
            batch.append(index)
        else:
            batches.append([index])
    return batches
