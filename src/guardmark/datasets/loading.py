"""Data sets as one stream of samples, validated whole before anything runs."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections import Counter, deque
from contextlib import suppress
from dataclasses import field, replace
from functools import lru_cache, partial
from hashlib import file_digest, sha256
from itertools import accumulate, chain, combinations
from sys import byteorder
from typing import TYPE_CHECKING, Final, cast

from guardmark.core.errors import DatasetError, counted
from guardmark.core.manifest import DataManifest
from guardmark.core.sample import Label, Sample, extended
from guardmark.core.values import dataclass
from guardmark.datasets.formats.fields import BadRows, Fault
from guardmark.datasets.formats.files import open_bytes, read_rows
from guardmark.datasets.formats.filters import check_filters, files_text
from guardmark.datasets.formats.rows import RowReader
from guardmark.datasets.formats.turns import by_turn
from guardmark.store.samples import UNLABELLED, Kind, PlainSample, kind_of, label_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from guardmark.core.sample import Taxonomy
    from guardmark.datasets.formats.fields import DatasetSpec


class DataReading:
    """One pass over data sets that checks all of it: faults, double ids, contradictions.

    The samples are handed on as they come, so whoever takes them must be able to give them
    back: what is wrong with the data is raised at the end, all of it at once. Ids and texts
    are remembered as 8-byte keys, those of benign texts and of attacks apart, so that a
    million samples stay small; only when a key repeats are the files read again to name the
    rows.
    """

    def __init__(self, specs: Sequence[DatasetSpec], taxonomy: Taxonomy) -> None:
        self.readers = tuple(RowReader(spec, taxonomy) for spec in specs)
        self.count = 0
        self.manifests: list[DataManifest] = []
        self._taxonomy = taxonomy
        self._faults: list[Fault] = []
        self._unmet: Sequence[str] = ()
        self._has_rows = False
        self._unlabelled: dict[RowReader, int] = {}
        self._left_out: dict[RowReader, int] = {}
        self._ids = array("q")
        self._texts = (array("Q"), array("Q"))
        self._families = SharedFamilies()

    def samples(self) -> Iterator[Sample]:
        """Yield every sample in full, once."""
        return cast("Iterator[Sample]", self._pass(is_plain=False))

    def plain(self) -> Iterator[PlainSample | Sample]:
        """Yield every sample once, in the form in which it is stored where it is plain."""
        return self._pass(is_plain=True)

    @property
    def taxonomy(self) -> Taxonomy:
        """The taxonomy, with categories that packs brought themselves."""
        own: dict[str, list[str]] = {}
        for reader in self.readers:
            for name, subcategories in reader.own_categories.items():
                own[name] = sorted(subcategories - {""})
        return extended(self._taxonomy, own)

    @property
    def unused(self) -> dict[str, tuple[str, ...]]:
        """The columns of each file that are no field of a sample."""
        return {reader.spec.shown_as: tuple(reader.unused) for reader in self.readers}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was kept, or left out, and deserves a word."""
        warnings = list(_warnings(self.readers))
        for reader, count in self._left_out.items():
            rows = counted(count, "row")
            warnings.append(f"{reader.spec.shown_as}: {rows} without a label left out")
        warnings += self._families.notes()
        warnings += self._unmet
        return tuple(warnings)

    def _pass(self, *, is_plain: bool) -> Iterator[PlainSample | Sample]:
        """Yield every sample once, those without a label last; raise all faults at the end."""
        for reader in self.readers:
            yield from self._file(reader, is_plain=is_plain)
        for reader in self._unlabelled:
            yield from _without_label(reader)
        self._raise_faults()
        self._unmet = check_filters([(reader.spec, reader.filters) for reader in self.readers])
        specs = [reader.spec for reader in self.readers]
        if not self.count and not self._left_out:
            raise DatasetError(_nothing_left(specs, has_rows=self._has_rows))
        if self.count == sum(self._unlabelled.values()):
            raise DatasetError(
                f"No row of {files_text(specs)} has a label, so no rate could be told.\n"
                "Next: name the column (label_field: COLUMN), or label some of the rows."
            )

    def _file(self, reader: RowReader, *, is_plain: bool) -> Iterator[PlainSample | Sample]:
        """Yield the samples of a file that have a label, and take note of all."""
        spec, digest = reader.spec, sha256()
        is_by_turn = spec.turns != "last"
        read = reader.plain if is_plain and not is_by_turn else reader.read
        is_filtered = spec.is_filtered
        note_id = self._ids.append
        note_text = [texts.frombytes for texts in self._texts]
        note_group = self._families.of_file(spec.shown_as) if len(self.readers) > 1 else None
        kinds: Counter[Kind] = Counter()
        number = left_out = 0
        for number, row in self._sound_rows(spec):
            if is_filtered and not reader.wanted(row):
                continue
            whole = read(number, row)
            if isinstance(whole, list):
                self._faults.extend(whole)
                left_out += not whole
                continue
            samples: Iterable[PlainSample | Sample] = (whole,)
            if is_by_turn and isinstance(whole, Sample):
                samples = by_turn(whole, is_joined=spec.turns == "both")
            for sample in samples:
                if isinstance(sample, PlainSample):
                    sample_id, kind, group, _, content, _ = sample
                    digest.update(_digest(sample_id, content, kind, group))
                else:
                    content, sample_id = sample.prompt.digest(), sample.id
                    kind, group = kind_of(sample), sample.group
                    digest.update(sample_digest(sample))
                note_id(hash(sample_id))
                kinds[kind] += 1
                if note_group is not None and group:
                    note_group(group)
                if kind[0] == UNLABELLED:
                    continue
                note_text[kind[0]](content[:_KEY])
                if not self._faults:
                    yield sample
        self._has_rows |= number > 0
        self._note_file(reader, digest.hexdigest(), kinds, left_out=left_out)

    def _note_file(
        self, reader: RowReader, digest: str, kinds: Counter[Kind], *, left_out: int
    ) -> None:
        """Keep what a file was, once all of its rows were read."""
        if left_out:
            self._left_out[reader] = left_out
        spec = reader.spec
        manifest = DataManifest(
            name=spec.name,
            version=spec.version,
            sha256=digest,
            attacks=0,
            benign=0,
            # Data with a fault are refused as a whole; to hash a gigabyte before takes seconds.
            files={} if self._faults else file_hashes(spec),
            mapping=dict(sorted(reader.mapping.items())),
        )
        counted_manifest = _with_counts(manifest, kinds)
        self.manifests.append(counted_manifest)
        self.count += kinds.total()
        if counted_manifest.unlabelled:
            self._unlabelled[reader] = counted_manifest.unlabelled

    def _sound_rows(self, spec: DatasetSpec) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield the rows that can be read; note the others, and a file that breaks off."""
        try:
            for number, row in read_rows(spec):
                if isinstance(row, Fault):
                    self._faults.append(row)
                else:
                    yield number, row
        except BadRows as broken:
            self._faults.extend(broken.faults)

    def _raise_faults(self) -> None:
        """Raise every fault found, double ids and contradictions included."""
        ids = _repeated(self._ids)
        benign, attacks = self._texts
        contradicted = set(benign).intersection(attacks)
        if ids or contradicted:
            self._faults.extend(_name_repeats(self.readers, ids, contradicted))
        if self._faults:
            raise BadRows(self._faults)


_KEY = 8  # bytes that stand for an id or a text; equal keys are compared in full later


def _repeated(keys: array[int]) -> set[int]:
    """Return the keys that occur more than once."""
    repeated: set[int] = set()
    if len(set(keys)) == len(keys):
        return repeated
    seen: set[int] = set()
    for key in keys:
        if key in seen:
            repeated.add(key)
        seen.add(key)
    return repeated


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
            fault = partial(Fault, file=file, row=number)
            if hash(sample.id) in ids:
                before = first_id.setdefault(sample.id, here)
                if before != here:
                    value = f"{sample.id[:60]!r} of {before}"
                    yield fault(field="id", message="repeats the id {value}", value=value)
            key = int.from_bytes(sample.prompt.digest()[:_KEY], byteorder)
            if key not in contradicted or not sample.is_labelled:
                continue
            label, first = first_text.setdefault(key, (sample.label, here))
            if label is not sample.label:
                words = f"says {sample.label}, but the same text is labelled {label} at"
                yield fault(field="label", message=f"{words} {{value}}", value=first)


def _readable(reader: RowReader) -> Iterator[tuple[int, Sample]]:
    """Yield what the first pass could read, and pass over what it could not."""
    with suppress(BadRows):
        for number, sample in _again(reader):
            if isinstance(sample, Sample):
                yield number, sample


def _without_label(reader: RowReader) -> Iterator[Sample]:
    """Read a file again for its samples without a label, which stand behind all others."""
    for _, sample in _readable(reader):
        if not sample.is_labelled:
            yield sample


def _again(reader: RowReader) -> Iterator[tuple[int, Sample | list[Fault]]]:
    """Read the rows of a file again, each into a sample or what is wrong with it."""
    for number, row in read_rows(reader.spec):
        if isinstance(row, Fault) or not reader.wanted(row):
            continue
        read = reader.read(number, row)
        if isinstance(read, Sample) and reader.spec.turns != "last":
            for turn in by_turn(read, is_joined=reader.spec.turns == "both"):
                yield number, turn
        else:
            yield number, read


def sample_digest(sample: Sample) -> bytes:
    """Hash what a figure can depend on: id, content, label and facets."""
    return _digest(
        sample.id,
        sample.prompt.digest(),
        kind_of(sample),
        sample.group,
        crossing=sample.crossing,
        marks=_marks_text(sample),
    )


def _marks_text(sample: Sample) -> str:
    """Write what must not survive and when the harm is asked for; empty for most samples."""
    if not (sample.spans or sample.secrets or sample.harm_turn):
        return ""
    return json.dumps([sample.spans, sample.secrets, sample.harm_turn], ensure_ascii=False)


def _digest(
    sample_id: str,
    content: bytes,
    kind: Kind,
    group: str | None,
    *,
    crossing: str = "",
    marks: str = "",
) -> bytes:
    """Hash the parts of a sample that a figure can depend on."""
    before, technique = _facets_text(kind)
    line = f"{sample_id}\x1f{content.hex()}\x1f{before}\x1f{group or ''}\x1f{technique}"
    if crossing:
        line += f"\x1f{crossing}"
    if marks:
        line += f"\x1fmarks {marks}"
    return sha256(line.encode()).digest()


@lru_cache(maxsize=4096)  # a million samples have a few hundred kinds
def _facets_text(kind: Kind) -> tuple[str, str]:
    """Join what samples of one kind have in common, and their technique."""
    _, category, subcategory, severity, language, variant, technique, _ = kind
    facets = (label_of(kind), category, subcategory, severity, language, variant)
    return "\x1f".join(facets), technique


class SharedFamilies:
    """Which families have samples in several files, so that a reader can say whether they should.

    A family is named by the group that a row states, by what its id tells (`h0-typo` is of `h0`),
    or by the id itself; nothing is put before the name. So a data set may be parted into files
    in any way, and its families stay the same.
    """

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def of_file(self, shown_as: str) -> Callable[[str], None]:
        """Return what notes a family of a file."""
        return self._names.setdefault(shown_as, set()).add

    def notes(self) -> Iterator[str]:
        """Say which families two files share: files that number their groups alike look so, too."""
        for (one, names), (other, others) in combinations(self._names.items(), 2):
            shared = names & others
            if not shared:
                continue
            if len(shared) == 1:
                count, what = "One group has", "it is taken as one family"
            else:
                count, what = f"{len(shared):,} groups have", "each is taken as one family"
            yield (
                f"{count} samples in both {one} and {other}, such as {min(shared)[:60]!r}: {what}. "
                "If the files only number their groups alike, rename the groups in one of them."
            )


def _warnings(readers: Sequence[RowReader]) -> Iterator[str]:
    """Say what was kept of files although it deserves a look."""
    undeclared: set[str] = set()
    for reader in readers:
        undeclared |= reader.undeclared
    if undeclared:
        names = ", ".join(sorted(undeclared))
        yield f"Subcategories outside the taxonomy, kept as they are: {names}."
    for reader in readers:
        if reader.unused_context:
            yield (
                f"{reader.spec.shown_as}: {counted(reader.unused_context, 'row')} with a "
                "ContextString, which is not part of the prompt; to send it, join the two columns "
                "before (context, then behavior)."
            )
        if reader.inferred:
            yield (
                f"{reader.spec.shown_as}: {len(reader.inferred)} items state no label: they are "
                "taken as attacks because their category, source or pack is called hateful "
                "(inferred_hateful). If benign ones are among them, state label or label_field."
            )


def _nothing_left(specs: Sequence[DatasetSpec], *, has_rows: bool) -> str:
    """Say why no sample is left, and what to do."""
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
    with open_bytes(path) as stream:
        return file_digest(stream, "sha256").hexdigest()


def file_hashes(spec: DatasetSpec) -> dict[str, str]:
    """Return the hashes of the files of a data set, as a run notes them."""
    return {shown_as: file_sha256(path) for shown_as, path in spec.sources.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedData:
    """Validated data, ready to be iterated as often as asked.

    Attributes:
        manifests: What each file was, in order.
        count: How many samples there are, those without a label included.
        taxonomy: The categories, with those that packs brought themselves.
        warnings: What was kept or left out and deserves a word.
        stream: The samples, read again each time.
        unused: Columns that are no field of a sample, by file.
    """

    manifests: tuple[DataManifest, ...]
    count: int
    taxonomy: Taxonomy
    warnings: tuple[str, ...]
    stream: SampleStream
    unused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The names of the data sets, joined."""
        names = dict.fromkeys(manifest.name for manifest in self.manifests)
        return " + ".join(names)

    def samples(self) -> Iterator[Sample]:
        """Yield every sample with a label, in the same order each time."""
        for sample in self.stream:
            if sample.is_labelled:
                yield sample

    def every_sample(self) -> Iterator[Sample]:
        """Yield every sample, in the same order each time, those without a label last."""
        return iter(self.stream)

    def plain(self) -> Iterator[Sample]:
        """Yield every sample, as `DataReading.plain` does; these were built already."""
        return self.every_sample()


