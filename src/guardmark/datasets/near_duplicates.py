"""Texts that are nearly the same: five-word shingles, found exactly."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

SHINGLE_WORDS = 5
THRESHOLD = 0.5

# Scripts written without spaces have no words between spaces: there each sign is a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text, as near-duplicates are judged by."""
    return tuple(_WORD.findall(text.lower()))


def shingles(text: str, *, width: int = SHINGLE_WORDS) -> frozenset[int]:
    """Return the word shingles of a text, each as its hash."""
    found = words(text)
    if len(found) <= width:
        return frozenset([hash(found or (text,))])
    return frozenset(map(hash, zip(*(found[start:] for start in range(width)), strict=False)))


def jaccard(first: Collection[int], second: Collection[int]) -> float:
    """Return the share of shingles that two texts have in common."""
    common = len(frozenset(first).intersection(second))
    return common / (len(first) + len(second) - common)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Two texts that are nearly the same."""

    first: int
    second: int
    similarity: float


class SimilarityIndex:
    """Finds every earlier text that is similar enough, none missed.

    Two texts of similarity t share at least t of the shingles of either. With shingles sorted
    rarest first, they must then share one among the first 1 - t of each: only these are
    indexed, and only what shares one is compared. Rare shingles have short lists, so most
    texts meet few others. Memory grows with the number of shingles.

    References:
        Bayardo, Ma & Srikant (2007), Scaling up all pairs similarity search,
        doi:10.1145/1242572.1242591.
    """

    def __init__(self, sets: Sequence[frozenset[int]], *, threshold: float = THRESHOLD) -> None:
        """Prepare the search."""
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold must be in (0, 1], got {threshold}")
        self._sets = sets
        self._threshold = threshold
        self._frequency = Counter(shingle for each in sets for shingle in each)
        self._index: dict[int, list[int]] = defaultdict(list)

    def add(self, position: int) -> None:
        """Let later texts be compared with this one."""
        for shingle in self._prefix(position):
            self._index[shingle].append(position)

    def matches(
        self, position: int, *, skip: Callable[[int], bool] | None = None
    ) -> Iterator[Match]:
        """Compare one text with those added before."""
        candidates: set[int] = set()
        for shingle in self._prefix(position):
            candidates.update(self._index.get(shingle, ()))
        mine = self._sets[position]
        for other in sorted(candidates):
            if skip is not None and skip(other):
                continue
            theirs = self._sets[other]
            if min(len(mine), len(theirs)) < self._threshold * max(len(mine), len(theirs)):
                continue
            similarity = jaccard(mine, theirs)
            if similarity >= self._threshold:
                yield Match(first=other, second=position, similarity=similarity)

    def _prefix(self, position: int) -> list[int]:
        """The shingles, rarest first, among which any similar text must have one."""
        mine = self._sets[position]
        # A hair below the product: 0.1 * 30 must not be rounded up to 4.
        needed = math.ceil(self._threshold * len(mine) - 1e-9)
        length = len(mine) - max(needed, 1) + 1
        frequency = self._frequency
        # A shingle that no other text has can lead to no match; it still takes its place.
        ranked = sorted(mine, key=lambda shingle: (frequency[shingle], shingle))[:length]
        return [shingle for shingle in ranked if frequency[shingle] > 1]


def similar_pairs(texts: Iterable[str], *, threshold: float = THRESHOLD) -> Iterator[Match]:
    """Find all pairs of nearly equal texts."""
    sets = [shingles(text) for text in texts]
    index = SimilarityIndex(sets, threshold=threshold)
    for position in range(len(sets)):
        yield from index.matches(position)
        index.add(position)


class Families:
    """Positions joined into families: whoever is similar to a member belongs to it."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def root(self, position: int) -> int:
        """Return the first position of the family."""
        parent = self._parent
        while parent[position] != position:
            parent[position] = parent[parent[position]]
            position = parent[position]
        return position

    def join(self, first: int, second: int) -> None:
        """Make two families one."""
        one, other = self.root(first), self.root(second)
        self._parent[max(one, other)] = min(one, other)
