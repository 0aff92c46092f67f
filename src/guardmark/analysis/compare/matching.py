"""Runs over the same samples, matched by content."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from guardmark.analysis.defense.costs import UsageBySample, read_usage_by_sample
from guardmark.analysis.defense.frame import DefenseColumn, Frame, read_frame
from guardmark.analysis.defense.latency import asking_ranks
from guardmark.analysis.pipeline.frame import DEFENSE, read_system
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.errors import IncomparableRuns
from guardmark.core.values import dataclass
from guardmark.store.columns import Facet, sample_digests
from guardmark.store.reader import RunState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.core.manifest import RunManifest
    from guardmark.stats.arguments import Ints
    from guardmark.store.columns import SampleColumns
    from guardmark.store.reader import RecordReader

_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """A run to be compared, under a label different for each.

    Attributes:
        frame: Its defenses, where they were read before.
    """

    label: str
    reader: RecordReader
    frame: Frame | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """One run of a comparison.

    Attributes:
        label: What a person calls it.
        created_utc: When it began.
        data_sha256: Hash over its data.
        planned: Records planned.
        stored: Records stored.
        samples: Samples it has.
        unmatched: Ids of its samples that not every run has; they are left out.
    """

    label: str
    created_utc: str
    data_sha256: str
    state: RunState
    planned: int
    stored: int
    samples: int
    unmatched: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether it came to its end, by itself or by a rule that may end it early."""
        return self.state is RunState.COMPLETE


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a defense of a comparison comes from.

    Attributes:
        name: Its name in the comparison.
        defense: Its name in its run.
        run: Label of its run.
    """

    name: str
    defense: str
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedRuns:
    """Runs over the samples that all have; facets and groups are those of the first.

    Attributes:
        frame: Every subject of every run, over the common samples.
        runs: The runs, in the order in which they were named.
        origins: Where each subject comes from.
        reader: Reader of the first run.
        places: Positions of the common samples in the first run.
        scope: `defense`, or `system` where the subjects are whole pipelines.
        consumption: What each defense used for each place, by its name in the comparison.
        ranks: When each place was asked about, by the name of the subject in the comparison.
        remarks: In which respects the runs differ.
    """

    frame: Frame
    runs: tuple[ComparedRun, ...]
    origins: tuple[Origin, ...]
    reader: RecordReader
    places: Ints
    scope: str
    consumption: Mapping[str, UsageBySample]
    ranks: Mapping[str, Ints]
    remarks: tuple[str, ...]


_Key = tuple[bytes, bool, int]  # content hash, whether an attack, how often it came before


class _ReadRun(NamedTuple):
    """A run with its subjects, and what its samples are matched by."""

    label: str
    reader: RecordReader
    frame: Frame
    keys: list[_Key]


def match_runs(
    opened: Sequence[OpenRun], settings: AnalysisSettings, *, scope: str = DEFENSE
) -> MatchedRuns:
    """Put the subjects of one or more runs over the same samples: defenses, or whole systems."""
    runs = [_read(run, settings, scope) for run in opened]
    first = runs[0]
    for run in runs[1:]:
        _refuse_relabelled(first, run)
    shared = set(first.keys).intersection(*(run.keys for run in runs))
    if not shared:
        labels = " and ".join(run.label for run in runs)
        raise IncomparableRuns(
            f"{labels} share no sample, so nothing can be compared sample by sample.\n"
            "Next: measure the defenses on the same data, then compare these runs."
        )
    order = [key for key in first.keys if key in shared]
    places = []
    for run in runs:
        positions = {key: position for position, key in enumerate(run.keys)}
        places.append(np.array([positions[key] for key in order], dtype=np.int64))
    repeats = min(run.frame.manifest.repeats for run in runs)
    taken: Counter[str] = Counter()
    for run in runs:
        taken.update(arm.name for arm in run.frame.arms)
    origins, arms = [], []
    consumption: dict[str, UsageBySample] = {}
    ranks: dict[str, Ints] = {}
    for (label, reader, frame, _), where in zip(runs, places, strict=True):
        rows = (np.arange(repeats)[:, None] * frame.sample_count + where).ravel()
        asked = asking_ranks(frame)[rows]
        for arm in frame.arms:
            name = arm.name
            if taken[name] > 1:
                name = f"{name} ({label})"
            ranks[name] = asked
            origins.append(Origin(name=name, defense=arm.name, run=label))
            arms.append(_moved(arm, name, places=where, frame=frame, repeats=repeats))
            if scope == DEFENSE:
                used = read_usage_by_sample(
                    reader, arm.part, manifest=frame.manifest, samples=frame.sample_count
                )
                consumption[name] = UsageBySample(tokens=used.tokens[rows], money=used.money[rows])
    stops, remarks = None, tuple(_remarks(runs))
    if len(runs) == 1:
        stops, remarks = first.frame.stops, ()
    return MatchedRuns(
        frame=Frame(
            manifest=replace(first.frame.manifest, repeats=repeats),
            settings=settings,
            samples=subset(first.frame.samples, places[0]),
            arms=tuple(arms),
            stops=stops,
        ),
        runs=tuple(_compared_run(run, shared) for run in runs),
        origins=tuple(origins),
        reader=first.reader,
        places=places[0],
        scope=scope,
        consumption=consumption,
        ranks=ranks,
        remarks=remarks,
    )


def _read(run: OpenRun, settings: AnalysisSettings, scope: str) -> _ReadRun:
    """Read the subjects of a run, and what its samples are matched by."""
    # Each run is read by its own rules of stopping early.
    own = replace(settings, stop_when=AnalysisSettings.of(run.reader.manifest()).stop_when)
    frame: Frame | None = run.frame or read_frame(run.reader, own)
    if frame is not None and scope != DEFENSE:
        frame = read_system(run.reader, frame)
    if frame is None:
        raise IncomparableRuns(
            f"{run.label} asked no target model with a judge, so no system came out of it.\n"
            "Next: compare its defenses, or name runs with a section `pipeline`."
        )
    before: Counter[tuple[bytes, bool]] = Counter()
    keys: list[_Key] = []
    labels = frame.samples.is_attack.tolist()
    for digest, is_attack in zip(sample_digests(run.reader), labels, strict=True):
        keys.append((digest, is_attack, before[digest, is_attack]))
        before[digest, is_attack] += 1
    return _ReadRun(run.label, run.reader, frame, keys)


def _refuse_relabelled(first: _ReadRun, other: _ReadRun) -> None:
    """Refuse a run that calls attacks what the first calls benign, or the other way round."""
    labelled = {(digest, is_attack) for digest, is_attack, _ in first.keys}
    digests = {digest for digest, _ in labelled}
    turned = []
    for name, (digest, is_attack, _) in zip(other.frame.samples.ids, other.keys, strict=True):
        if digest in digests and (digest, is_attack) not in labelled:
            turned.append(name)
    if turned:
        named = ", ".join(turned[:_NAMED])
        if len(turned) > _NAMED:
            named += " ..."
        raise IncomparableRuns(
            f"{first.label} and {other.label} label {len(turned):,} of the same contents "
            f"differently ({named}).\nAn attack in one run is benign in the other, so their rates "
            "do not mean the same.\nNext: compare the label settings under `data:` of both runs."
        )


def _moved(
    arm: DefenseColumn, name: str, *, places: Ints, frame: Frame, repeats: int
) -> DefenseColumn:
    """Return a defense with its records at the positions of the common samples."""
    new = np.full(frame.sample_count, -1, dtype=np.int64)
    new[places] = np.arange(len(places))
    old = arm.records
    kept = (new[old.sample] >= 0) & (old.repeat < repeats)
    columns: dict[str, Any] = {}
    for field in fields(old):
        column = getattr(old, field.name)
        if isinstance(column, np.ndarray):
            columns[field.name] = column[kept]
    columns["sample"] = new[columns["sample"]]
    records = replace(old, defense=name, **columns)
    return replace(arm, part=replace(arm.part, name=name), records=records)


def subset(samples: SampleColumns, places: Ints) -> SampleColumns:
    """Return some of the samples, with the groups they fall into."""
    used, codes = np.unique(samples.group.codes[places], return_inverse=True)
    names = tuple(samples.group.names[code] for code in used.tolist())
    facets: dict[str, Facet] = {}
    for field in fields(samples):
        column = getattr(samples, field.name)
        if isinstance(column, Facet):
            facets[field.name] = column.of(places)
    facets["group"] = Facet(names=names, table=codes.astype(np.int32))
    return replace(
        samples,
        ids=[samples.ids[place] for place in places.tolist()],
        is_attack=samples.is_attack[places],
        length=samples.length[places],
        **facets,
    )


def _compared_run(run: _ReadRun, shared: set[_Key]) -> ComparedRun:
    """Describe a run, with the samples that not every run has."""
    status, manifest = run.reader.status(), run.frame.manifest
    unmatched = []
    for name, key in zip(run.frame.samples.ids, run.keys, strict=True):
        if key not in shared:
            unmatched.append(name)
    return ComparedRun(
        label=run.label,
        created_utc=manifest.created_utc,
        data_sha256=manifest.data_sha256,
        state=status.state,
        planned=status.planned,
        stored=status.stored,
        samples=len(run.keys),
        unmatched=tuple(unmatched),
    )


def _remarks(runs: Sequence[_ReadRun]) -> Iterator[str]:
    """Say in which respects later runs differ from the first, other than in their defenses."""
    for run in runs:
        for arm in run.frame.arms:
            if run.frame.stopped(arm):
                yield (
                    f"{arm.name} of {run.label} was ended early by a rule; across runs its "
                    "intervals do not make up for that."
                )
    first, label = runs[0].frame.manifest, runs[0].label
    for run in runs[1:]:
        before, after = _settings(first), _settings(run.frame.manifest)
        for title in before:
            if before[title] != after[title]:
                yield f"{title}: {before[title]} in {label}, {after[title]} in {run.label}."
        yield from _part_remarks(first, run.frame.manifest, labels=(label, run.label))


def _settings(manifest: RunManifest) -> dict[str, object]:
    return {
        "Data (hash)": manifest.data_sha256[:12],
        "Policy on malformed answers": manifest.on_malformed.value,
        "Policy on errors": manifest.on_error.value,
        "Repeats (the fewer are compared)": manifest.repeats,
        "Latency mode": manifest.latency_mode.value,
        "Concurrency": manifest.concurrency,
        "guardmark": manifest.guardmark_version,
    }


def _part_remarks(
    first: RunManifest, other: RunManifest, *, labels: tuple[str, str]
) -> Iterator[str]:
    known = {part.name: part for part in first.parts if part.kind == "defense"}
    alike = []
    for part in other.parts:
        before = known.get(part.name)
        if part.kind != "defense" or part.is_baseline or before is None:
            continue
        if before.view != part.view:
            yield (
                f"{part.name} is shown another part of a prompt: {before.view} in {labels[0]}, "
                f"{part.view} in {labels[1]}."
            )
        if before.fingerprint and before.fingerprint == part.fingerprint:
            alike.append(part.name)
    if alike:
        yield (
            f"Identical settings in {labels[0]} and {labels[1]}: {', '.join(alike)}. What differs "
            "there is chance, or a service that changed."
        )
    for kind, what in (("model", "target models"), ("judge", "judges")):
        one, two = _fingerprints(first, kind), _fingerprints(other, kind)
        if one and two and one != two:
            names = " and ".join(one | two)
            yield f"{' and '.join(labels)} use {what} ({names}) that are configured differently."


def _fingerprints(manifest: RunManifest, kind: str) -> dict[str, str]:
    return {part.name: part.fingerprint for part in manifest.parts if part.kind == kind}