_MOST_HELD: Final = 10_000
_MOST_HELD_CHARACTERS: Final = 4_000_000
"""What --limit took is read once where it is no more than this."""


class SampleStream:
    """Samples of several files in order, read from the files each time: memory stays flat."""

    def __init__(self, readers: Sequence[RowReader]) -> None:
        self._readers = readers
        self._chosen: frozenset[int] | None = None
        self._held: list[tuple[int, Sample]] | None = None

    def choose(self, positions: frozenset[int]) -> None:
        """Keep only the samples at these positions; a few short ones are held from here on."""
        self._chosen = positions
        if len(positions) > _MOST_HELD:
            return
        held = []
        characters = 0
        for position, sample in self.chosen():
            characters += sum(len(message.content) for message in sample.prompt.messages)
            if characters > _MOST_HELD_CHARACTERS:
                return
            held.append((position, sample))
        self._held = held

    def __iter__(self) -> Iterator[Sample]:
        """Yield the samples in order."""
        for _, sample in self.chosen():
            yield sample

    def chosen(self) -> Iterator[tuple[int, Sample]]:
        """Yield the samples with their positions in the whole data."""
        if self._held is not None:
            return iter(self._held)
        numbered = enumerate(self._reread())
        chosen = self._chosen
        if chosen is None:
            return numbered
        return (pair for pair in numbered if pair[0] in chosen)

    def _reread(self) -> Iterator[Sample]:
        """Read every sample again, those without a label last."""
        with_unlabelled = []
        for reader in self._readers:
            has_unlabelled = False
            for _, sample in _again(reader):
                if isinstance(sample, Sample) and sample.is_labelled:
                    yield sample
                elif isinstance(sample, Sample):
                    has_unlabelled = True
                elif sample:
                    raise BadRows(sample)
            if has_unlabelled:
                with_unlabelled.append(reader)
        for reader in with_unlabelled:
            yield from _without_label(reader)


