"""Several runs as one: shards of the same run, or other defenses over the same samples."""

from __future__ import annotations

import heapq
import json
from array import array
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import product
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import StoreError
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.values import dataclass
from guardmark.engine.plan import UNHASHED
from guardmark.engine.shards import PLACE, ShardSet, in_ranges, without_place
from guardmark.store import integrity
from guardmark.store.codec import answer_of, record_of
from guardmark.store.connect import values_of
from guardmark.store.reader import RunState
from guardmark.store.records import supersede_errors
from guardmark.store.schema import STAGE_CODE, query
from guardmark.store.under_way import POSSIBLY_BILLED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TypeVar

    from guardmark.core.manifest import PartManifest, RunManifest
    from guardmark.core.sample import Sample
    from guardmark.store.reader import RecordReader
    from guardmark.store.records import RecordWriter

    T = TypeVar("T")

_CHUNK: Final = 1000
_LISTED: Final = 4
_LARGEST: Final = 1 << 20  # bytes of a file about an environment that are read
_SUPERSEDED: Final = (
    "SELECT d.name, r.stage, l.name, r.repeat, r.sample, r.flags, r.text, r.outcome, r.score,"
    " r.score_kind, r.error_kind, r.answer_mode, r.latency_ns, r.evidence FROM superseded r"
    " JOIN defenses d ON d.id = r.defense JOIN layers l ON l.id = r.layer ORDER BY r.id"
)
_SAME: Final = ("stats", "taxonomy", "latency", "pipeline")
"""Settings in which runs of different defenses must agree, beside repeats and policies."""
_SAME_OF_RUN: Final = ("repeats", "on_malformed", "on_error", "seed", "shard")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSource:
    """A finished run that is to be merged, what to call it, and what its manifest says."""

    label: str
    reader: RecordReader
    manifest: RunManifest

    @property
    def shards(self) -> ShardSet | None:
        """Which shards it holds, or None where it holds the whole data."""
        text = _of_run(self.manifest).get("shard")
        if not text:
            return None
        try:
            return ShardSet.parse(str(text))
        except ValueError as error:
            raise StoreError(f"{self.label} is damaged: {error}.") from error


def describe_merged(sources: Sequence[MergeSource], *, allow_missing: bool) -> RunManifest:
    """Say what the merged run is; name and refuse whatever does not belong together."""
    wrong, first = list[str](), sources[0]
    for source in sources:
        with values_of(source.reader.path):
            wrong += _unfit(source)
    if _are_shards(sources):
        wrong += _faults_of_shards(sources, allow_missing=allow_missing)
        _refuse(wrong)
        return _whole(sources)
    for source in sources[1:]:
        wrong += _faults_beside(first, source)
    homes = defaultdict[str, list[str]](list)
    for source in sources:
        for name in source.reader.defenses():
            homes[name].append(source.label)
    for name, labels in homes.items():
        if len(labels) > 1:
            wrong.append(f"the defense {name!a} is in {' and in '.join(labels)}")
    if len(sources) == 1:
        wrong.append(f"{first.label} alone is not a shard: name the runs to join it with")
    _refuse(wrong)
    return _joined(sources)


def _are_shards(sources: Sequence[MergeSource]) -> bool:
    """Tell whether runs are parts of one run; else each is to measure other defenses."""
    if not any(source.shards for source in sources):
        return False
    parts = {str(source.shards) for source in sources}
    runs = {source.manifest.config_sha256 for source in sources}
    return len(runs) == 1 or len(parts) > 1


def _refuse(faults: Sequence[str]) -> None:
    """Raise a StoreError that names the first faults, where there are any."""
    if not faults:
        return
    lines = ["These runs cannot be merged; nothing was written:"]
    lines += [f"  {fault}" for fault in faults[:_LISTED]]
    if len(faults) > _LISTED:
        lines.append(f"  ... and {len(faults) - _LISTED:,} more")
    raise StoreError("\n".join(lines))


