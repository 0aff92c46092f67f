"""Near-duplicate samples: found, dropped, and kept together when data are split."""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from dataclasses import replace
from hashlib import blake2b
from itertools import accumulate
from typing import TYPE_CHECKING

from guardmark.core.errors import ConfigError
from guardmark.core.values import dataclass
from guardmark.datasets.checks.patterns import find_patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from guardmark.core.sample import Label, Sample


SHINGLE_WORDS = 5
THRESHOLD = 0.5
_LOOKS_PER_SAMPLE = 100

# Scripts written without spaces have no words between spaces: there each sign is a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text, as near-duplicates are judged by."""
    return tuple(_WORD.findall(text.lower()))


def shingles(text: str, *, width: int = SHINGLE_WORDS) -> frozenset[int]:
    """Return the word shingles of a text, each as its hash."""
    tokens = words(text)
    if len(tokens) <= width:
        return frozenset([hash(tokens or (text,))])
    return frozenset(map(hash, zip(*(tokens[start:] for start in range(width)), strict=False)))


class SimilarityIndex:
    """Finds every earlier text that is similar enough, none missed.

    Two texts of similarity t share at least t of the shingles of either. With shingles sorted
    rarest first, they must then share one among the first 1 - t of each: only these are
    indexed, and only what shares one is compared. Rare shingles have short lists, so most
    texts meet few others. A shingle takes four bytes: its rank among all, from the rarest on.

    References:
        Bayardo, Ma & Srikant (2007), Scaling up all pairs similarity search,
        doi:10.1145/1242572.1242591.
    """

    def __init__(
        self, texts: Iterable[str], *, threshold: float = THRESHOLD, most: float = math.inf
    ) -> None:
        """Read the texts; none is compared with until it is added.

        Texts of one template all meet each other: more than ``most`` comparisons are too many.
        """
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold must be in (0, 1], got {threshold}")
        import numpy as np  # only the search needs it, and most commands for data do not search

        self._threshold = threshold
        hashes, ends = array("q"), array("q", [0])
        for text in texts:
            hashes.extend(shingles(text))
            ends.append(len(hashes))
        self._ranks, self._alone = _by_rarity(hashes, ends)
        self._mark = np.zeros(len(self._ranks), dtype=np.bool_)  # one place for each rank
        self._ends = np.frombuffer(ends, dtype=np.int64)
        self._left = most
        self._index: dict[int, list[int]] = {}
        self._equal: dict[int, int] = {}

    def first_equal(self, position: int) -> int:
        """Return the first text asked about that has the same shingles, or this one."""
        mine = self._shingles(position).tobytes()
        first = self._equal.setdefault(hash(mine), position)
        if self._shingles(first).tobytes() == mine:
            return first
        return position

    def add(self, position: int) -> None:
        """Let later texts be compared with this one."""
        for shingle in self._prefix(position):
            self._index.setdefault(shingle, []).append(position)

    def matches(
        self, position: int, *, skip: Callable[[int], bool] = lambda _: False
    ) -> Iterator[tuple[int, float]]:
        """Yield the similar texts of those added before, each with its similarity."""
        candidates: set[int] = set()
        for shingle in self._prefix(position):
            candidates.update(self._index.get(shingle, ()))
        self._left -= len(candidates)
        others = [other for other in sorted(candidates) if not skip(other)]
        if not others:
            return
        for other, similarity in self._similarities(position, others):
            if similarity >= self._threshold and not skip(other):
                yield other, similarity

    @property
    def is_spent(self) -> bool:
        """Whether there were too many comparisons."""
        return self._left < 0

    def _similarities(self, position: int, others: list[int]) -> Iterator[tuple[int, float]]:
        """Compare with many at once: texts made from one template all meet each other."""
        import numpy as np

        mine = self._shingles(position)
        starts = self._ends[others]
        sizes = self._ends[np.add(others, 1)] - starts
        offsets = np.cumsum(sizes) - sizes
        theirs = self._ranks[np.arange(sizes.sum()) + np.repeat(starts - offsets, sizes)]
        self._mark[mine] = True
        common = np.add.reduceat(self._mark[theirs], offsets, dtype=np.int64)
        self._mark[mine] = False
        similarities = common / (len(mine) + sizes - common)
        return zip(others, similarities.tolist(), strict=True)

    def _shingles(self, position: int) -> NDArray[np.int32]:
        return self._ranks[self._ends[position] : self._ends[position + 1]]

    def _prefix(self, position: int) -> list[int]:
        """Return the shingles, rarest first, among which any similar text must have one."""
        mine = self._shingles(position)
        # A hair below the product: 0.1 * 30 must not be rounded up to 4.
        needed = math.ceil(self._threshold * len(mine) - 1e-9)
        first: list[int] = mine[: len(mine) - max(needed, 1) + 1].tolist()
        # A shingle that no other text has can lead to no match; it still takes its place.
        return [shingle for shingle in first if shingle >= self._alone]


