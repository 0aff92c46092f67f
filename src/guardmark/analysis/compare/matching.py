"""Runs over the same samples, matched by content."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guardmark.analysis.defense.costs import UsageBySample, read_usage_by_sample
from guardmark.analysis.defense.frame import BASELINES, DefenseColumn, Frame, read_frame
from guardmark.analysis.pipeline.frame import DEFENSE, read_system
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.errors import IncomparableRuns
from guardmark.store.columns import Facet, sample_digests
from guardmark.store.reader import RunState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from guardmark.core.manifest import RunManifest
    from guardmark.store.columns import SampleColumns
    from guardmark.store.reader import RecordReader

_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """A run to be compared, under a label different for each."""

    label: str
    reader: RecordReader
    frame: Frame | None = None  # Its defenses, where they were read before.


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """One run of a comparison."""

    label: str  # What a person calls it.
    created_utc: str  # When it began.
    data_sha256: str  # Hash over its data.
    state: RunState
    planned: int  # Records planned.
    stored: int  # Records stored.
    samples: int  # Samples it has.
    unmatched: tuple[str, ...]  # Ids of its samples that not every run has; they are left out.

    @property
    def is_complete(self) -> bool:
        """Whether it came to its end, by itself or by a rule that may end it early."""
        return self.state is RunState.COMPLETE


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a defense of a comparison comes from."""

    name: str  # Its name in the comparison.
    defense: str  # Its name in its run.
    run: str  # Label of its run.


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedRuns:
    """Runs over the samples that all have; facets, groups and `places` are of the first."""

    frame: Frame
    runs: tuple[ComparedRun, ...]
    origins: tuple[Origin, ...]
    reader: RecordReader
    places: NDArray[np.int64]
    scope: str
    consumption: Mapping[str, UsageBySample]
    remarks: tuple[str, ...]


def match_runs(
    opened: Sequence[OpenRun], settings: AnalysisSettings, *, scope: str = DEFENSE
) -> MatchedRuns:
    """Put the subjects of one or more runs over the same samples: defenses, or whole systems."""
    frames = [_read(run, settings, scope) for run in opened]
    keys = [_keys(run.reader, frame) for run, frame in zip(opened, frames, strict=True)]
    for run, frame, own in zip(opened[1:], frames[1:], keys[1:], strict=True):
        _refuse_relabelled(opened[0].label, keys[0], run=(run.label, own), ids=frame.samples.ids)
    shared = set(keys[0]).intersection(*keys[1:])
    if not shared:
        labels = " and ".join(run.label for run in opened)
        raise IncomparableRuns(
            f"{labels} share no sample, so nothing can be compared sample by sample.\n"
            "Next: measure the defenses on the same data, then compare these runs."
        )
    order = [key for key in keys[0] if key in shared]
    positions = [{key: position for position, key in enumerate(own)} for own in keys]
    places = [np.array([at[key] for key in order], dtype=np.int64) for at in positions]
    repeats = min(frame.manifest.repeats for frame in frames)
    origins = _origins(opened, frames)
    names, arms, consumption = iter(origins), [], {}
    for run, frame, where in zip(opened, frames, places, strict=True):
        rows = (np.arange(repeats)[:, None] * frame.sample_count + where).ravel()
        for arm in frame.arms:
            name = next(names).name
            arms.append(_moved(arm, name, places=where, frame=frame, repeats=repeats))
            if scope != DEFENSE:
                continue
            used = read_usage_by_sample(
                run.reader, arm.part, manifest=frame.manifest, samples=frame.sample_count
            )
            consumption[name] = UsageBySample(tokens=used.tokens[rows], money=used.money[rows])
    is_alone = len(opened) == 1
    return MatchedRuns(
        frame=Frame(
            manifest=replace(frames[0].manifest, repeats=repeats),
            settings=settings,
            samples=subset(frames[0].samples, places[0]),
            arms=tuple(arms),
            stops=frames[0].stops if is_alone else None,
        ),
        runs=tuple(
            _compared_run(run, frame, own, shared)
            for run, frame, own in zip(opened, frames, keys, strict=True)
        ),
        origins=origins,
        reader=opened[0].reader,
        places=places[0],
        scope=scope,
        consumption=consumption,
        remarks=() if is_alone else _remarks(opened, frames),
    )


def _read(run: OpenRun, settings: AnalysisSettings, scope: str) -> Frame:
    # Each run is read by its own rules of stopping early.
    own = replace(settings, stop_when=AnalysisSettings.of(run.reader.manifest()).stop_when)
    defenses = run.frame or read_frame(run.reader, own)
    frame = defenses if scope == DEFENSE else read_system(run.reader, defenses)
    if frame is None:
        raise IncomparableRuns(
            f"{run.label} asked no target model with a judge, so no system came out of it.\n"
            "Next: compare its defenses, or name runs with a section `pipeline`."
        )
    return frame


_Key = tuple[bytes, bool, int]  # content hash, whether an attack, how often it came before


def _keys(reader: RecordReader, frame: Frame) -> list[_Key]:
    counters: defaultdict[tuple[bytes, bool], count[int]] = defaultdict(count)
    contents = zip(sample_digests(reader), frame.samples.is_attack.tolist(), strict=True)
    return [(*content, next(counters[content])) for content in contents]


def _refuse_relabelled(
    label: str, first: list[_Key], *, run: tuple[str, list[_Key]], ids: Sequence[str]
) -> None:
    """Refuse a run that calls attacks what the first calls benign, or the other way round."""
    other, own = run
    labelled = {(digest, is_attack) for digest, is_attack, _ in first}
    digests = {digest for digest, _ in labelled}
    turned = [
        name
        for name, (digest, is_attack, _) in zip(ids, own, strict=True)
        if digest in digests and (digest, is_attack) not in labelled
    ]
    if turned:
        named = ", ".join(turned[:_NAMED]) + (" ..." if len(turned) > _NAMED else "")
        raise IncomparableRuns(
            f"{label} and {other} label {len(turned):,} of the same contents differently "
            f"({named}).\nAn attack in one run is benign in the other, so their rates do not "
            "mean the same.\nNext: compare the label settings under `data:` of both runs."
        )


