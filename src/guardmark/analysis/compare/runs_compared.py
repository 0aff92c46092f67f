"""Runs over the same samples, matched by content, and their defenses against each other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.compare.comparison import PairVerdict, RunComparison, compare_arms
from guardmark.analysis.compare.paired_details import Depth, PairDetail, detail_pair
from guardmark.analysis.defense.costs import UsageBySample, read_usage_by_sample
from guardmark.analysis.defense.frame import BASELINES, DefenseColumn, Frame, read_frame
from guardmark.analysis.defense.scorecard import estimate_rates
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.errors import IncomparableRuns, UnknownName
from guardmark.store.columns import Facet, sample_digests
from guardmark.store.records import RunState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.compare.comparison import PairedComparison
    from guardmark.analysis.defense.scorecard import RatePair
    from guardmark.core.manifest import RunManifest
    from guardmark.store.columns import RecordColumns, SampleColumns
    from guardmark.store.reader import RecordReader


_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """A run to be compared.

    Attributes:
        label: What a person calls it; different for each run.
        reader: An open reader of its records.
    """

    label: str
    reader: RecordReader


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """One run of a comparison.

    Attributes:
        label: What a person calls it.
        created_utc: When it began.
        data_sha256: Hash over its data.
        state: How far it came.
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
    """Runs over the same samples.

    Attributes:
        frame: Their defenses over the samples that all of them have. Facets and groups are those
            of the first run.
        runs: The runs, in the order given.
        origins: Where each defense comes from, in the order of the frame.
        places: Position of each sample of the frame in the first run, shape (samples,).
        consumption: What each defense consumed, by its name in the comparison.
        remarks: In which respects the runs differ, so that a difference may not be the
            defense's.
    """

    frame: Frame
    runs: tuple[ComparedRun, ...]
    origins: tuple[Origin, ...]
    places: NDArray[np.int64]
    consumption: Mapping[str, UsageBySample]
    remarks: tuple[str, ...]


def match_runs(opened: Sequence[OpenRun], settings: AnalysisSettings) -> MatchedRuns:
    """Put the defenses of one or more runs over the same samples.

    A sample is matched by the hash of its content and its label; contents that stand several
    times are matched in order.
    """
    frames = [read_frame(run.reader, _own(run.reader, settings)) for run in opened]
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
    if len(opened) == 1:
        return _alone(opened[0], frames[0], keys[0])
    order = [key for key in keys[0] if key in shared]
    places = [_places(own, order) for own in keys]
    origins = _origins(opened, frames)
    consumption = _consumption(opened, frames, origins=origins, places=places)
    names = iter(origins)
    repeats = min(frame.manifest.repeats for frame in frames)
    arms = [
        _moved(arm, next(names).name, places=where, frame=frame, repeats=repeats)
        for frame, where in zip(frames, places, strict=True)
        for arm in frame.arms
    ]
    return MatchedRuns(
        frame=Frame(
            manifest=replace(frames[0].manifest, repeats=repeats),
            samples=_subset(frames[0].samples, places[0]),
            arms=tuple(arms),
        ),
        runs=tuple(
            _compared_run(run, frame, own, shared)
            for run, frame, own in zip(opened, frames, keys, strict=True)
        ),
        origins=origins,
        places=places[0],
        consumption=consumption,
        remarks=_remarks(opened, frames),
    )


def _own(reader: RecordReader, settings: AnalysisSettings) -> AnalysisSettings:
    """Let each run be read by its own rules of stopping early."""
    return replace(settings, stop_when=AnalysisSettings.of(reader.manifest()).stop_when)


def _alone(run: OpenRun, frame: Frame, own: list[_Key]) -> MatchedRuns:
    """Return one run as it is: nothing to match."""
    origins = _origins([run], [frame])
    everyone = np.arange(frame.sample_count, dtype=np.int64)
    return MatchedRuns(
        frame=frame,
        runs=(_compared_run(run, frame, own, set(own)),),
        origins=origins,
        places=everyone,
        consumption=_consumption([run], [frame], origins=origins, places=[everyone]),
        remarks=(),
    )


_Key = tuple[bytes, bool, int]
"""Content hash, whether an attack, and how often this content came before."""


def _keys(reader: RecordReader, frame: Frame) -> list[_Key]:
    seen: Counter[tuple[bytes, bool]] = Counter()
    keys: list[_Key] = []
    for digest, is_attack in zip(
        sample_digests(reader), frame.samples.is_attack.tolist(), strict=True
    ):
        keys.append((digest, is_attack, seen[digest, is_attack]))
        seen[digest, is_attack] += 1
    return keys


