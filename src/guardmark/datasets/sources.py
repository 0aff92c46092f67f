"""Data sets as one stream of samples, validated whole before anything runs."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import file_digest, sha256
from itertools import accumulate
from typing import TYPE_CHECKING

from guardmark.core.errors import DatasetError
from guardmark.core.manifest import DataManifest
from guardmark.core.sample import Label
from guardmark.datasets.faults import BadRows, Fault
from guardmark.datasets.files import read_rows
from guardmark.datasets.filters import check_filters, files_text
from guardmark.datasets.kept import KEPT_BYTES, Kept
from guardmark.datasets.rows import RowReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from guardmark.core.sample import Sample
    from guardmark.core.taxonomy import Taxonomy
    from guardmark.datasets.spec import DatasetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedData:
    """Validated data, ready to be iterated as often as asked.

    Attributes:
        manifests: One for each data set, in the order of the configuration.
        count: Number of samples.
        taxonomy: The taxonomy, with categories that packs brought themselves.
        warnings: What was kept but deserves a word.
        stream: Where the samples come from.
    """

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

    def let_go(self) -> None:
        """Free the memory of the samples; who asks for them again reads the files again."""
        self.stream.let_go()


class SampleStream:
    """Samples of several files in order, from memory or from the files again."""

    def __init__(self, readers: Sequence[RowReader], kept: list[Sample] | None) -> None:
        self._readers = readers
        self._kept = kept
        self._chosen: frozenset[int] | None = None

    def let_go(self) -> None:
        """Keep the samples no longer; the next pass reads the files again."""
        self._kept = None

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
        scoped = _group_scopes(self._readers)
        for reader, scope in zip(self._readers, scoped, strict=True):
            for number, row in read_rows(reader.spec):
                if isinstance(row, Fault) or not reader.wanted(row):
                    continue
                sample = reader.read(number, row)
                if isinstance(sample, list):
                    raise BadRows(sample)
                yield _in_scope(sample, scope)


def load(
    specs: Sequence[DatasetSpec],
    taxonomy: Taxonomy,
    *,
    limit: int | None = None,
    seed: int = 0,
) -> LoadedData:
    """Read and validate data sets.

    Args:
        specs: The data sets, in order.
        taxonomy: Categories an attack may have.
        limit: Take only so many samples, stratified by label and category; which ones
            depends on the seed and the sample ids alone.
        seed: Seed of that choice.

    Returns:
        The samples with their manifests.

    Raises:
        BadRows: If any row cannot be used; all of them are listed.
        DatasetError: If a file cannot be read, or no sample is left.
    """
    readers = [RowReader(spec, taxonomy) for spec in specs]
    check, kept = _FirstPass(), Kept(KEPT_BYTES)
    manifests = []
    for reader, scope in zip(readers, _group_scopes(readers), strict=True):
        manifests.append(check.read(reader, scope, kept))
    check.finish(readers)
    unmet = check_filters([(reader.spec, reader.filters) for reader in readers])
    if not check.count:
        raise DatasetError(_nothing_left(specs, has_rows=check.has_rows))
    stream = SampleStream(readers, kept.samples if kept.is_whole else None)
    count = check.count
    if limit is not None and limit < count:
        chosen = _stratified(stream, limit, seed)
        stream.choose(chosen)
        count = len(chosen)
        manifests = _counted_anew(manifests, stream, [m.attacks + m.benign for m in manifests])
    return LoadedData(
        manifests=tuple(manifests),
        count=count,
        taxonomy=_with_own_categories(taxonomy, readers),
        warnings=(*_warnings(readers), *unmet),
        stream=stream,
    )


class _FirstPass:
    """Looks at every row once: faults, double ids, contradictions, counts, hashes.

    Ids and texts are remembered as 8-byte keys, so that a million samples stay small; only
    when a key repeats are the files read again to name the rows.
    """

    def __init__(self) -> None:
        self.count = 0
        self.has_rows = False
        self._faults: list[Fault] = []
        self._ids = array("Q")
        self._texts = array("Q")

    def read(self, reader: RowReader, scope: str, kept: Kept) -> DataManifest:
        spec, digest = reader.spec, sha256()
        counts = {Label.ATTACK: 0, Label.BENIGN: 0}
        filtered = spec.is_filtered
        number = 0
        for number, row in self._sound_rows(spec):
            if filtered and not reader.wanted(row):
                continue
            read = reader.read(number, row)
            if isinstance(read, list):
                self._faults.extend(read)
                continue
            sample = _in_scope(read, scope) if scope else read
            content = sample.prompt.digest()
            digest.update(_sample_digest(sample, content))
            self._ids.append(_id_key(sample))
            self._texts.append(_text_key(sample, content))
            counts[sample.label] += 1
            if kept.is_whole:
                kept.add(sample)
        self.has_rows |= number > 0
        self.count += sum(counts.values())
        return DataManifest(
            name=spec.name,
            version=spec.version,
            sha256=digest.hexdigest(),
            attacks=counts[Label.ATTACK],
            benign=counts[Label.BENIGN],
            files={spec.shown_as: file_sha256(spec.path)},
            mapping=dict(sorted(reader.mapping.items())),
        )

    def _sound_rows(self, spec: DatasetSpec) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield what is a row; note what is none, and that a file breaks off."""
        try:
            for number, row in read_rows(spec):
                if isinstance(row, Fault):
                    self._faults.append(row)
                else:
                    yield number, row
        except BadRows as broken:
            self._faults.extend(broken.faults)

    def finish(self, readers: Sequence[RowReader]) -> None:
        """Raise every fault found, double ids and contradictions included."""
        ids = _repeated(self._ids)
        labels_of = set(self._texts)
        contradicted = {key >> 1 for key in labels_of if not key & 1 and key | 1 in labels_of}
        if ids or contradicted:
            self._faults.extend(_name_repeats(readers, ids, contradicted))
        if self._faults:
            raise BadRows(self._faults)


