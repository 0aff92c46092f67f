"""All pairs of similar texts, by the index that the search for duplicates uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.datasets.checks.duplicates import THRESHOLD, Match, SimilarityIndex, shingles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def similar_pairs(texts: Iterable[str], *, threshold: float = THRESHOLD) -> Iterator[Match]:
    """Find all pairs of nearly equal texts."""
    sets = [shingles(text) for text in texts]
    index = SimilarityIndex(sets, threshold=threshold)
    for position in range(len(sets)):
        yield from index.matches(position)
        index.add(position)
