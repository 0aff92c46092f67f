"""Data sets as one stream of samples, validated whole before anything runs."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate
from typing import TYPE_CHECKING

from guardmark.datasets.faults import BadRows, Fault
from guardmark.datasets.files import read_rows
from guardmark.datasets.kept import KEPT_BYTES, Kept
from guardmark.datasets.reading import DataReading, group_scopes, in_scope, sample_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.core.manifest import DataManifest
    from guardmark.core.sample import Sample
    from guardmark.core.taxonomy import Taxonomy
    from guardmark.datasets.rows import RowReader
    from guardmark.datasets.spec import DatasetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedData:
    """Validated data, ready to be iterated as often as asked."""

    manifests: tuple[DataManifest, ...]
    count: int
    taxonomy: Taxonomy
    warnings: tuple[str, ...]
    stream: SampleStream

    @property
    def name(self) -> str:
        """The names of the data sets, joined."""
        return " + ".join(dict.fromkeys(m.name for m in self.manifests))

    def samples(self) -> Iterator[Sample]:
        """Yield every sample, in the same order each time."""
        return iter(self.stream)

    def plain(self) -> Iterator[Sample]:
        """Yield every sample, as `Reading.plain` does; these were built already."""
        return self.samples()


class SampleStream:
    """Samples of several files in order, from memory or from the files again."""

    def __init__(self, readers: Sequence[RowReader], kept: list[Sample] | None) -> None:
        self._readers = readers
        self._kept = kept
        self._chosen: frozenset[int] | None = None

    def choose(self, positions: frozenset[int]) -> None:
        """Keep only the samples at these positions."""
        self._chosen = positions

    def __iter__(self) -> Iterator[Sample]:
        """Yield the samples in order."""
        return (sample for _, sample in self.chosen())

    def chosen(self) -> Iterator[tuple[int, Sample]]:
        """Yield the samples with their positions in the whole data."""
        stream = iter(self._kept) if self._kept is not None else self._reread()
        numbered = enumerate(stream)
        if self._chosen is None:
            return numbered
        chosen = self._chosen
        return (pair for pair in numbered if pair[0] in chosen)

    def _reread(self) -> Iterator[Sample]:
        for reader, scope in zip(self._readers, group_scopes(self._readers), strict=True):
            for number, row in read_rows(reader.spec):
                if isinstance(row, Fault) or not reader.wanted(row):
                    continue
                sample = reader.read(number, row)
                if isinstance(sample, list):
                    raise BadRows(sample)
                yield in_scope(sample, scope)


def load(
    specs: Sequence[DatasetSpec],
    taxonomy: Taxonomy,
    *,
    limit: int | None = None,
    seed: int = 0,
) -> LoadedData:
    """Read and validate data sets."""
    reading, kept = DataReading(specs, taxonomy), Kept(KEPT_BYTES)
    for sample in reading.samples():
        if kept.is_whole:
            kept.add(sample)
    manifests = list(reading.manifests)
    stream = SampleStream(reading.readers, kept.samples if kept.is_whole else None)
    count = reading.count
    if limit is not None and limit < count:
        chosen = _stratified(stream, limit, seed)
        stream.choose(chosen)
        count = len(chosen)
        manifests = _counted_anew(manifests, stream, [m.attacks + m.benign for m in manifests])
    return LoadedData(
        manifests=tuple(manifests),
        count=count,
        taxonomy=reading.taxonomy,
        warnings=reading.warnings,
        stream=stream,
    )


def _stratified(stream: SampleStream, limit: int, seed: int) -> frozenset[int]:
    """Choose positions: each (label, category) by its share, within it by hashed order."""
    strata: dict[tuple[str, str], list[tuple[bytes, int]]] = {}
    total = 0
    for position, sample in enumerate(stream):
        rank = sha256(f"{seed}\x1f{sample.id}".encode()).digest()
        strata.setdefault((sample.label.value, sample.category), []).append((rank, position))
        total += 1
    shares = {key: limit * len(members) / total for key, members in strata.items()}
    taken = {key: int(share) for key, share in shares.items()}
    by_rest = sorted(strata, key=lambda key: (taken[key] - shares[key], key))
    for key in by_rest[: limit - sum(taken.values())]:
        taken[key] += 1
    return frozenset(
        position for key, members in strata.items() for _, position in sorted(members)[: taken[key]]
    )


def _counted_anew(
    manifests: Sequence[DataManifest], stream: SampleStream, sizes: Sequence[int]
) -> list[DataManifest]:
    """Restate counts and hashes for the part that --limit took."""
    ends = list(accumulate(sizes))
    digests = [sha256() for _ in manifests]
    attacks, benign = [0] * len(manifests), [0] * len(manifests)
    for position, sample in stream.chosen():
        index = bisect_right(ends, position)
        digests[index].update(sample_digest(sample))
        attacks[index] += sample.is_attack
        benign[index] += not sample.is_attack
    return [
        replace(manifest, sha256=digest.hexdigest(), attacks=a, benign=b)
        for manifest, digest, a, b in zip(manifests, digests, attacks, benign, strict=True)
    ]
