"""Near-duplicate samples: found, dropped, and kept together when data are split."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Hashable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from guardmark.core.sample import Label, Sample


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
    tokens = words(text)
    if len(tokens) <= width:
        return frozenset([hash(tokens or (text,))])
    return frozenset(map(hash, zip(*(tokens[start:] for start in range(width)), strict=False)))


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
    """Two samples of nearly equal text and opposite labels."""

    attack: str
    benign: str
    similarity: float
    is_same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Samples joined by near-duplicates."""

    ids: tuple[str, ...]
    groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """What a search for duplicates found."""

    samples: int
    threshold: float
    copies: int
    rewordings: int
    families: tuple[Family, ...]
    conflicts: tuple[Conflict, ...]

    @property
    def method(self) -> str:
        """How the search was done, as printed."""
        return describe_method(self.threshold)

    @property
    def surplus_groups(self) -> int:
        """Groups that would go if each family were one group."""
        return sum(family.groups - 1 for family in self.families)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A sample that was left out because another says the same."""

    id: str
    kept: str
    similarity: float


def describe_method(threshold: float) -> str:
    """Return how near-duplicates are found, in a phrase."""
    return (
        f"{SHINGLE_WORDS}-word shingles of the text under test, lower-cased, "
        f"Jaccard similarity >= {threshold:g}, every pair considered"
    )


def find_duplicates(samples: Iterable[Sample], *, threshold: float = THRESHOLD) -> Duplicates:
    """Look for samples that say the same twice."""
    everything = list(samples)
    copies, rewordings = _count_repeats(everything)
    sets = [shingles(sample.prompt.text) for sample in everything]
    members: dict[frozenset[int], list[int]] = defaultdict(list)
    for position, each in enumerate(sets):
        members[each].append(position)
    # Equal sets are compared once; their samples follow their first.
    firsts = [positions[0] for positions in members.values()]
    families = Families(len(everything))
    conflicts = list(_conflicts_within(everything, members.values(), families))
    conflicts.extend(
        _join_similar(everything, sets, firsts, threshold=threshold, families=families)
    )
    # A sample of one label may have several opposites: once for each pair of sets is enough.
    return Duplicates(
        samples=len(everything),
        threshold=threshold,
        copies=copies,
        rewordings=rewordings,
        families=_families(everything, families),
        conflicts=tuple(sorted(conflicts, key=lambda c: (-c.similarity, c.attack, c.benign))),
    )


def deduplicate(
    samples: Sequence[Sample], *, threshold: float = THRESHOLD, within_groups: bool = False
) -> tuple[Dropped, ...]:
    """Say which samples to leave out so that nothing is said twice.

    The first of its kind stays. Samples of opposite labels never drop each other: which of
    the two is right is for a person to say.
    """
    sets = [shingles(sample.prompt.text) for sample in samples]
    index = SimilarityIndex(sets, threshold=threshold)
    seen: dict[tuple[bytes, Label], str] = {}
    dropped: list[Dropped] = []
    for position, sample in enumerate(samples):
        key = sample.prompt.digest(), sample.label
        if key in seen:
            dropped.append(Dropped(id=sample.id, kept=seen[key], similarity=1.0))
            continue
        match = _first_match(samples, index, position, within_groups=within_groups)
        if match is not None:
            first = samples[match.first].id
            dropped.append(Dropped(id=sample.id, kept=first, similarity=match.similarity))
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
        sets = [shingles(sample.prompt.text) for sample in samples]
        index = SimilarityIndex(sets, threshold=threshold)
        first_of: dict[frozenset[int], int] = {}
        for position, each in enumerate(sets):
            first = first_of.setdefault(each, position)
            families.join(first, position)
            if first == position:
                _join_matches(index, position, families)
    names: dict[int, str] = {}
    for position, sample in enumerate(samples):
        root = families.root(position)
        names[root] = min(names.get(root, sample.lineage), sample.lineage)
    return [names[families.root(position)] for position in range(len(samples))]


def _join_matches(index: SimilarityIndex, position: int, families: Families) -> None:
    def is_joined(other: int) -> bool:
        return families.root(other) == families.root(position)

    for match in index.matches(position, skip=is_joined):
        families.join(match.first, match.second)
    index.add(position)


def _first_match(
    samples: Sequence[Sample], index: SimilarityIndex, position: int, *, within_groups: bool
) -> Match | None:
    mine = samples[position]

    def skip(other: int) -> bool:
        theirs = samples[other]
        same_group = theirs.lineage == mine.lineage and not within_groups
        return same_group or theirs.label is not mine.label

    return next(index.matches(position, skip=skip), None)


def _count_repeats(samples: Sequence[Sample]) -> tuple[int, int]:
    """Count copies and rewordings of whole prompts."""
    digests: set[bytes] = set()
    wordings: set[Hashable] = set()
    copies = rewordings = 0
    for sample in samples:
        digest, wording = sample.prompt.digest(), _wording(sample)
        copies += digest in digests
        rewordings += wording in wordings and digest not in digests
        digests.add(digest)
        wordings.add(wording)
    return copies, rewordings


def _wording(sample: Sample) -> Hashable:
    """The words of a whole prompt, context included; the signs where there are no words."""
    return tuple(
        (message.role, words(message.content) or message.content)
        for message in sample.prompt.messages
    )


def _conflicts_within(
    samples: Sequence[Sample], sets: Iterable[Sequence[int]], families: Families
) -> Iterator[Conflict]:
    """Join samples of equal shingles; name one pair of opposite labels for each set."""
    for positions in sets:
        for position in positions[1:]:
            families.join(positions[0], position)
        attack = next((p for p in positions if samples[p].is_attack), None)
        benign = next((p for p in positions if not samples[p].is_attack), None)
        if attack is not None and benign is not None:
            yield _conflict(samples[attack], samples[benign], 1.0)


def _join_similar(
    samples: Sequence[Sample],
    sets: Sequence[frozenset[int]],
    firsts: Sequence[int],
    *,
    threshold: float,
    families: Families,
) -> Iterator[Conflict]:
    index = SimilarityIndex(sets, threshold=threshold)
    for position in firsts:
        mine = samples[position]

        def is_known(other: int, position: int = position, mine: Sample = mine) -> bool:
            """Joined and of the same label: comparing adds nothing."""
            same = samples[other].label is mine.label
            return same and families.root(other) == families.root(position)

        for match in index.matches(position, skip=is_known):
            families.join(match.first, match.second)
            other = samples[match.first]
            if other.label is not mine.label:
                attack, benign = (mine, other) if mine.is_attack else (other, mine)
                yield _conflict(attack, benign, match.similarity)
        index.add(position)


def _conflict(attack: Sample, benign: Sample, similarity: float) -> Conflict:
    return Conflict(
        attack=attack.id,
        benign=benign.id,
        similarity=similarity,
        is_same=_wording(attack) == _wording(benign),
    )


def _families(samples: Sequence[Sample], families: Families) -> tuple[Family, ...]:
    gathered: dict[int, list[Sample]] = defaultdict(list)
    for position, sample in enumerate(samples):
        gathered[families.root(position)].append(sample)
    every = [
        Family(ids=tuple(s.id for s in members), groups=len({s.lineage for s in members}))
        for members in gathered.values()
    ]
    spanning = [family for family in every if family.groups > 1]
    return tuple(sorted(spanning, key=lambda family: (-len(family.ids), family.ids)))


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
        stated = ", ".join(f"{name}={share:g}" for name, share in shares.items()) or "none"
        raise ConfigError(
            f"The shares of the parts must be above 0 and add to 1, got {stated}.\n"
            "Write them like --into train=0.7 --into test=0.3."
        )
    return tuple(
        _part(family, shares, seed) for family in families_of(samples, threshold=threshold)
    )


def _part(family: str, shares: Mapping[str, float], seed: int) -> str:
    digest = blake2b(f"{seed}\x1f{family}".encode(), digest_size=8).digest()
    position = int.from_bytes(digest) / _PARTS_OF_ONE
    *others, last = shares
    reached = 0.0
    for name in others:
        reached += shares[name]
        if position < reached:
            return name
    return last  # the rest, whatever rounding left of it
