"""What a data set consists of: counts by every facet, lengths, and odd characters."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from guardmark.core.sample import MATERIAL
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from guardmark.core.sample import Sample


UNSTATED = "(not stated)"  # shown where a sample does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many samples share one value of a facet.

    Attributes:
        value: The value that the samples share.
        attacks: How many of them are attacks.
        benign: How many are benign.
        groups: How many groups they are in.
        largest_group: How many samples the largest of these groups has.
    """

    value: str
    attacks: int
    benign: int
    groups: int
    largest_group: int

    @property
    def samples(self) -> int:
        """Attacks and benign samples together."""
        return self.attacks + self.benign


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long the texts under test are, in characters.

    Attributes:
        shortest: Characters of the shortest text.
        p5: The length below which one in twenty lies.
        p50: The median.
        p95: The length below which 19 in 20 lie.
        longest: Characters of the longest text.
    """

    shortest: int
    p5: int
    p50: int
    p95: int
    longest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """Something unusual about the characters of some texts.

    Attributes:
        kind: What is unusual, in a phrase.
        samples: In how many texts it occurs.
        is_damage: Whether it shows that a text was damaged, as by a wrong encoding.
        examples: Ids of the first samples.
    """

    kind: str
    samples: int
    is_damage: bool
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """What a data set consists of.

    Attributes:
        total: All samples.
        attacks: The attacks.
        benign: The benign samples.
        categories: Attacks by category.
        topics: Benign samples by topic.
        subcategories: Attacks by category and subcategory.
        severities: Attacks by severity.
        languages: Samples by language.
        techniques: Samples by technique.
        variants: Samples by variant.
        sources: Samples by source.
        conversations: How many samples have more than one message.
        materials: How many have their text under test in a document or a tool's result.
        images: How many show images.
        lengths: How long the texts are; None without samples.
        oddities: Unusual characters, the most frequent kind first.
    """

    total: Count
    attacks: Count
    benign: Count
    categories: tuple[Count, ...]
    topics: tuple[Count, ...]
    subcategories: tuple[Count, ...]
    severities: tuple[Count, ...]
    languages: tuple[Count, ...]
    techniques: tuple[Count, ...]
    variants: tuple[Count, ...]
    sources: tuple[Count, ...]
    conversations: int
    materials: int
    images: int
    lengths: Lengths | None
    oddities: tuple[Oddity, ...]


def take_census(samples: Iterable[Sample]) -> Census:
    """Count what a data set consists of."""
    every = list(samples)
    attacks = [sample for sample in every if sample.is_attack]
    benign = [sample for sample in every if not sample.is_attack]
    return Census(
        total=_count("samples", every),
        attacks=_count("attack", attacks),
        benign=_count("benign", benign),
        categories=_facet(attacks, lambda s: s.category),
        topics=_facet(benign, lambda s: s.category),
        subcategories=_facet(attacks, lambda s: s.subcategory and f"{s.category}/{s.subcategory}"),
        severities=_facet(attacks, lambda s: s.severity.value if s.severity else ""),
        languages=_facet(every, lambda s: s.language),
        techniques=_facet(every, lambda s: s.technique),
        variants=_facet(every, lambda s: s.variant),
        sources=_facet(every, lambda s: s.source),
        conversations=sum(len(sample.prompt.messages) > 1 for sample in every),
        materials=sum(map(_is_material, every)),
        images=sum(map(_has_image, every)),
        lengths=_lengths(every),
        oddities=_oddities(every),
    )


def _is_material(sample: Sample) -> bool:
    """Tell whether the text under test is a document or what a tool returned."""
    return sample.prompt.messages[sample.prompt.under_test].role in MATERIAL


def _has_image(sample: Sample) -> bool:
    """Tell whether any message holds an image."""
    return any(message.images for message in sample.prompt.messages)


def _facet(samples: Sequence[Sample], value_of: Callable[[Sample], str]) -> tuple[Count, ...]:
    """Count the samples of each value of a facet, the most frequent first."""
    by_value: dict[str, list[Sample]] = {}
    for sample in samples:
        by_value.setdefault(value_of(sample) or UNSTATED, []).append(sample)
    counts = [_count(value, members) for value, members in by_value.items()]
    return tuple(sorted(counts, key=lambda count: (-count.samples, count.value)))


def _count(value: str, samples: Sequence[Sample]) -> Count:
    """Count samples and their groups."""
    groups = Counter(sample.lineage for sample in samples)
    attacks = sum(sample.is_attack for sample in samples)
    return Count(
        value=value,
        attacks=attacks,
        benign=len(samples) - attacks,
        groups=len(groups),
        largest_group=max(groups.values(), default=0),
    )


def _lengths(samples: Sequence[Sample]) -> Lengths | None:
    """Measure how long the texts under test are."""
    if not samples:
        return None
    ordered = sorted(len(sample.prompt.words) for sample in samples)
    return Lengths(
        shortest=ordered[0],
        p5=ordered[int(0.05 * len(ordered))],
        p50=ordered[int(0.5 * len(ordered))],
        p95=ordered[int(0.95 * len(ordered))],
        longest=ordered[-1],
    )


_TABLE = tomllib.loads(Path(__file__).with_name("oddities.toml").read_text(encoding="utf-8"))
_PATTERNS: tuple[tuple[str, bool, re.Pattern[str]], ...] = tuple(
    (row["kind"], row["is_damage"], re.compile(row["pattern"])) for row in _TABLE["oddities"]
)


def _oddities(samples: Sequence[Sample]) -> tuple[Oddity, ...]:
    """Count texts with unusual characters."""
    by_kind: dict[tuple[str, bool], list[str]] = {}
    for sample in samples:
        text = sample.prompt.words
        if text.isascii() and text.isprintable():
            continue
        for kind, is_damage, pattern in _PATTERNS:
            if pattern.search(text):
                by_kind.setdefault((kind, is_damage), []).append(sample.id)
        if not unicodedata.is_normalized("NFC", text):
            by_kind.setdefault(("letters not composed (no NFC)", False), []).append(sample.id)
    oddities = []
    for (kind, is_damage), ids in by_kind.items():
        shown = tuple(ids[:3])
        oddities.append(Oddity(kind=kind, samples=len(ids), is_damage=is_damage, examples=shown))
    return tuple(sorted(oddities, key=lambda oddity: (-oddity.samples, oddity.kind)))