def _refuse_relabelled(
    label: str, first: list[_Key], *, run: tuple[str, list[_Key]], ids: Sequence[str]
) -> None:
    """Refuse a run that calls attacks what the first calls benign, or the other way round."""
    other, own = run
    known = set(first)
    labels: dict[bytes, set[bool]] = {}
    for digest, is_attack, _ in first:
        labels.setdefault(digest, set()).add(is_attack)
    turned = [
        ids[at]
        for at, key in enumerate(own)
        if key not in known and key[0] in labels and key[1] not in labels[key[0]]
    ]
    if turned:
        named = ", ".join(turned[:_NAMED]) + (" ..." if len(turned) > _NAMED else "")
        raise IncomparableRuns(
            f"{label} and {other} label {len(turned):,} of the same contents differently "
            f"({named}).\nAn attack in one run is benign in the other, so their rates do not "
            "mean the same.\nNext: compare the label settings under `data:` of both runs."
        )


def _places(own: list[_Key], order: list[_Key]) -> NDArray[np.int64]:
    at = {key: position for position, key in enumerate(own)}
    return np.array([at[key] for key in order], dtype=np.int64)


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


def _consumption(
    opened: Sequence[OpenRun],
    frames: Sequence[Frame],
    *,
    origins: Sequence[Origin],
    places: Sequence[NDArray[np.int64]],
) -> dict[str, UsageBySample]:
    """Read what every defense consumed on the common samples and repeats."""
    repeats = min(frame.manifest.repeats for frame in frames)
    names = iter(origins)
    found = {}
    for run, frame, where in zip(opened, frames, places, strict=True):
        for arm in frame.arms:
            used = read_usage_by_sample(
                run.reader, arm.part, manifest=frame.manifest, samples=frame.sample_count
            )
            rows = np.arange(repeats)[:, None] * frame.sample_count + where
            found[next(names).name] = UsageBySample(
                tokens=used.tokens[rows.ravel()], money=used.money[rows.ravel()]
            )
    return found


def _moved(
    arm: DefenseColumn, name: str, *, places: NDArray[np.int64], frame: Frame, repeats: int
) -> DefenseColumn:
    """Return a defense with its records at the positions of the common samples."""
    new = np.full(frame.sample_count, -1, dtype=np.int64)
    new[places] = np.arange(len(places))
    old = arm.records
    kept = (new[old.sample] >= 0) & (old.repeat < repeats)
    records: RecordColumns = replace(
        old,
        defense=name,
        sample=new[old.sample[kept]],
        **{
            column: getattr(old, column)[kept]
            for column in (
                "repeat",
                "outcome",
                "score",
                "latency_ns",
                "error_kind",
                "answer_mode",
                "flags",
            )
        },
    )
    return replace(arm, part=replace(arm.part, name=name), records=records)


def _subset(samples: SampleColumns, places: NDArray[np.int64]) -> SampleColumns:
    facets = ("category", "subcategory", "severity", "language", "variant", "technique", "source")
    used, codes = np.unique(samples.group.codes[places], return_inverse=True)
    return replace(
        samples,
        ids=[samples.ids[at] for at in places.tolist()],
        is_attack=samples.is_attack[places],
        length=samples.length[places],
        group=Facet(
            names=tuple(samples.group.names[code] for code in used.tolist()),
            codes=codes.astype(np.int32),
        ),
        **{name: getattr(samples, name).of(places) for name in facets},
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
            sample_id
            for sample_id, key in zip(frame.samples.ids, own, strict=True)
            if key not in shared
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
            f"Configured alike in {labels[0]} and {labels[1]}: {', '.join(alike)}. What differs "
            "there is chance, or a service that changed."
        )
    return remarks


