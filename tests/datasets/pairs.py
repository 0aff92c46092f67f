"""All pairs of similar texts, by the index that the search for duplicates uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.datasets.checks.duplicates import THRESHOLD, Match, SimilarityIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def similar_pairs(texts: Iterable[str], *, threshold: float = THRESHOLD) -> Iterator[Match]:
    """Find all pairs of nearly equal texts."""
    every = list(texts)
    index = SimilarityIndex(every, threshold=threshold)
    for position in range(len(every)):
        yield from index.matches(position)
        index.add(position)
