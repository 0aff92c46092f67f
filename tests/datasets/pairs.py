"""All pairs of similar texts, by the index that the search for duplicates uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from guardmark.datasets.checks.duplicates import THRESHOLD, SimilarityIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Match(NamedTuple):
    """Two texts that are nearly the same, by their places."""

    first: int
    second: int
    similarity: float


def similar_pairs(texts: Iterable[str], *, threshold: float = THRESHOLD) -> Iterator[Match]:
    """Find all pairs of nearly equal texts."""
    every = list(texts)
    index = SimilarityIndex(every, threshold=threshold)
    for position in range(len(every)):
        yield from (Match(other, position, value) for other, value in index.matches(position))
        index.add(position)
