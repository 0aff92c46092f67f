"""Everything a report says about one run, computed once from its records."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guardmark.analysis.compare.recommendations import Advice, recommend
from guardmark.analysis.defense.blind_spots import find_blind_spots
from guardmark.analysis.defense.bypasses import WorstSamples, find_worst
from guardmark.analysis.defense.costs import PartRetries, read_part_usage
from guardmark.analysis.defense.counted_run import MOST_HELD, read_for_report
from guardmark.analysis.defense.defense_analysis import DefenseAnalysis, analyse_defense
from guardmark.analysis.defense.doubts import (
    find_alike,
    find_changed_texts,
    find_flagged_texts,
)
from guardmark.analysis.defense.latency import asking_ranks
from guardmark.analysis.defense.slices import FACETS, Slicer, TaxonomyCoverage, count_taxonomy
from guardmark.analysis.pipeline.frame import SYSTEM, holds_parts
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.chunks import split_prefix
from guardmark.core.place import BEHIND, part_of
from guardmark.core.record import Stage
from guardmark.core.values import dataclass
from guardmark.store.columns import holds_findings, record_columns
from guardmark.store.layers import ADAPTIVE, LEFT_OUT, PLANTED_PREFIX
from guardmark.store.turns import asked_turns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.card import AdaptiveCard, AdaptivePair
    from guardmark.analysis.agents.figures import AgentAnalysis
    from guardmark.analysis.agents.replay import ReplayAnalysis
    from guardmark.analysis.compare.comparison import RunComparison
    from guardmark.analysis.defense.doubts import AlikeAnswers, ServiceWords
    from guardmark.analysis.defense.frame import Frame
    from guardmark.analysis.defense.masking import Masking
    from guardmark.analysis.defense.native_categories import NativeCategory
    from guardmark.analysis.defense.scores import AreaPair
    from guardmark.analysis.defense.streaming import Streaming
    from guardmark.analysis.defense.turns import TurnFigures
    from guardmark.analysis.pipeline.answers import Unseen
    from guardmark.analysis.pipeline.arms import PipelineAnalysis
    from guardmark.analysis.pipeline.injection import JudgeInjection
    from guardmark.core.manifest import RunManifest
    from guardmark.store.columns import PartUsage, SampleColumns
    from guardmark.store.reader import RecordReader, RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCounts:
    """What the samples of a run are.

    Attributes:
        attacks: Attack samples.
        benign: Benign samples.
        unlabelled: Samples without a label: asked, judged, and in no rate.
        groups: Origins the samples fall into.
        is_grouped: Whether samples share groups or are run more than once.
        languages: Languages stated, most frequent first.
        crossed: Levels of both factors where rows are crossed, the fewer first.
    """

    attacks: int
    benign: int
    unlabelled: int
    groups: int
    is_grouped: bool
    languages: tuple[str, ...]
    crossed: tuple[int, int] | None = field(default=None, metadata={"json": False})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunAnalysis:
    """Everything a report says about one run.

    Attributes:
        taxonomy: Which categories of the taxonomy the samples are of.
        comparison: Each against each, or None with fewer than two.
        advice: Recommendations, by written rules.
        planted: How judges stood planted answers.
        pipeline: Guard, model and judge, or None without a model.
        system: What came out of each arm, told as of a defense.
        system_worst: The worst samples of the arms, or None without a pipeline.
        alike: Services that answered everything the same.
        changed_texts: Services that changed texts, where the unchanged ones went on.
        flagged_texts: Services that flagged texts, which went on.
        unseen: What providers kept from guards and judges.
        systems: Arms against each other, or None with fewer than two.
        agent: Agents over suites, or None without any.
        replay: Guards before stored runs of agents, or None without any.
        adaptive_left_out: Name of each defense that no rewriting reaches to what it is shown.
        streamed_answers: What guards behind a model that stream had let out of an answer, by guard.
    """

    manifest: RunManifest = field(metadata={"json": False})
    status: RunStatus = field(metadata={"json": False})
    settings: AnalysisSettings = field(metadata={"json": False})
    frame: Frame = field(metadata={"json": False}, compare=False)
    samples: SampleCounts
    taxonomy: TaxonomyCoverage = field(metadata={"json": "coverage"})
    defenses: tuple[DefenseAnalysis, ...]
    comparison: RunComparison | None
    worst: WorstSamples
    advice: tuple[Advice, ...] = field(metadata={"json": "recommendations"})
    areas: tuple[AreaPair, ...] = ()
    planted: tuple[JudgeInjection, ...] = ()
    pipeline: PipelineAnalysis | None = None
    system: tuple[DefenseAnalysis, ...] = ()
    system_worst: WorstSamples | None = None
    alike: tuple[AlikeAnswers, ...] = ()
    changed_texts: tuple[ServiceWords, ...] = ()
    flagged_texts: tuple[ServiceWords, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    systems: RunComparison | None = None
    agent: AgentAnalysis | None = None
    replay: ReplayAnalysis | None = None
    adaptive: tuple[AdaptiveCard, ...] = ()
    adaptive_pairs: tuple[AdaptivePair, ...] = ()
    adaptive_left_out: Mapping[str, str] = field(default_factory=dict)
    streamed_answers: Mapping[str, Streaming] = field(default_factory=dict)
    spending: tuple[PartUsage, ...] = ()
    retries: tuple[PartRetries, ...] = field(default=(), metadata={"json": False})
    endpoints: tuple[str, ...] = field(default=(), metadata={"json": False})

    def __repr__(self) -> str:
        """Tell the samples, and a line for each of the first defenses."""
        lines = [f"{self.samples.attacks:,} attacks, {self.samples.benign:,} benign"]
        for defense in self.defenses[:_SHOWN]:
            lines.append(f"  {defense.name}: {defense.card!r}")
        if len(self.defenses) > _SHOWN:
            lines.append(f"  ... and {len(self.defenses) - _SHOWN} more")
        return "\n".join(lines)

    @property
    def candidates(self) -> tuple[DefenseAnalysis, ...]:
        """The defenses that are no baselines, or all when there are only baselines."""
        candidates = tuple(defense for defense in self.defenses if not defense.is_baseline)
        return candidates or self.defenses


_EXCHANGES = 40  # exchanges that a report lists at most
_SHOWN = 8  # defenses that the text of a run names


def analyse_run(
    reader: RecordReader, settings: AnalysisSettings | None = None, *, most: int = MOST_HELD
) -> RunAnalysis:
    """Compute everything a report says.

    Of more than `most` samples, rows are replaced by counts where no rate can differ.
    """
    chosen = settings or AnalysisSettings.of(reader.manifest())
    frame = read_for_report(reader, chosen, most=most)
    taxonomy = count_taxonomy(frame)
    slicers = [Slicer(frame, facet) for facet in (*FACETS, *chosen.slices)]
    defenses = _analyse_arms(
        frame,
        slicers=slicers,
        taxonomy=taxonomy,
        native=_native_categories(reader, frame),
        masking=_masking(reader, frame),
        streaming=_streaming(reader, frame),
        turns=_turns(reader, chosen),
    )
    comparison = _compare(frame)
    areas: tuple[AreaPair, ...] = ()
    if comparison is not None:
        areas = comparison.areas
    pipeline = _pipeline(reader, frame, slicers=slicers, taxonomy=taxonomy)
    return RunAnalysis(
        manifest=frame.manifest,
        status=reader.status(),
        settings=chosen,
        frame=frame,
        samples=_sample_counts(frame, unlabelled=reader.unlabelled_count()),
        taxonomy=taxonomy,
        defenses=defenses,
        comparison=comparison,
        worst=find_worst(reader, frame),
        advice=recommend(
            pipeline.get("system", ()),
            pipeline.get("systems"),
            scope=SYSTEM,
            limits=chosen.system_limits,
        )
        + recommend(defenses, comparison, limits=chosen.limits),
        areas=areas,
        **pipeline,
        alike=find_alike(reader, frame),
        changed_texts=find_changed_texts(reader, frame),
        flagged_texts=find_flagged_texts(reader, frame),
        unseen=_unseen(reader, frame),
        spending=read_part_usage(reader, frame.manifest),
        planted=_planted(reader, chosen.confidence),
        **_adaptive(reader, chosen),
        agent=_agents(reader, chosen),
        replay=_replay(reader, chosen),
        streamed_answers=_streamed_answers(reader, frame),
    )


_NONE_NATIVE: Final[Mapping[str, tuple[NativeCategory, ...]]] = {}
_NONE_MASKED: Final[Mapping[str, Masking]] = {}
_NONE_STREAMED: Final[Mapping[str, Streaming]] = {}
_NONE_BY_TURN: Final[Mapping[str, TurnFigures]] = {}


def _asked(frame: Frame) -> NDArray[np.int64] | None:
    """Return the rank at which each sample was asked about, in each repeat; None of counts."""
    if frame.times is None:
        return asking_ranks(frame)
    return None


def _analyse_arms(
    frame: Frame,
    *,
    slicers: list[Slicer],
    taxonomy: TaxonomyCoverage,
    native: Mapping[str, tuple[NativeCategory, ...]] = _NONE_NATIVE,
    masking: Mapping[str, Masking] = _NONE_MASKED,
    streaming: Mapping[str, Streaming] = _NONE_STREAMED,
    turns: Mapping[str, TurnFigures] = _NONE_BY_TURN,
) -> tuple[DefenseAnalysis, ...]:
    """Analyse every subject of a frame; blind spots are searched in all of them as one family."""
    spots = find_blind_spots(frame, frame.candidates(), [slicer.facet for slicer in slicers])
    asked = _asked(frame)
    analyses = []
    for arm in frame.arms:
        analysis = analyse_defense(
            frame,
            arm,
            slicers=slicers,
            taxonomy=taxonomy,
            asked=asked,
            blind_spots=spots.get(arm.name, ()),
            native_categories=native.get(arm.name, ()),
        )
        analyses.append(
            replace(
                analysis,
                masking=masking.get(arm.name),
                streaming=streaming.get(arm.name),
                turns=turns.get(arm.name),
            )
        )
    return tuple(analyses)


# What most runs do not need is loaded by those that do: it is a fifth of a short run's start.


def _native_categories(reader: RecordReader, frame: Frame) -> dict[str, tuple[NativeCategory, ...]]:
    """Return what is said about the categories that defenses name themselves, by defense."""
    if not holds_findings(reader):
        return {}
    from guardmark.analysis.defense.native_categories import analyse_native_categories

    return {arm.name: analyse_native_categories(reader, frame, arm) for arm in frame.arms}


def _masking(reader: RecordReader, frame: Frame) -> dict[str, Masking]:
    """Return what guards that rewrite let survive, by defense; nothing where none rewrote."""
    if not any(arm.is_rewritten.any() for arm in frame.arms):
        return {}
    from guardmark.analysis.defense.masking import measure_masking

    measured = {}
    for arm in frame.arms:
        masking = measure_masking(reader, frame, arm)
        if masking is not None:
            measured[arm.name] = masking
    return measured


def _streaming(reader: RecordReader, frame: Frame) -> dict[str, Streaming]:
    """Return what had gone out of the services that stream, by defense."""
    services = [arm for arm in frame.arms if arm.part.settings.get("stream")]
    if not services:
        return {}
    from guardmark.analysis.defense.streaming import measure_streaming

    measured = {}
    for arm in services:
        streaming = measure_streaming(reader, frame, [arm.records])
        if streaming is not None:
            measured[arm.name] = streaming
    return measured


def _streamed_answers(reader: RecordReader, frame: Frame) -> dict[str, Streaming]:
    """Return what had gone out of the services that stream what a model answered, by guard.

    Answers to requests that a guard had written anew are among them, and no prefix of an answer.
    """
    recorded = {name for name, stage, _ in reader.recorded_stages() if stage is Stage.DEFENSE}
    names = defaultdict[str, list[str]](list)
    for stored in sorted(recorded):
        if split_prefix(stored)[1] is None:
            names[part_of(stored)].append(stored)
    guards = []
    for part in frame.manifest.parts:
        if part.settings.get("stream") and f"{part.name}{BEHIND}" in names:
            guards.append(part.name)
    if not guards:
        return {}
    from guardmark.analysis.defense.streaming import measure_streaming

    streamed = {}
    for name in guards:
        columns = []
        for stored in names[f"{name}{BEHIND}"]:
            columns.append(record_columns(reader, stored, is_every=frame.is_every))
        streaming = measure_streaming(reader, frame, columns)
        if streaming is not None:
            streamed[name] = streaming
    return streamed


def _turns(reader: RecordReader, settings: AnalysisSettings) -> Mapping[str, TurnFigures]:
    """Return what became of whole conversations, by defense; nothing where none went by turn."""
    if not asked_turns(reader):
        return {}
    from guardmark.analysis.defense.turns import measure_turns

    return measure_turns(reader, settings)


def _compare(frame: Frame) -> RunComparison | None:
    if len(frame.arms) < 2:
        return None
    from guardmark.analysis.compare.comparison import compare_arms
    from guardmark.analysis.defense.scores import areas_in_family

    return compare_arms(frame, areas=areas_in_family(frame))


def _pipeline(
    reader: RecordReader, frame: Frame, *, slicers: list[Slicer], taxonomy: TaxonomyCoverage
) -> dict[str, Any]:
    if not holds_parts(reader, Stage.MODEL):
        return {}
    from guardmark.analysis.compare.comparison import compare_arms
    from guardmark.analysis.pipeline.arms import analyse_pipeline
    from guardmark.analysis.pipeline.frame import read_system

    parts: dict[str, Any] = {"pipeline": analyse_pipeline(reader, frame, frame.settings)}
    system = read_system(reader, frame)
    if system is not None:
        parts["system"] = _analyse_arms(system, slicers=slicers, taxonomy=taxonomy)
        few = replace(frame.settings, listed_samples=min(_EXCHANGES, frame.settings.listed_samples))
        parts["system_worst"] = find_worst(reader, replace(system, settings=few))
        parts["systems"] = compare_arms(system, scope=SYSTEM)
    return parts


def _agents(reader: RecordReader, settings: AnalysisSettings) -> AgentAnalysis | None:
    if not reader.holds_cases:
        return None
    from guardmark.analysis.agents.figures import analyse_agents
    from guardmark.analysis.agents.replay import is_replay

    if is_replay(reader.manifest()):
        return None
    return analyse_agents(reader, confidence=settings.confidence, limits=settings.limits)


def _replay(reader: RecordReader, settings: AnalysisSettings) -> ReplayAnalysis | None:
    if not reader.holds_cases:
        return None
    from guardmark.analysis.agents.replay import analyse_replay, is_replay

    if not is_replay(reader.manifest()):
        return None
    return analyse_replay(reader, confidence=settings.confidence)


def _unseen(reader: RecordReader, frame: Frame) -> tuple[Unseen, ...]:
    """Find what providers kept from guards and judges; a counted run holds no places to look at."""
    if not reader.holds_malformed or not len(frame.samples.ids):
        return ()
    from guardmark.analysis.pipeline.answers import find_unseen
    from guardmark.analysis.pipeline.frame import read_pipeline

    return find_unseen(reader, frame, pipeline=read_pipeline(reader, frame))


def _planted(reader: RecordReader, confidence: float) -> tuple[JudgeInjection, ...]:
    if not any(layer.startswith(PLANTED_PREFIX) for layer in reader.layers()):
        return ()
    from guardmark.analysis.pipeline.injection import read_injection

    return read_injection(reader, confidence)


def _adaptive(reader: RecordReader, settings: AnalysisSettings) -> dict[str, Any]:
    parts, layers = dict[str, Any](), reader.layers()
    if ADAPTIVE in layers:
        from guardmark.analysis.adaptive.card import analyse_adaptive, compare_adaptive

        parts["adaptive"] = cards = analyse_adaptive(reader, settings)
        parts["adaptive_pairs"] = compare_adaptive(cards, confidence=settings.confidence)
    if LEFT_OUT in layers:
        from guardmark.analysis.adaptive.rows import read_left_out

        parts["adaptive_left_out"] = read_left_out(reader)
    return parts


def _crossed_levels(samples: SampleColumns) -> tuple[int, int] | None:
    """Count the levels of both factors over the rows that are crossed."""
    if samples.crossing is None:
        return None
    is_crossed = np.bincount(samples.crossing.codes)[samples.crossing.codes] > 1
    fewer, more = sorted(
        len(np.unique(facet.codes[is_crossed])) for facet in (samples.group, samples.crossing)
    )
    return fewer, more


def _sample_counts(frame: Frame, *, unlabelled: int) -> SampleCounts:
    samples = frame.samples
    benign, attacks = frame.count(samples.is_attack.view(np.uint8), at_least=2).tolist()
    counts = frame.count(samples.language.codes, at_least=len(samples.language.names)).tolist()
    often = frame.group_weights
    languages = [each for each in zip(counts, samples.language.names, strict=True) if each[1]]
    return SampleCounts(
        attacks=attacks,
        benign=benign,
        unlabelled=unlabelled,
        groups=len(samples.group.names) if often is None else int(often.sum()),
        is_grouped=frame.is_grouped,
        crossed=_crossed_levels(samples),
        languages=tuple(name for _, name in sorted(languages, key=lambda n: (-n[0], n[1]))),
    )