def _unfit(source: MergeSource) -> Iterator[str]:
    """Yield why a run cannot be merged with any other."""
    status, label = source.reader.status(), source.label
    if status.state is not RunState.COMPLETE:
        yield (
            f"{label} is not complete, {status.stored:,} of {status.planned:,} records are "
            "stored: give its command again"
        )
    # Values of a stranger are read here first: what cannot be read is raised, not yielded.
    _built(source.manifest)
    _samples_of(source.manifest)
    own = {FIRST_LAYER, "refused-fields"}
    added = [layer for layer in source.reader.layers() if layer.partition("/")[0] not in own]
    if added:
        yield f"{label} was judged or attacked since ({added[0]!a:.60}): merge first, then do that"
    if _of_run(source.manifest).get("stop_when"):
        yield f"{label} ends by a rule (run.stop_when), whose looks cannot be put together"
    damage = integrity.check(source.reader.path)
    if damage:
        yield f"{label} is not what was committed: {damage[0]!a:.200}"


def _most_common(values: Iterable[T]) -> T:
    ((value, _),) = Counter(values).most_common(1)
    return value


def _faults_of_shards(sources: Sequence[MergeSource], *, allow_missing: bool) -> Iterator[str]:
    """Yield why shards are not those of one run, each exactly once."""
    of = _most_common(source.shards.of for source in sources if source.shards)
    origins = [(source.manifest.config_sha256, source.manifest.data_sha256) for source in sources]
    first = sources[origins.index(_most_common(origins))]  # never the odd one
    homes = defaultdict[int, list[str]](list)
    is_faulty = False
    for source in sources:
        fault = _foreign(source, first, of)
        if fault:
            is_faulty = True
            yield f"{source.label} {fault}"
        if source.shards is not None:
            for number in source.shards.numbers:
                homes[number].append(source.label)
    if is_faulty:
        return
    for number, labels in sorted(homes.items()):
        if len(labels) > 1:
            yield f"shard {number} is in {' and in '.join(labels)}"
    missing = frozenset(range(1, of + 1)) - homes.keys()
    if missing and not allow_missing:
        yield f"missing of {of} shards: {in_ranges(missing)} (--allow-missing goes without)"


def _foreign(source: MergeSource, first: MergeSource, of: int) -> str:
    """Say why a run is no shard of the same run as another; empty where it is."""
    now, then = source.manifest, first.manifest
    if source.shards is None:
        return "is not a shard: it holds the whole data"
    if source.shards.of != of:
        return f"is one of {source.shards.of} shards, and others are of {of}"
    if now.config_sha256 != then.config_sha256:
        what = _difference(_configured(then), _configured(now)) or "other options (--limit, --only)"
        return f"is of another configuration than {first.label}: {what}"
    if now.data_sha256 != then.data_sha256:
        return f"is of other data than {first.label}"
    what = _difference(_built(then), _built(now))
    if what:
        return f"was made with other parts than {first.label}: {what}"
    return ""


def _faults_beside(first: MergeSource, source: MergeSource) -> Iterator[str]:
    """Yield why the defenses of a run were not measured as those of the first."""
    label, manifest = source.label, source.manifest
    samples = source.reader.connection.meta("samples")
    is_same_part = samples == first.reader.connection.meta("samples")
    if manifest.data_sha256 != first.manifest.data_sha256 or not is_same_part:
        yield f"{label} is of other data than {first.label}, or of another part of it"
    what = _difference(_conditions(first.manifest), _conditions(manifest))
    if what:
        yield f"{label} was measured otherwise than {first.label}: {what}"
    if manifest.settings.get("pipeline"):
        yield f"{label} holds a pipeline; only runs of defenses alone can be joined"


def _conditions(manifest: RunManifest) -> dict[str, object]:
    """Return under which conditions a run measured its defenses."""
    run = {name: _of_run(manifest).get(name) for name in _SAME_OF_RUN}
    conditions = {name: manifest.settings.get(name) for name in _SAME}
    return {**conditions, "run": run, "guardmark": manifest.guardmark_version}


def _configured(manifest: RunManifest) -> dict[str, object]:
    """Return the settings of a run in which all its shards agree."""
    configured = dict(manifest.settings)
    for section in UNHASHED:
        configured.pop(section, None)
    run = dict(_of_run(manifest))
    run.pop("shard", None)
    configured["run"] = run
    configured["parts"] = {part.name: {"fingerprint": part.fingerprint} for part in manifest.parts}
    return configured


def _built(manifest: RunManifest) -> dict[str, object]:
    """Return what a run was made with."""
    built: dict[str, object] = {"guardmark": manifest.guardmark_version}
    for part in manifest.parts:
        built[part.name] = f"{part.type} {part.version}"
    return built


