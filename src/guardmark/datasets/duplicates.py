"""Samples that say the same twice, and what they disagree about."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.datasets.near_duplicates import (
    SHINGLE_WORDS,
    THRESHOLD,
    Families,
    Match,
    SimilarityIndex,
    shingles,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from guardmark.core.sample import Label, Sample


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
    kept = list(samples)
    copies, rewordings = _count_repeats(kept)
    sets = [shingles(sample.prompt.text) for sample in kept]
    members: dict[frozenset[int], list[int]] = defaultdict(list)
    for position, each in enumerate(sets):
        members[each].append(position)
    # Equal sets are compared once; their samples follow their first.
    firsts = [positions[0] for positions in members.values()]
    families = Families(len(kept))
    conflicts = list(_conflicts_within(kept, members.values(), families))
    conflicts.extend(_join_similar(kept, sets, firsts, threshold=threshold, families=families))
    # A sample of one label may have several opposites: once for each pair of sets is enough.
    return Duplicates(
        samples=len(kept),
        threshold=threshold,
        copies=copies,
        rewordings=rewordings,
        families=_families(kept, families),
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
        match = _rival(samples, index, position, within_groups=within_groups)
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
    def is_kin(other: int) -> bool:
        return families.root(other) == families.root(position)

    for match in index.matches(position, skip=is_kin):
        families.join(match.first, match.second)
    index.add(position)


def _rival(
    samples: Sequence[Sample], index: SimilarityIndex, position: int, *, within_groups: bool
) -> Match | None:
    mine = samples[position]

    def skip(other: int) -> bool:
        theirs = samples[other]
        kin = theirs.lineage == mine.lineage and not within_groups
        return kin or theirs.label is not mine.label

    return next(index.matches(position, skip=skip), None)


def _count_repeats(samples: Sequence[Sample]) -> tuple[int, int]:
    """Count copies and rewordings of whole prompts."""
    digests: set[bytes] = set()
    spoken: set[Hashable] = set()
    copies = rewordings = 0
    for sample in samples:
        digest, said = sample.prompt.digest(), _said(sample)
        copies += digest in digests
        rewordings += said in spoken and digest not in digests
        digests.add(digest)
        spoken.add(said)
    return copies, rewordings


def _said(sample: Sample) -> Hashable:
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
            """Kin of the same label: the comparison could tell nothing new."""
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
        is_same=_said(attack) == _said(benign),
    )


def _families(samples: Sequence[Sample], families: Families) -> tuple[Family, ...]:
    gathered: dict[int, list[Sample]] = defaultdict(list)
    for position, sample in enumerate(samples):
        gathered[families.root(position)].append(sample)
    found = [
        Family(ids=tuple(s.id for s in members), groups=len({s.lineage for s in members}))
        for members in gathered.values()
    ]
    spanning = [family for family in found if family.groups > 1]
    return tuple(sorted(spanning, key=lambda family: (-len(family.ids), family.ids)))