def _by_rarity(hashes: array[int], ends: array[int]) -> tuple[NDArray[np.int32], int]:
    """Rank shingles from the rarest on, sorted in each text; return how many one text has alone."""
    import numpy as np  # only the search needs it, and most commands for data do not search

    # By hand: `np.unique` holds five columns of eight bytes a shingle at once.
    order = np.argsort(hashes)
    ordered = np.frombuffer(hashes, dtype=np.int64)[order]
    is_new = ordered[1:] != ordered[:-1]
    del ordered
    names = np.zeros(len(order), dtype=np.int32)
    names[order[1:]] = np.cumsum(is_new, dtype=np.int32)
    counts = np.bincount(names)
    ranks = np.empty(len(counts), dtype=np.int32)
    ranks[np.argsort(counts, kind="stable")] = np.arange(len(counts))
    keys = np.repeat(np.arange(len(ends) - 1) * len(counts), np.diff(ends))
    keys += ranks[names]
    keys.sort()
    keys %= max(len(counts), 1)
    return keys.astype(np.int32), int(np.count_nonzero(counts == 1))


class Families:
    """Positions joined into families: what is similar to a member belongs to the family."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Two samples of nearly equal text and opposite labels.

    Attributes:
        attack: Id of the attack.
        benign: Id of the benign sample.
        similarity: Their Jaccard similarity, in [0, 1].
        is_same: Whether all of their words are the same.
    """

    attack: str
    benign: str
    similarity: float
    is_same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Samples joined by near-duplicates.

    Attributes:
        ids: The samples, in the order of the data.
        groups: How many groups they are in.
    """

    ids: tuple[str, ...]
    groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """What a search for duplicates found.

    Attributes:
        samples: How many samples were searched.
        threshold: The similarity from which texts count as near-duplicates.
        copies: Samples whose whole prompt stood before.
        rewordings: Samples whose words stood before, and whose signs or spaces did not.
        families: Near-duplicates that span several groups, the largest family first.
        conflicts: Pairs of opposite labels, the most similar first.
    """

    samples: int
    threshold: float
    copies: int
    rewordings: int
    families: tuple[Family, ...]
    conflicts: tuple[Conflict, ...]

    @property
    def surplus_groups(self) -> int:
        """Groups that would go if each family were one group."""
        return sum(family.groups - 1 for family in self.families)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A sample that was left out because another says the same.

    Attributes:
        id: The sample.
        kept: The sample that says the same and stays.
        similarity: Their similarity, in [0, 1].
    """

    id: str
    kept: str
    similarity: float


def describe_method(threshold: float) -> str:
    """Return how near-duplicates are found, in a phrase."""
    return (
        f"{SHINGLE_WORDS}-word shingles of the text under test, lower-cased, "
        f"Jaccard similarity >= {threshold:g}, every pair considered"
    )