def _samples_of(manifest: RunManifest) -> int:
    """Return how many samples a run has, those without a label included."""
    return sum(data.attacks + data.benign + data.unlabelled for data in manifest.data)


def _difference(first: Mapping[str, Any], other: Mapping[str, Any], above: str = "") -> str:
    """Name the first setting in which two runs differ."""
    for key in sorted({*first, *other}):
        before, now, where = first.get(key), other.get(key), f"{above}{key}"
        if before == now:
            continue
        if isinstance(before, dict) and isinstance(now, dict):
            return _difference(before, now, f"{where}.")
        return f"{where!a:.80} is {now!a:.60}, not {before!a:.60}"
    return ""


def _of_run(manifest: RunManifest) -> Mapping[str, Any]:
    """Return the section `run` of a run's configuration; empty where there is none."""
    run = manifest.settings.get("run")
    if isinstance(run, dict):
        return run
    return {}


def _whole(sources: Sequence[MergeSource]) -> RunManifest:
    """Describe the run that its shards make, which may still lack some."""
    first = sources[0].manifest
    of, numbers = 0, frozenset[int]()
    for source in sources:
        if source.shards is not None:
            of, numbers = source.shards.of, numbers | source.shards.numbers
    held = ShardSet(numbers=numbers, of=of)
    shard = None
    if held.missing:
        shard = str(held)
    return replace(
        first,
        name=held.name_run(str(first.settings.get("name", first.name))),
        created_utc=min(source.manifest.created_utc for source in sources),
        settings={**first.settings, "run": {**_of_run(first), "shard": shard}},
    )


def _joined(sources: Sequence[MergeSource]) -> RunManifest:
    """Describe the run that holds the defenses of several runs."""
    manifests = [source.manifest for source in sources]
    first = manifests[0]
    measured: dict[str, object] = {}
    others: dict[str, object] = {}
    parts: list[PartManifest] = []
    for source in sources:
        parts.extend(source.manifest.parts)
        stated = source.manifest.settings.get("defenses")
        if not isinstance(stated, dict):
            continue
        for name, settings in stated.items():
            if name in source.reader.defenses():
                measured[name] = settings
            else:
                others[name] = settings
    hashes = [manifest.config_sha256 for manifest in manifests]
    labels = ", ".join(source.label for source in sources)
    evaluator = f"joined from the runs {labels}"
    if first.evaluator:
        evaluator = f"{first.evaluator}; {evaluator}"
    return replace(
        first,
        config_sha256=sha256(json.dumps(hashes).encode()).hexdigest(),
        created_utc=min(manifest.created_utc for manifest in manifests),
        evaluator=evaluator,
        parts=tuple(parts),
        settings={**first.settings, "defenses": {**others, **measured}},
    )


def describe_source(source: MergeSource, file: Path) -> dict[str, Any]:
    """Say which run was merged, and where it was measured as far as a file of its folder says."""
    environment: object = None
    # A folder may have lost it, and no figure depends on it.
    with suppress(OSError, ValueError, RecursionError):
        if file.stat().st_size <= _LARGEST:
            environment = json.loads(file.read_bytes())
    status, shard = source.reader.status(), None
    if source.shards is not None:
        shard = str(source.shards)
    return {
        "run": source.label,
        "created_utc": source.manifest.created_utc,
        "shard": shard,
        "head": status.head,
        "records": status.stored,
        "environment": environment,
    }


def merge_records(
    sources: Sequence[MergeSource], writer: RecordWriter, manifest: RunManifest
) -> None:
    """Write samples and records of all sources into a new run, and finish it."""
    positions = [array("Q") for _ in sources]
    if _are_shards(sources):
        samples = _in_order(sources, positions, manifest)
        writer.load_samples(samples, manifest=lambda: manifest)
    else:
        samples = sources[0].reader.every_sample()
        count = writer.load_samples(samples, manifest=lambda: manifest)
        positions = [array("Q", range(count))] * len(sources)
    for source in sources:  # as in the run that is merged: names have numbers in their order
        for name, layer in product(source.reader.defenses(), source.reader.layers()):
            writer.record_batch(name, layer=layer)
    _copy_superseded(sources, positions, writer)
    offsets = Counter[str]()
    for source, own_positions in zip(sources, positions, strict=True):
        _copy(source, own_positions, writer, offsets=offsets)
    _sum_up(sources, writer)
    writer.finish(RunState.COMPLETE)


