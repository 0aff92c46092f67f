"""Shards of a run: whole groups of its data, chosen by a hash that every machine computes alike."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Self

from guardmark.core.values import dataclass
from guardmark.store.samples import PlainSample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guardmark.core.sample import Sample

PLACE: Final = "guardmark_place"
"""Metadata of a sample of a shard: its position in the whole data, from 0."""
_MOST: Final = 100_000
_FORM: Final = re.compile(r"(\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?)*)/(\d{1,6})")
_TAG: Final = b"guardmark shard 1\n"


def number_of(group: str, of: int) -> int:
    """Return in which of so many shards a group lies, from 1.

    The first eight bytes of SHA-256 over a fixed line and the group, as a number, modulo `of`:
    other data, other groups or another machine change nothing about where a group goes.
    """
    digest = sha256(_TAG + group.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % of + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSet:
    """Some of the shards of a run: one while it is measured, several once they are merged.

    Attributes:
        numbers: Which shards these are, counted from 1.
        of: How many shards the run has.
    """

    numbers: frozenset[int]
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `3/16`, or `1-4,7/16`; anything else is a `ValueError`."""
        form = _FORM.fullmatch(text)
        if form is None:
            raise ValueError(f"{text[:80]!r} is not a shard: expected K/N, for example 3/16")
        of, numbers = int(form[2]), set[int]()
        for part in form[1].split(","):
            first, _, last = part.partition("-")
            numbers.update(range(int(first), int(last or first) + 1))
        if not numbers or not 1 <= min(numbers) <= max(numbers) <= of <= _MOST:
            raise ValueError(f"{text[:80]!r}: shards are numbered from 1 to {min(of, _MOST):,}")
        return cls(numbers=frozenset(numbers), of=of)

    def __str__(self) -> str:
        """Write it as it is read."""
        return f"{in_ranges(self.numbers)}/{self.of}"

    @property
    def missing(self) -> frozenset[int]:
        """The shards that are not among these."""
        return frozenset(range(1, self.of + 1)) - self.numbers

    def name_run(self, name: str) -> str:
        """Name a run so that each of its reports says of which part of the data it is."""
        if not self.missing:
            return name
        if len(self.numbers) == 1:
            return f"{name} (shard {min(self.numbers)} of {self.of})"
        held, missing = len(self.numbers), in_ranges(self.missing)
        return f"{name} ({held} of {self.of} shards; missing: {missing})"

    def holds(self, sample: Sample | PlainSample) -> bool:
        """Tell whether a sample lies in one of these shards."""
        return number_of(sample.group or sample.id, self.of) in self.numbers

    def take(self, samples: Iterable[Sample | PlainSample]) -> Iterator[Sample | PlainSample]:
        """Yield the samples of these shards, each with its place in the whole data."""
        for position, sample in enumerate(samples):
            if self.holds(sample):
                yield _placed(sample, position)


def name_part(name: str, shard: str | None) -> str:
    """Name a run that may hold a part of the data, as each of its reports and gates does."""
    return ShardSet.parse(shard).name_run(name) if shard else name


def in_ranges(numbers: Iterable[int]) -> str:
    """Write numbers as `1-4,7`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    texts = []
    for first, *others in ranges:
        texts.append(f"{first}-{others[-1]}" if others else f"{first}")
    return ",".join(texts)


def _placed(sample: Sample | PlainSample, position: int) -> Sample | PlainSample:
    if not isinstance(sample, PlainSample):
        return replace(sample, metadata={**sample.metadata, PLACE: position})
    rest = json.loads(sample.rest) if sample.rest else {}
    rest["metadata"] = {**rest.get("metadata", {}), PLACE: position}
    return sample._replace(rest=json.dumps(rest, separators=(",", ":")))


def without_place(sample: Sample) -> Sample:
    """Return a sample of a shard as it is in the whole data."""
    kept = {key: value for key, value in sample.metadata.items() if key != PLACE}
    return replace(sample, metadata=kept)