def find_duplicates(samples: Sequence[Sample], *, threshold: float = THRESHOLD) -> Duplicates:
    """Look for samples that say the same twice."""
    copies, rewordings = _count_repeats(samples)
    families = Families(len(samples))
    conflicts, _ = _join_similar(samples, families, threshold)
    return Duplicates(
        samples=len(samples),
        threshold=threshold,
        copies=copies,
        rewordings=rewordings,
        families=_families(samples, families),
        conflicts=tuple(sorted(conflicts, key=lambda c: (-c.similarity, c.attack, c.benign))),
    )


def note_copies(samples: Sequence[Sample]) -> Iterator[str]:
    """Say how many groups repeat a text of another group, for little of the time of a run."""
    joined = Families(len(samples))
    _, is_whole = _join_similar(samples, joined, THRESHOLD, _LOOKS_PER_SAMPLE * len(samples))
    families = _families(samples, joined)
    if not families:
        return
    groups = f"{sum(family.groups for family in families):,} groups"
    if not is_whole:
        groups = f"At least {groups}"
    lineage = {sample.id: sample.lineage for sample in samples}
    first, *others = families[0].ids
    other = next(name for name in others if lineage[name] != lineage[first])
    yield (
        f"{groups} hold copies or near-copies of texts in "
        f"another group, such as {first} and {other}; intervals take these groups for "
        "independent. (Copies within a group are counted as such, and not meant here.) Drop them "
        "(guardmark data dedup), or give each family one group (guardmark data convert "
        "--group-families)."
    )


def _join_similar(
    samples: Sequence[Sample], families: Families, threshold: float, most: float = math.inf
) -> tuple[list[Conflict], bool]:
    """Join near-duplicates; return for each text the first of the opposite label, and if all."""
    texts = (sample.prompt.words for sample in samples)
    index = SimilarityIndex(texts, threshold=threshold, most=most)
    named: set[int] = set()  # first texts of which a copy with the opposite label is named
    contradicted: set[int] = set()
    conflicts: list[Conflict] = []
    for position, sample in enumerate(samples):
        if index.is_spent:
            break
        first = index.first_equal(position)
        if first != position:
            families.join(first, position)
            if samples[first].label is not sample.label and first not in named:
                named.add(first)
                conflicts.append(_conflict(samples[first], sample, 1.0))
            continue

        def is_known(other: int, position: int = position, mine: Sample = sample) -> bool:
            """Tell whether both are joined and their labels add nothing: no need to compare."""
            if position not in contradicted and samples[other].label is not mine.label:
                return False
            return families.root(other) == families.root(position)

        for other, similarity in index.matches(position, skip=is_known):
            families.join(other, position)
            if samples[other].label is not sample.label and position not in contradicted:
                contradicted.add(position)
                conflicts.append(_conflict(samples[other], sample, similarity))
        index.add(position)
    return conflicts, not index.is_spent


def deduplicate(
    samples: Sequence[Sample], *, threshold: float = THRESHOLD, within_groups: bool = False
) -> tuple[Dropped, ...]:
    """Say which samples to leave out so that nothing is said twice.

    The first of its kind stays. Samples of opposite labels never drop each other: which of
    the two is right is for a person to say.
    """
    index = SimilarityIndex((sample.prompt.words for sample in samples), threshold=threshold)
    seen: dict[tuple[bytes, Label], str] = {}
    dropped: list[Dropped] = []
    for position, sample in enumerate(samples):
        key = sample.prompt.digest(), sample.label
        if key in seen:
            dropped.append(Dropped(id=sample.id, kept=seen[key], similarity=1.0))
            continue

        def skip(other: int, mine: Sample = sample) -> bool:
            theirs = samples[other]
            same_group = theirs.lineage == mine.lineage and not within_groups
            return same_group or theirs.label is not mine.label

        match = next(index.matches(position, skip=skip), None)
        if match is not None:
            dropped.append(Dropped(id=sample.id, kept=samples[match[0]].id, similarity=match[1]))
            continue
        seen[key] = sample.id
        index.add(position)
    return tuple(dropped)


