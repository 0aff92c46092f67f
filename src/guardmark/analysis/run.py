"""Everything a report says about one run, computed once from its records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from guardmark.analysis.compare.recommendations import Advice, AdviceBasis, recommend
from guardmark.analysis.defense.bypasses import WorstSamples, find_worst
from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.defense.latency import Latency, measure_latency, order_by_latency
from guardmark.analysis.defense.scorecard import (
    DeploymentRates,
    Scorecard,
    Stability,
    Width,
    assess_widths,
    make_scorecard,
    measure_stability,
    reweight,
)
from guardmark.analysis.defense.slices import (
    FACETS,
    CategoryStanding,
    Slicer,
    SliceTable,
    TaxonomyCoverage,
    assess_categories,
    count_taxonomy,
)
from guardmark.analysis.defense.spending import read_part_usage
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.record import Stage
from guardmark.store.layers import ADAPTIVE, LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.analysis.adaptive.card import AdaptiveCard, AdaptivePair
    from guardmark.analysis.compare.comparison import RunComparison
    from guardmark.analysis.defense.counts import Confusion
    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.defense.scores import AreaPair, ScoreDetails, ThresholdAnalysis
    from guardmark.analysis.pipeline.arms import PipelineAnalysis
    from guardmark.analysis.stopping.early_stop import StopVerdict
    from guardmark.core.manifest import PartManifest, RunManifest
    from guardmark.store.columns import PartUsage
    from guardmark.store.reader import RecordReader, RunStatus

__all__ = ["AnalysisSettings", "DefenseAnalysis", "RunAnalysis", "SampleCounts", "analyse_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCounts:
    """What the samples of a run are.

    Attributes:
        attacks: Attack samples.
        benign: Benign samples.
        groups: Origins the samples fall into.
        is_grouped: Whether samples share groups or are run more than once.
        languages: Languages stated, most frequent first.
    """

    attacks: int
    benign: int
    groups: int
    is_grouped: bool
    languages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefenseAnalysis:
    """Everything said about one defense.

    Attributes:
        part: The defense as it was configured.
        is_baseline: Whether it only marks the floor or the ceiling.
        threshold: Score from which it blocks, or None when unknown.
        is_redecided: Whether its decisions follow from a threshold chosen after the run.
        card: Headline figures.
        slices: Error rates by facet, attacks and benign samples in turn.
        standings: How it stands towards each declared category.
        latency: How long it takes.
        thresholds: What its scores could do, or None without scores.
        widths: How wide its headline intervals are.
        stability: How its answers vary over repeats, or None without repeats.
        scores: What its scores are worth as probabilities, or None without scores.
        deployment: Its rates at the stated mix of a deployment, or None without one.
        stopped: What its rules decided when they ended it early; empty otherwise.
    """

    DERIVED: ClassVar = ("counts",)

    part: PartManifest = field(
        metadata={"json": ("name", "type", "version", "fingerprint", "view")}
    )
    is_baseline: bool
    threshold: float | None
    is_redecided: bool
    card: Scorecard = field(metadata={"json": "rates"})
    slices: tuple[SliceTable, ...]
    standings: tuple[CategoryStanding, ...] = field(metadata={"json": "categories"})
    latency: Latency = field(metadata={"json": False})
    thresholds: ThresholdAnalysis | None
    widths: tuple[Width, ...]
    stability: Stability | None
    scores: ScoreDetails | None = None
    deployment: DeploymentRates | None = None
    stopped: tuple[StopVerdict, ...] = field(default=(), metadata={"json": "stopped_early"})

    @property
    def counts(self) -> Confusion:
        """How often each outcome occurred."""
        return self.card.confusion

    @property
    def name(self) -> str:
        """Name of the defense."""
        return self.part.name

    def slice_table(self, facet: str, *, is_attack: bool) -> SliceTable:
        """Return the error rates by one facet."""
        for table in self.slices:
            if table.facet == facet and table.is_attack == is_attack:
                return table
        raise KeyError(facet)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnalysis:
    """Everything a report says about one run.

    Attributes:
        manifest: What was run.
        status: How far the run is.
        settings: What the reader decided beforehand.
        samples: What the samples are.
        taxonomy: What of the taxonomy they touch.
        defenses: One for each, in the order of the run.
        comparison: The defenses against each other, or None with fewer than two.
        worst: The samples worth reading.
        advice: What follows, by written rules.
        areas: Areas under the ROC curve of scoring defenses against each other.
        pipeline: Guard, model and judge together, or None when no model was asked.
        adaptive: One for each defense that was attacked adaptively.
        adaptive_left_out: Name of each defense that no rewriting reaches to what it is shown.
        adaptive_pairs: Every two of these against each other, attack by attack.
        spending: What each part consumed, as far as it reported.
    """

    manifest: RunManifest = field(metadata={"json": False})
    status: RunStatus = field(metadata={"json": False})
    settings: AnalysisSettings = field(metadata={"json": False})
    samples: SampleCounts
    taxonomy: TaxonomyCoverage = field(metadata={"json": "coverage"})
    defenses: tuple[DefenseAnalysis, ...]
    comparison: RunComparison | None
    worst: WorstSamples
    advice: tuple[Advice, ...] = field(metadata={"json": "recommendations"})
    areas: tuple[AreaPair, ...] = ()
    pipeline: PipelineAnalysis | None = None
    adaptive: tuple[AdaptiveCard, ...] = ()
    adaptive_pairs: tuple[AdaptivePair, ...] = ()
    adaptive_left_out: Mapping[str, str] = field(default_factory=dict)
    spending: tuple[PartUsage, ...] = ()

    @property
    def candidates(self) -> tuple[DefenseAnalysis, ...]:
        """The defenses that are no baselines, or all when there are only baselines."""
        return tuple(each for each in self.defenses if not each.is_baseline) or self.defenses


def analyse_run(reader: RecordReader, settings: AnalysisSettings | None = None) -> RunAnalysis:
    """Compute everything a report says, from the records alone.

    Nothing is called and no clock is read: equal records give equal figures.
    """
    chosen = settings or AnalysisSettings.of(reader.manifest())
    frame = read_frame(reader, chosen)
    taxonomy = count_taxonomy(frame)
    slicers = [Slicer(frame, facet) for facet in FACETS]
    defenses = tuple(
        _analyse_arm(frame, arm, slicers=slicers, taxonomy=taxonomy, settings=chosen)
        for arm in frame.arms
    )
    comparison = _compare(frame, chosen)
    evidence = tuple(
        AdviceBasis(
            defense=each.name,
            is_baseline=each.is_baseline,
            card=each.card,
            slices=each.slices,
            thresholds=each.thresholds,
            widths=each.widths,
        )
        for each in defenses
    )
    adaptive, adaptive_pairs = _adaptive(reader, chosen)
    return RunAnalysis(
        manifest=frame.manifest,
        status=reader.status(),
        settings=chosen,
        samples=_sample_counts(frame),
        taxonomy=taxonomy,
        defenses=defenses,
        comparison=comparison,
        worst=find_worst(reader, frame, chosen),
        advice=recommend(evidence, comparison),
        areas=_areas(frame, chosen),
        pipeline=_analyse_pipeline(reader, frame, chosen),
        adaptive=adaptive,
        adaptive_pairs=adaptive_pairs,
        adaptive_left_out=_left_out(reader),
        spending=read_part_usage(reader, frame.manifest),
    )


# What most runs do not need is loaded by those that do: it is a fifth of a short run's start.


def _compare(frame: Frame, settings: AnalysisSettings) -> RunComparison | None:
    if len(frame.arms) < 2:
        return None
    from guardmark.analysis.compare.comparison import compare_arms

    return compare_arms(frame, settings)


def _analyse_pipeline(
    reader: RecordReader, frame: Frame, settings: AnalysisSettings
) -> PipelineAnalysis | None:
    if all(stage is not Stage.MODEL for _, stage, _ in reader.recorded_stages()):
        return None
    from guardmark.analysis.pipeline.arms import analyse_pipeline

    return analyse_pipeline(reader, frame, settings)


def _adaptive(
    reader: RecordReader, settings: AnalysisSettings
) -> tuple[tuple[AdaptiveCard, ...], tuple[AdaptivePair, ...]]:
    if ADAPTIVE not in reader.layers():
        return (), ()
    from guardmark.analysis.adaptive.card import analyse_adaptive, compare_adaptive

    cards = analyse_adaptive(reader, settings)
    return cards, compare_adaptive(cards, confidence=settings.confidence)


def _left_out(reader: RecordReader) -> Mapping[str, str]:
    if LEFT_OUT not in reader.layers():
        return {}
    from guardmark.analysis.adaptive.rows import read_left_out

    return read_left_out(reader)


def _has_scores(arm: DefenseColumn) -> bool:
    import numpy as np

    return not bool(np.isnan(arm.records.score).all())


def _thresholds(
    frame: Frame, arm: DefenseColumn, settings: AnalysisSettings
) -> ThresholdAnalysis | None:
    if not _has_scores(arm):
        return None
    from guardmark.analysis.defense.scores import analyse_thresholds

    return analyse_thresholds(frame, arm, settings)


def _score_details(
    frame: Frame, arm: DefenseColumn, settings: AnalysisSettings
) -> ScoreDetails | None:
    if not _has_scores(arm):
        return None
    from guardmark.analysis.defense.scores import detail_scores

    return detail_scores(frame, arm, settings)


def _areas(frame: Frame, settings: AnalysisSettings) -> tuple[AreaPair, ...]:
    if sum(_has_scores(arm) for arm in frame.arms) < 2:
        return ()
    from guardmark.analysis.defense.scores import compare_areas

    return compare_areas(frame, settings)


def _analyse_arm(
    frame: Frame,
    arm: DefenseColumn,
    *,
    slicers: list[Slicer],
    taxonomy: TaxonomyCoverage,
    settings: AnalysisSettings,
) -> DefenseAnalysis:
    card = make_scorecard(frame, arm, settings)
    by_latency = order_by_latency(arm)
    slices = [
        table for slicer in slicers for table in slicer.tables(arm, settings, by_latency=by_latency)
    ]
    stopped = frame.stopped(arm)
    if stopped:
        slices = [table.greyed() for table in slices]
    return DefenseAnalysis(
        part=arm.part,
        is_baseline=arm.is_baseline,
        threshold=arm.threshold,
        is_redecided=arm.is_redecided,
        card=card,
        slices=tuple(slices),
        standings=assess_categories(
            taxonomy, slices[0], overall=card.false_positive_rate, settings=settings
        ),
        latency=measure_latency(frame, arm, settings),
        thresholds=_thresholds(frame, arm, settings),
        widths=assess_widths(card, settings),
        stability=measure_stability(frame, arm),
        scores=_score_details(frame, arm, settings),
        deployment=reweight(frame, arm, settings),
        stopped=stopped,
    )


def _sample_counts(frame: Frame) -> SampleCounts:
    import numpy as np

    attacks = int(frame.samples.is_attack.sum())
    language = frame.samples.language
    counts = np.bincount(language.codes, minlength=len(language.names)).tolist()
    named = [(count, name) for count, name in zip(counts, language.names, strict=True) if name]
    return SampleCounts(
        attacks=attacks,
        benign=frame.sample_count - attacks,
        groups=len(frame.samples.group.names),
        is_grouped=frame.is_grouped,
        languages=tuple(name for _, name in sorted(named, key=lambda pair: (-pair[0], pair[1]))),
    )
