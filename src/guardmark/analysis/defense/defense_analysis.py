"""Everything a report says about one defense."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from guardmark.analysis.defense.latency import measure_latency, order_timed
from guardmark.analysis.defense.scorecard import (
    assess_widths,
    make_scorecard,
    measure_stability,
    reweight,
)
from guardmark.analysis.defense.slices import assess_categories

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from guardmark.analysis.defense.blind_spots import BlindSpot
    from guardmark.analysis.defense.counts import Confusion
    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.defense.latency import Latency
    from guardmark.analysis.defense.masking import Masking
    from guardmark.analysis.defense.native_categories import NativeCategory
    from guardmark.analysis.defense.scorecard import DeploymentRates, Scorecard, Stability, Width
    from guardmark.analysis.defense.scores import ScoreDetails, ThresholdAnalysis
    from guardmark.analysis.defense.slices import (
        CategoryStanding,
        Slicer,
        SliceTable,
        TaxonomyCoverage,
    )
    from guardmark.analysis.defense.streaming import Streaming
    from guardmark.analysis.defense.turns import TurnFigures
    from guardmark.analysis.early_stop import StopVerdict
    from guardmark.core.manifest import PartManifest


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DefenseAnalysis:
    """Everything said about one defense.

    Attributes:
        part: The defense as it was configured.
        is_baseline: Whether it only marks the floor or the ceiling.
        threshold: Score from which it blocks, or None when unknown.
        is_redecided: Whether its decisions follow from a threshold chosen after the run.
        card: Headline figures.
        blind_spots: Slices on which it is worse than on all others, the surest first.
        standings: How it stands towards each declared category.
        thresholds: What its scores could do, or None without scores.
        stability: How its answers vary over repeats, or None without repeats.
        scores: What its scores are worth as probabilities, or None without scores.
        deployment: Its rates at the stated mix of a deployment, or None without one.
        native_categories: Categories that it names itself; empty where its answers name none.
        masking: What survived where it let another text go on, or None where it never did.
        streaming: What had gone out before it blocked, or None where its answers do not stream.
        turns: Whole conversations, or None where none was asked about turn by turn.
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
    blind_spots: tuple[BlindSpot, ...]
    standings: tuple[CategoryStanding, ...] = field(metadata={"json": "categories"})
    latency: Latency = field(metadata={"json": False})
    thresholds: ThresholdAnalysis | None
    widths: tuple[Width, ...]
    stability: Stability | None
    scores: ScoreDetails | None = None
    deployment: DeploymentRates | None = None
    native_categories: tuple[NativeCategory, ...] = ()
    masking: Masking | None = None
    streaming: Streaming | None = None
    turns: TurnFigures | None = None
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
        named = {(table.facet, table.is_attack): table for table in self.slices}
        return named[facet, is_attack]


def analyse_defense(
    frame: Frame,
    arm: DefenseColumn,
    *,
    slicers: list[Slicer],
    taxonomy: TaxonomyCoverage,
    asked: NDArray[np.int64] | None = None,
    blind_spots: tuple[BlindSpot, ...] = (),
    native_categories: tuple[NativeCategory, ...] = (),
) -> DefenseAnalysis:
    """Compute everything a report says about one defense.

    `asked` is what `asking_ranks` says of the frame: the same for all of its defenses.
    """
    settings, card = frame.settings, make_scorecard(frame, arm)
    order = order_timed(frame, arm.records, ranks=asked)
    slices: list[SliceTable] = []
    for slicer in slicers:
        slices += slicer.tables(arm, order=order)
    stopped = frame.stopped(arm)
    if stopped:
        slices = [table.greyed() for table in slices]
    thresholds = scores = None
    if arm.is_scored.any():
        # Loaded by runs that need it alone: it is a good part of a short run's start.
        from guardmark.analysis.defense.scores import analyse_thresholds, detail_scores

        thresholds, scores = analyse_thresholds(frame, arm), detail_scores(frame, arm)
    return DefenseAnalysis(
        part=arm.part,
        is_baseline=arm.is_baseline,
        threshold=arm.threshold,
        is_redecided=arm.is_redecided,
        card=card,
        slices=tuple(slices),
        blind_spots=blind_spots,
        standings=assess_categories(
            taxonomy, slices[0], overall=card.false_positive_rate, settings=settings
        ),
        latency=measure_latency(frame, arm.records, ranks=asked),
        thresholds=thresholds,
        widths=assess_widths(card, settings, repeats=frame.manifest.repeats),
        stability=measure_stability(frame, arm),
        scores=scores,
        deployment=reweight(frame, arm),
        native_categories=native_categories,
        stopped=stopped,
    )