_KEY_BITS = 0xFFFF_FFFF_FFFF_FFFF


def _id_key(sample: Sample) -> int:
    """64 bits that stand for the id within this process; equal ids are compared in full later."""
    return hash(sample.id) & _KEY_BITS


def _text_key(sample: Sample, content: bytes) -> int:
    """63 bits of the content hash, and the label in the lowest bit."""
    return int.from_bytes(content[:8]) >> 1 << 1 | (sample.label is Label.ATTACK)


def _repeated(keys: array[int]) -> set[int]:
    seen: set[int] = set()
    if len(set(keys)) == len(keys):
        return seen
    return {key for key in keys if key in seen or seen.add(key)}  # type: ignore[func-returns-value]  # add returns None: the usual idiom for a repeat


def _name_repeats(
    readers: Sequence[RowReader], ids: set[int], contradicted: set[int]
) -> Iterator[Fault]:
    """Read again to say which rows repeat an id or contradict another's label."""
    first_id: dict[str, str] = {}
    first_text: dict[int, tuple[Label, str]] = {}
    for reader in readers:
        file = reader.spec.shown_as
        for number, sample in _readable(reader):
            here = f"{file} row {number}"
            if _id_key(sample) in ids:
                before = first_id.setdefault(sample.id, here)
                if before != here:
                    message = f"repeats the id {sample.id[:60]!r} of {before}"
                    yield Fault(file=file, row=number, field="id", message=message)
            key = _text_key(sample, sample.prompt.digest()) >> 1
            if key in contradicted:
                label, place = first_text.setdefault(key, (sample.label, here))
                if label is not sample.label:
                    message = (
                        f"says {sample.label.value}, but the same text is labelled "
                        f"{label.value} at {place}"
                    )
                    yield Fault(file=file, row=number, field="label", message=message)


def _readable(reader: RowReader) -> Iterator[tuple[int, Sample]]:
    """Yield what the first pass could read, and pass over what it could not."""
    with suppress(BadRows):
        for number, row in read_rows(reader.spec):
            if isinstance(row, Fault) or not reader.wanted(row):
                continue
            sample = reader.read(number, row)
            if not isinstance(sample, list):
                yield number, sample


def _sample_digest(sample: Sample, content: bytes) -> bytes:
    """Hash what a figure can depend on: id, content, label and facets."""
    facets = (
        sample.id,
        content.hex(),
        sample.label,
        sample.category,
        sample.subcategory,
        sample.severity or "",
        sample.language,
        sample.variant,
        sample.group,
        sample.technique,
    )
    return sha256("\x1f".join(facets).encode()).digest()


def _group_scopes(readers: Sequence[RowReader]) -> list[str]:
    """Prefix of the groups of each file: none while all files are one data set.

    Two data sets may both call a group 1 without meaning the same origin; data sets of
    equal name mean the same.
    """
    names = [reader.spec.name for reader in readers]
    return ["" if len(set(names)) == 1 else f"{name}:" for name in names]


def _in_scope(sample: Sample, scope: str) -> Sample:
    if not scope or not sample.group:
        return sample
    return replace(sample, group=scope + sample.group)


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
        digests[index].update(_sample_digest(sample, sample.prompt.digest()))
        attacks[index] += sample.is_attack
        benign[index] += not sample.is_attack
    return [
        replace(manifest, sha256=digest.hexdigest(), attacks=a, benign=b)
        for manifest, digest, a, b in zip(manifests, digests, attacks, benign, strict=True)
    ]


def _with_own_categories(taxonomy: Taxonomy, readers: Sequence[RowReader]) -> Taxonomy:
    own = {
        name: sorted(sub for sub in subs if sub)
        for reader in readers
        for name, subs in reader.own_categories.items()
    }
    return taxonomy.extended(own) if own else taxonomy


def _warnings(readers: Sequence[RowReader]) -> Iterator[str]:
    undeclared = sorted({name for reader in readers for name in reader.undeclared})
    if undeclared:
        which = (
            "One subcategory is not declared in the taxonomy and is kept as it is"
            if len(undeclared) == 1
            else f"{len(undeclared)} subcategories are not declared in the taxonomy and are kept "
            "as they are"
        )
        yield f"{which}: {', '.join(undeclared)}."
    for reader in readers:
        if reader.inferred:
            yield (
                f"{reader.spec.shown_as}: {len(reader.inferred)} items state no label: they are "
                "taken as attacks because their category, source or pack is called hateful "
                "(inferred_hateful). If benign ones are among them, state label or label_field."
            )


def _nothing_left(specs: Sequence[DatasetSpec], *, has_rows: bool) -> str:
    files = files_text(specs)
    if has_rows:
        return (
            f"No sample is left in {files}: no row passes the filter.\n"
            "Each thing it asks for is in some row, but all of them in none: ask for less."
        )
    return (
        f"The data set is empty: {files} holds no rows.\n"
        "Name a file with samples, or take the built-in ones: data: [{builtin: core}]"
    )


def file_sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of the bytes of a file."""
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()