_DETAILED = 12
"""Most pairs described at length; beyond, one names the pair of interest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which pairs a comparison is about.

    Attributes:
        only: Defenses to compare; all candidates when empty.
        against: The one defense that all others are compared with; empty for every pair.
        listed: Discordant samples to read for each side of a pair, at most.
        latency: Whether to compare latencies.
    """

    only: tuple[str, ...] = ()
    against: str = ""
    listed: int = 5
    latency: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DefenseRates:
    """Where one defense of a comparison stands by itself.

    Attributes:
        name: Its name in the comparison.
        rates: Attack success rate and false positive rate over the common samples it answered.
    """

    name: str = field(metadata={"json": "defense"})
    rates: RatePair = field(metadata={"json": ("attack_success_rate", "false_positive_rate")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Defenses against each other, in one run or across runs.

    Attributes:
        runs: The runs.
        origins: Where each defense comes from.
        attacks: Attacks compared.
        benign: Benign samples compared.
        is_grouped: Whether samples share groups or are run more than once.
        confidence: Nominal coverage of the intervals.
        min_per_category: Categories of fewer pairs are greyed.
        margin: False positive rates higher by no more than this count as not worse; None when
            nothing was fixed before the run.
        comparison: Differences and tests.
        details: What lies behind each pair, in the order of the comparison; the first twelve.
        rates: Both rates of each compared defense over the common samples.
        front: Defenses that no other is shown to beat, fewer bypasses at no more false alarms;
            empty where not every pair was compared.
        remarks: In which respects the runs differ beside their defenses.
    """

    runs: tuple[ComparedRun, ...]
    origins: tuple[Origin, ...] = field(metadata={"json": "defenses"})
    attacks: int
    benign: int
    is_grouped: bool
    confidence: float
    min_per_category: int = field(metadata={"json": False})
    margin: float | None
    comparison: RunComparison = field(
        metadata={
            "json": {
                "lowest_attack_success_rate": "attacks",
                "lowest_false_positive_rate": "benign",
                "left_out": "left_out",
            }
        }
    )
    details: tuple[PairDetail, ...] = field(metadata={"json": False})
    rates: tuple[DefenseRates, ...]
    front: tuple[str, ...]
    remarks: tuple[str, ...] = field(metadata={"json": False})


def compare_matched(
    matched: MatchedRuns, wanted: Wanted, *, reader: RecordReader, settings: AnalysisSettings
) -> Compared:
    """Compare the defenses of matched runs."""
    frame = matched.frame
    comparison = compare_arms(frame, settings, chosen=choose_pairs(matched, wanted))
    if comparison is None or not comparison.pairs:
        raise IncomparableRuns(
            "There is one defense only, so there is nothing to compare it with.\n"
            "Next: name a second run over the same samples, or measure two defenses in one run."
        )
    attacks = int(frame.samples.is_attack.sum())
    depth = Depth(
        reader=reader,
        places=matched.places,
        listed=wanted.listed,
        latency=wanted.latency,
        consumption=matched.consumption,
    )
    return Compared(
        runs=matched.runs,
        origins=matched.origins,
        attacks=attacks,
        benign=frame.sample_count - attacks,
        is_grouped=frame.is_grouped,
        confidence=settings.confidence,
        min_per_category=settings.min_per_category,
        margin=settings.non_inferiority_margin,
        comparison=comparison,
        details=tuple(
            detail_pair(frame, pair, depth=depth, settings=settings)
            for pair in comparison.pairs[:_DETAILED]
        ),
        rates=_compared_rates(frame, comparison, settings),
        front=find_front(comparison),
        remarks=matched.remarks,
    )


def _compared_rates(
    frame: Frame, comparison: RunComparison, settings: AnalysisSettings
) -> tuple[DefenseRates, ...]:
    compared = {name for pair in comparison.pairs for name in _sides(pair)}
    return tuple(
        DefenseRates(name=arm.name, rates=estimate_rates(frame, arm, settings))
        for arm in frame.arms
        if arm.name in compared
    )


def find_front(comparison: RunComparison) -> tuple[str, ...]:
    """Find the defenses worth choosing between."""
    names = list(dict.fromkeys(name for pair in comparison.pairs for name in _sides(pair)))
    if len(comparison.pairs) < len(names) * (len(names) - 1) // 2:
        return ()
    beaten = {pair.second for pair in comparison.pairs if pair.verdict is PairVerdict.FIRST_BETTER}
    beaten |= {pair.first for pair in comparison.pairs if pair.verdict is PairVerdict.SECOND_BETTER}
    return tuple(name for name in names if name not in beaten)


def _sides(pair: PairedComparison) -> tuple[str, str]:
    return pair.first, pair.second


def choose_pairs(matched: MatchedRuns, wanted: Wanted) -> list[tuple[str, str]] | None:
    """Choose which defenses to compare."""
    named = [name for word in wanted.only for name in _find(matched.origins, word)]
    names = named or _candidates(matched)
    if wanted.against:
        base = _find(matched.origins, wanted.against)[0]
        return [(name, base) for name in names if name != base]
    if len(matched.runs) == 1:
        return list(combinations(names, 2)) if named else None
    chosen = [origin for origin in matched.origins if origin.name in set(names)]
    return _successors(chosen, matched.runs[0].label) or _across(chosen)


def _candidates(matched: MatchedRuns) -> list[str]:
    names = [arm.name for arm in matched.frame.arms if not arm.is_baseline]
    return names if len(names) > 1 else [arm.name for arm in matched.frame.arms]


def _find(origins: Sequence[Origin], word: str) -> list[str]:
    """Return the defenses a word names: by the name in the comparison, or in any of the runs."""
    exact = [origin.name for origin in origins if origin.name == word]
    found = exact or [origin.name for origin in origins if origin.defense == word]
    if not found:
        raise UnknownName("defense", word, {origin.name for origin in origins})
    return found


def _successors(chosen: Iterable[Origin], first: str) -> list[tuple[str, str]]:
    rows = list(chosen)
    before = {origin.defense: origin.name for origin in rows if origin.run == first}
    return [
        (origin.name, before[origin.defense])
        for origin in rows
        if origin.run != first and origin.defense in before
    ]


def _across(chosen: Sequence[Origin]) -> list[tuple[str, str]]:
    return [
        (later.name, earlier.name)
        for earlier, later in combinations(chosen, 2)
        if earlier.run != later.run
    ]