def load(
    specs: Sequence[DatasetSpec], taxonomy: Taxonomy, *, limit: int | None = None, seed: int = 0
) -> LoadedData:
    """Read and validate data sets."""
    reading = DataReading(specs, taxonomy)
    strata = _Strata(seed)
    if limit is None:
        deque(reading.samples(), maxlen=0)
    else:
        for position, sample in enumerate(reading.samples()):
            strata.note(position, sample)
    manifests = reading.manifests
    stream = SampleStream(reading.readers)
    count = reading.count
    if limit is not None and limit < count:
        chosen = strata.choose(limit)
        stream.choose(chosen)
        count = len(chosen)
        sizes = [
            (manifest.attacks + manifest.benign, manifest.unlabelled) for manifest in manifests
        ]
        manifests = _counted_anew(manifests, stream, sizes)
    return LoadedData(
        manifests=tuple(manifests),
        count=count,
        taxonomy=reading.taxonomy,
        warnings=reading.warnings,
        stream=stream,
        unused=reading.unused,
    )


class _Strata:
    """Where the samples of each label and category stand, in an order drawn by a seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._ranked: dict[tuple[str, str], list[tuple[bytes, int]]] = {}

    def note(self, position: int, sample: Sample) -> None:
        """Take note of a sample."""
        rank = sha256(f"{self._seed}\x1f{sample.id}".encode()).digest()
        ranked = self._ranked.setdefault((sample.label.value, sample.category), [])
        ranked.append((rank, position))

    def choose(self, limit: int) -> frozenset[int]:
        """Choose positions: of each label and category its share, those drawn first."""
        total = sum(map(len, self._ranked.values()))
        taken: dict[tuple[str, str], int] = {}
        rounded: dict[tuple[str, str], float] = {}  # less what rounding down took from the share
        for key, ranked in self._ranked.items():
            share = limit * len(ranked) / total
            taken[key] = int(share)
            rounded[key] = taken[key] - share
        by_rest = sorted(self._ranked, key=lambda key: (rounded[key], key))
        for key in by_rest[: limit - sum(taken.values())]:
            taken[key] += 1
        chosen: set[int] = set()
        for key, ranked in self._ranked.items():
            chosen.update(position for _, position in sorted(ranked)[: taken[key]])
        return frozenset(chosen)


def _counted_anew(
    manifests: Sequence[DataManifest], stream: SampleStream, sizes: Sequence[tuple[int, int]]
) -> list[DataManifest]:
    """Restate counts and hashes for the part that --limit took.

    `sizes` are the samples of each file with a label, and without; those without stand behind all.
    """
    ends = list(accumulate(chain(*zip(*sizes, strict=True))))
    digests = [sha256() for _ in manifests]
    kinds: list[Counter[Kind]] = [Counter() for _ in manifests]
    for position, sample in stream.chosen():
        index = bisect_right(ends, position) % len(manifests)
        digests[index].update(sample_digest(sample))
        kinds[index][kind_of(sample)] += 1
    return [
        _with_counts(replace(manifest, sha256=digest.hexdigest()), of_file)
        for manifest, digest, of_file in zip(manifests, digests, kinds, strict=True)
    ]


_MOST_NAMES: Final = 200  # of sources and variants whose counts a manifest keeps
_OTHERS: Final = "(others)"


def _with_counts(manifest: DataManifest, kinds: Counter[Kind]) -> DataManifest:
    """State how many samples of each label, source and variant there are."""
    labels: Counter[Label] = Counter()
    sources: Counter[str] = Counter()
    variants: Counter[str] = Counter()
    for kind, count in kinds.items():
        labels[label_of(kind)] += count
        sources[kind[-1]] += count
        variants[kind[5]] += count
    return replace(
        manifest,
        attacks=labels[Label.ATTACK],
        benign=labels[Label.BENIGN],
        unlabelled=labels[Label.UNLABELLED],
        by_source=_most_frequent(sources),
        by_variant=_most_frequent(variants),
    )


def _most_frequent(counts: Counter[str]) -> dict[str, int]:
    """Return counts by name, those of rare names together where there are too many to keep."""
    listed = dict(counts.most_common(_MOST_NAMES))
    rest = counts.total() - sum(listed.values())
    if rest:
        listed[_OTHERS] = rest
    return listed