def _sum_up(sources: Sequence[MergeSource], writer: RecordWriter) -> None:
    """Store of the merged run what its sources hold together beside their records."""
    planned, billed = 0, 0
    # The same parts were looked at before each of the runs: what was seen is told once.
    remarks: list[str] = []
    for source in sources:
        status = source.reader.status()
        planned += status.planned
        billed += status.possibly_billed
        for remark in status.remarks:
            if remark not in remarks:
                remarks.append(remark)
    writer.plan(planned)
    if billed:
        writer.connection.put_meta(POSSIBLY_BILLED, str(billed))
    writer.note_remarks(remarks)


def _in_order(
    sources: Sequence[MergeSource], positions: Sequence[array[int]], manifest: RunManifest
) -> Iterator[Sample]:
    """Yield the samples of all shards in the order of the whole data."""
    streams = [_numbered(number, source) for number, source in enumerate(sources)]
    is_whole, last, count = not _of_run(manifest).get("shard"), -1, 0
    for position, number, sample in heapq.merge(*streams, key=itemgetter(0)):
        if position <= last or (is_whole and position != last + 1):
            raise StoreError(
                f"The samples of these shards are not those of one run: after position {last:,} "
                f"comes position {position:,}.\nNext: measure the shards again from the same data."
            )
        positions[number].append(count)
        last, count = position, count + 1
        if is_whole:
            yield without_place(sample)
        else:
            yield sample
    if is_whole and count != _samples_of(manifest):
        raise StoreError(
            f"These shards hold {count:,} samples, and their data {_samples_of(manifest):,}.\n"
            "Next: measure the shards again from the same data."
        )


def _numbered(number: int, source: MergeSource) -> Iterator[tuple[int, int, Sample]]:
    """Yield each sample of a shard after its position in the whole data and a number."""
    shards = source.shards
    for sample in source.reader.every_sample():
        position = sample.metadata.get(PLACE)
        if type(position) is not int or shards is None or not shards.holds(sample):
            raise StoreError(
                f"{source.label} holds the sample {sample.id!r}, which belongs to another shard.\n"
                "Next: measure this shard again."
            )
        yield position, number, sample


def _copy(
    source: MergeSource,
    own_positions: Sequence[int],
    writer: RecordWriter,
    *,
    offsets: Counter[str],
) -> None:
    """Add records of a run to the merged one."""
    last = Counter[str]()
    with values_of(source.reader.path):
        for rows in source.reader.connection.chunks(
            query("records").format(condition=1), size=_CHUNK
        ):
            for row in rows:
                defense, stage, _, repeat = row[:4]
                later = 0
                if stage == STAGE_CODE[Stage.WARMUP]:  # each process warms up by itself
                    last[defense] = max(last[defense], repeat + 1)
                    later = offsets[defense]
                _add(row, own_positions, writer, later=later)
            writer.flush()
    offsets.update(last)


def _copy_superseded(
    sources: Sequence[MergeSource], positions: Sequence[array[int]], writer: RecordWriter
) -> None:
    """Add the errors that were asked about again, each attempt after the one before."""
    rounds = defaultdict[int, list[tuple[int, Any]]](list)
    for number, source in enumerate(sources):
        if source.reader.connection.has_superseded:
            attempts = Counter[tuple[Any, ...]]()
            for row in source.reader.connection.rows(_SUPERSEDED):
                rounds[attempts[row[:5]]].append((number, row))
                attempts[row[:5]] += 1
    for _, attempt in sorted(rounds.items()):
        for number, row in attempt:
            with values_of(sources[number].reader.path):
                _add(row, positions[number], writer)
        writer.flush()
        supersede_errors(writer)


def _add(
    row: tuple[Any, ...], own_positions: Sequence[int], writer: RecordWriter, *, later: int = 0
) -> None:
    """Add a stored record of a run to the merged one."""
    record = record_of(row)
    key, repeat = record.key, record.key.repeat + later
    batch = writer.record_batch(key.defense, key.stage, layer=key.layer, repeat=repeat)
    position, answer = own_positions[key.sample], answer_of(record)
    batch.add(position, answer, latency_ns=record.latency_ns, flags=row[5])