def families_of(samples: Sequence[Sample], *, threshold: float | None = THRESHOLD) -> list[str]:
    """Return for each sample the name of what it must not be parted from."""
    families = Families(len(samples))
    by_group: dict[str, int] = {}
    for position, sample in enumerate(samples):
        families.join(by_group.setdefault(sample.lineage, position), position)
    if threshold is not None:
        _join_similar(samples, families, threshold)
        positions = {sample.id: position for position, sample in enumerate(samples)}
        for pattern in find_patterns(samples):
            first, *others = pattern.ids
            for other in others:
                families.join(positions[first], positions[other])
    names: dict[int, str] = {}
    for position, sample in enumerate(samples):
        root = families.root(position)
        names[root] = min(names.get(root, sample.lineage), sample.lineage)
    return [names[families.root(position)] for position in range(len(samples))]


def group_similar(samples: Sequence[Sample], *, threshold: float) -> list[Sample]:
    """Give near-duplicates of several groups one group, and note in each where it comes from."""
    pairs = list(zip(samples, families_of(samples, threshold=threshold), strict=True))
    spanning = {name for sample, name in pairs if sample.lineage != name}
    origin = f"near-duplicates or one pattern ({describe_method(threshold)})"
    grouped = []
    for sample, name in pairs:
        if name in spanning:
            metadata = {**sample.metadata, "group_source": origin}
            grouped.append(replace(sample, group=name, metadata=metadata))
        else:
            grouped.append(sample)
    return grouped


def _count_repeats(samples: Sequence[Sample]) -> tuple[int, int]:
    """Count copies and rewordings of whole prompts."""
    digests: set[bytes] = set()
    wordings: set[int] = set()  # hashes: the words of a million texts would fill the memory
    copies = rewordings = 0
    for sample in samples:
        digest, wording = sample.prompt.digest(), hash(_wording(sample))
        copies += digest in digests
        rewordings += wording in wordings and digest not in digests
        digests.add(digest)
        wordings.add(wording)
    return copies, rewordings


def _wording(sample: Sample) -> Hashable:
    """Return the words of a whole prompt with its context; the signs where it has no words."""
    messages = sample.prompt.messages
    return tuple((each.role, words(each.content) or each.content) for each in messages)


def _conflict(one: Sample, other: Sample, similarity: float) -> Conflict:
    attack, benign = one, other
    if other.is_attack:
        attack, benign = other, one
    is_same = _wording(attack) == _wording(benign)
    return Conflict(attack=attack.id, benign=benign.id, similarity=similarity, is_same=is_same)


def _families(samples: Sequence[Sample], families: Families) -> tuple[Family, ...]:
    gathered: dict[int, list[Sample]] = defaultdict(list)
    for position, sample in enumerate(samples):
        gathered[families.root(position)].append(sample)
    spanning = []
    for members in gathered.values():
        groups = len({sample.lineage for sample in members})
        if groups > 1:
            ids = tuple(sample.id for sample in members)
            spanning.append(Family(ids=ids, groups=groups))
    return tuple(sorted(spanning, key=lambda family: (-len(family.ids), family.ids)))


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
        stated = ", ".join(f"{name}={share:g}" for name, share in shares.items()) or "none"
        raise ConfigError(
            f"The shares of the parts must be above 0 and add to 1, got {stated}.\n"
            "Write them like --into train=0.7 --into test=0.3."
        )
    names = list(shares)
    ends = list(accumulate(shares.values()))
    ends.pop()  # the last part takes what rounding leaves
    parts = []
    for family in families_of(samples, threshold=threshold):
        digest = blake2b(f"{seed}\x1f{family}".encode(), digest_size=8).digest()
        drawn = int.from_bytes(digest) / 2**64
        parts.append(names[bisect_right(ends, drawn)])
    return tuple(parts)