def _origins(opened: Sequence[OpenRun], frames: Sequence[Frame]) -> tuple[Origin, ...]:
    taken = Counter(arm.name for frame in frames for arm in frame.arms)
    return tuple(
        Origin(
            name=arm.name if taken[arm.name] == 1 else f"{arm.name} ({run.label})",
            defense=arm.name,
            run=run.label,
        )
        for run, frame in zip(opened, frames, strict=True)
        for arm in frame.arms
    )


def _moved(
    arm: DefenseColumn, name: str, *, places: NDArray[np.int64], frame: Frame, repeats: int
) -> DefenseColumn:
    """Return a defense with its records at the positions of the common samples."""
    new = np.full(frame.sample_count, -1, dtype=np.int64)
    new[places] = np.arange(len(places))
    old = arm.records
    kept = (new[old.sample] >= 0) & (old.repeat < repeats)
    values = {each.name: getattr(old, each.name) for each in fields(old)}
    columns: dict[str, Any] = {
        key: each[kept] for key, each in values.items() if isinstance(each, np.ndarray)
    }
    columns |= {"defense": name, "sample": new[old.sample[kept]]}
    records = replace(old, **columns)
    return replace(arm, part=replace(arm.part, name=name), records=records)


def subset(samples: SampleColumns, places: NDArray[np.int64]) -> SampleColumns:
    """Return some of the samples, with the groups they fall into."""
    used, codes = np.unique(samples.group.codes[places], return_inverse=True)
    names = tuple(samples.group.names[code] for code in used.tolist())
    values = {each.name: getattr(samples, each.name) for each in fields(samples)}
    facets = {key: each.of(places) for key, each in values.items() if isinstance(each, Facet)}
    return replace(
        samples,
        ids=[samples.ids[at] for at in places.tolist()],
        is_attack=samples.is_attack[places],
        length=samples.length[places],
        **facets | {"group": Facet(names=names, table=codes.astype(np.int32))},
    )


def _compared_run(run: OpenRun, frame: Frame, own: list[_Key], shared: set[_Key]) -> ComparedRun:
    status = run.reader.status()
    return ComparedRun(
        label=run.label,
        created_utc=frame.manifest.created_utc,
        data_sha256=frame.manifest.data_sha256,
        state=status.state,
        planned=status.planned,
        stored=status.stored,
        samples=len(own),
        unmatched=tuple(
            name for name, key in zip(frame.samples.ids, own, strict=True) if key not in shared
        ),
    )


def _remarks(opened: Sequence[OpenRun], frames: Sequence[Frame]) -> tuple[str, ...]:
    """Say in which respects later runs differ from the first, other than in their defenses."""
    first, label = frames[0].manifest, opened[0].label
    remarks = [
        f"{arm.name} of {run.label} was ended early by a rule; across runs its intervals do not "
        "make up for that."
        for run, frame in zip(opened, frames, strict=True)
        for arm in frame.arms
        if frame.stopped(arm)
    ]
    for run, frame in zip(opened[1:], frames[1:], strict=True):
        other = frame.manifest
        remarks.extend(
            f"{title}: {before} in {label}, {after} in {run.label}."
            for title, before, after in _settings(first, other)
            if before != after
        )
        remarks.extend(_part_remarks(first, other, labels=(label, run.label)))
    return tuple(remarks)


def _settings(first: RunManifest, other: RunManifest) -> tuple[tuple[str, object, object], ...]:
    return (
        ("Data (hash)", first.data_sha256[:12], other.data_sha256[:12]),
        ("Policy on malformed answers", first.on_malformed.value, other.on_malformed.value),
        ("Policy on errors", first.on_error.value, other.on_error.value),
        ("Repeats (the fewer are compared)", first.repeats, other.repeats),
        ("Latency mode", first.latency_mode.value, other.latency_mode.value),
        ("Concurrency", first.concurrency, other.concurrency),
        ("guardmark", first.guardmark_version, other.guardmark_version),
    )


def _part_remarks(first: RunManifest, other: RunManifest, *, labels: tuple[str, str]) -> list[str]:
    known = {part.name: part for part in first.parts if part.kind == "defense"}
    remarks, alike = [], []
    for part in other.parts:
        before = known.get(part.name)
        if part.kind != "defense" or part.type in BASELINES or before is None:
            continue
        if before.view != part.view:
            remarks.append(
                f"{part.name} is shown another part of a prompt: {before.view} in {labels[0]}, "
                f"{part.view} in {labels[1]}."
            )
        if before.fingerprint and before.fingerprint == part.fingerprint:
            alike.append(part.name)
    if alike:
        remarks.append(
            f"Identical settings in {labels[0]} and {labels[1]}: {', '.join(alike)}. What differs "
            "there is chance, or a service that changed."
        )
    return [*remarks, *_changed_parts(first, other, labels)]


def _changed_parts(
    first: RunManifest, other: RunManifest, labels: tuple[str, str]
) -> Iterator[str]:
    """Yield which target models and judges are not the same in two runs."""
    for kind, what in (("model", "target models"), ("judge", "judges")):
        before, after = (
            {part.name: part.fingerprint for part in run.parts if part.kind == kind}
            for run in (first, other)
        )
        if before and after and before != after:
            names = " and ".join(dict.fromkeys([*before, *after]))
            yield f"{' and '.join(labels)} use {what} ({names}) that are configured differently."
