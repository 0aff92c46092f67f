"""What the scores of a defense are worth: thresholds, costs and calibration."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.counts import Cells, estimate_slices, sort_into_cells
from guardmark.analysis.defense.scorecard import RatePair, complement
from guardmark.analysis.settings import PARTIAL_MAX_FPR
from guardmark.stats.drawing import split_by_group
from guardmark.stats.rates.clustered import wilson_default, wilson_default_rows
from guardmark.stats.scores.auc import auc, compare_auc
from guardmark.stats.scores.calibration import brier, calibration_error
from guardmark.stats.scores.thresholds import (
    AveragePrecision,
    OperatingPoint,
    Stakes,
    average_precision,
    choose_threshold,
    count_at_thresholds,
    expected_cost_curve,
    measure_at,
    partial_auc,
    tpr_at_fpr,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Difference, Estimate, Ratio
    from guardmark.stats.scores.calibration import Brier, CalibrationError
    from guardmark.stats.scores.thresholds import OperatingPoint


FPR_LIMITS: Final = (0.001, 0.01, 0.05)
_CURVE_POINTS: Final = 120
_BINS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedPoint:
    """The best a defense does within a limit on false alarms.

    The threshold was chosen on the calibration split and measured on the other samples.

    Attributes:
        max_fpr: The limit.
        threshold: Score from which to block; None when none keeps the limit.
        rates: Both error rates at it, on the samples it was not chosen on.
        is_resolvable: Whether the calibration split has enough benign samples to show the
            limit at all.
        reason: Why not, or empty.
    """

    max_fpr: float
    threshold: float | None
    rates: RatePair | None
    is_resolvable: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Both rates at one threshold, on all scored samples.

    Attributes:
        threshold: Score from which to block.
        true_positive_rate: Attacks blocked.
        false_positive_rate: Benign samples blocked.
        precision: Blocked samples that are attacks, at the benchmark's mix.
        true_positive_limits: Interval of the first, at this one threshold.
        precision_limits: Interval of the last, given the number blocked.
    """

    threshold: float
    true_positive_rate: float
    false_positive_rate: float
    precision: float
    true_positive_limits: tuple[float, float] = field(metadata={"json": False})
    precision_limits: tuple[float, float] = field(metadata={"json": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreHistogram:
    """How scores spread over [0, 1] in bins of equal width.

    Attributes:
        attacks: Attacks in each bin.
        benign: Benign samples in each bin.
    """

    attacks: tuple[int, ...]
    benign: tuple[int, ...]

    @property
    def edges(self) -> tuple[float, ...]:
        """Bounds of the bins."""
        return tuple(at / len(self.attacks) for at in range(len(self.attacks) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdAnalysis:
    """What the scores of one defense could do.

    Attributes:
        area: Area under the ROC curve.
        precision_area: Average precision, with the prevalence it holds for.
        points: The ROC and precision-recall curves, from "block nothing" on, thinned.
        limited: The best within each limit on false alarms.
        chosen: Cheapest threshold at the stated costs for each stated prevalence, chosen on
            the calibration split; its rates and cost are those of the other samples. Empty
            without stated costs.
        histogram: How scores spread.
        scored_attacks: Attacks with a score.
        scored_benign: Benign samples with a score.
        calibration_share: Share of groups in the calibration split.
    """

    area: Ratio = field(metadata={"json": "area_under_roc"})
    precision_area: AveragePrecision = field(
        metadata={"json": {"average_precision": "value", "prevalence": "prevalence"}}
    )
    points: tuple[CurvePoint, ...] = field(metadata={"json": "curve"})
    limited: tuple[LimitedPoint, ...]
    chosen: tuple[OperatingPoint, ...]
    histogram: ScoreHistogram
    scored_attacks: int
    scored_benign: int
    calibration_share: float = 0.5


def analyse_thresholds(
    frame: Frame, arm: DefenseColumn, settings: AnalysisSettings
) -> ThresholdAnalysis | None:
    """Find what other thresholds of a defense would do."""
    scored = ~np.isnan(arm.records.score) & arm.is_answered
    attack = frame.samples.is_attack[arm.records.sample][scored]
    if not scored.any() or attack.all() or not attack.any():
        return None
    score = arm.records.score[scored]
    group = frame.samples.group.codes[arm.records.sample[scored]]
    bins = np.minimum((score * _BINS).astype(np.int64), _BINS - 1)
    attacks, benign = (
        tuple(np.bincount(bins[attack == label], minlength=_BINS).tolist())
        for label in (True, False)
    )
    return ThresholdAnalysis(
        area=_area(frame, attack, score, group=group, settings=settings),
        precision_area=average_precision(attack, score),
        points=_curve(
            attack,
            score,
            group=group if frame.is_grouped else None,
            confidence=settings.confidence,
        ),
        limited=choose_within(frame, arm, settings, limits=FPR_LIMITS),
        chosen=_chosen(frame, arm, scored, settings=settings),
        histogram=ScoreHistogram(attacks=attacks, benign=benign),
        scored_attacks=int(attack.sum()),
        scored_benign=int((~attack).sum()),
    )


def _area(
    frame: Frame,
    attack: NDArray[np.bool_],
    score: NDArray[np.float64],
    *,
    group: NDArray[np.int32],
    settings: AnalysisSettings,
) -> Ratio:
    if not frame.is_grouped:
        return auc(attack, score, confidence=settings.confidence).ratio
    from guardmark.stats.drawing import DrawPlan
    from guardmark.stats.scores.auc import clustered_auc

    drawing = DrawPlan(seed=settings.seed, replicates=_AREA_REPLICATES)
    return clustered_auc(
        attack, score, groups=group, confidence=settings.confidence, drawing=drawing
    ).ratio


_AREA_REPLICATES: Final = 200
"""Enough for a standard error, which is all that the interval of the area takes from it."""


def _curve(
    attack: NDArray[np.bool_],
    score: NDArray[np.float64],
    *,
    group: NDArray[np.int32] | None,
    confidence: float,
) -> tuple[CurvePoint, ...]:
    counts = count_at_thresholds(attack, score)
    size = len(counts.thresholds)
    chosen = np.unique(np.linspace(0, size - 1, min(size, _CURVE_POINTS)).round().astype(int))
    of_groups = None if group is None else _GroupsAlong(attack, score, group)
    points = []
    for at in chosen.tolist():
        threshold = float(counts.thresholds[at])
        hits, alarms = int(counts.blocked_attacks[at]), int(counts.blocked_benign[at])
        if of_groups is None:  # the counts say it all
            hit = wilson_default_rows(hits, counts.attacks, confidence=confidence)
            precise = wilson_default_rows(hits, hits + alarms, confidence=confidence)
        else:
            hit, precise = of_groups.estimates(threshold, confidence=confidence)
        points.append(
            CurvePoint(
                threshold=threshold,
                true_positive_rate=hits / counts.attacks,
                false_positive_rate=alarms / counts.benign,
                precision=hits / (hits + alarms),
                true_positive_limits=_limits(hit),
                precision_limits=_limits(precise),
            )
        )
    return tuple(points)


class _GroupsAlong:
    """Rates at one threshold after another of rows that share groups.

    Variants of one origin pass a threshold together, so rows are counted by group. One threshold
    at a time: all at once would hold the groups two hundred times.
    """

    def __init__(
        self, attack: NDArray[np.bool_], score: NDArray[np.float64], group: NDArray[np.int32]
    ) -> None:
        self._attack, self._score = attack, score
        names, self._codes = np.unique(group, return_inverse=True)
        self._size = len(names)
        self._attacks = self._count(attack)

    def estimates(self, threshold: float, *, confidence: float) -> tuple[Estimate, Estimate]:
        """Return the share of attacks that is blocked, and that of the blocked that is attacks."""
        blocked = self._score >= threshold
        hits = self._count(blocked & self._attack)
        return (
            wilson_default(hits, self._attacks, confidence=confidence),
            wilson_default(hits, self._count(blocked), confidence=confidence),
        )

    def _count(self, rows: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(self._codes[rows], minlength=self._size)


def _limits(found: Estimate) -> tuple[float, float]:
    return (0.0, 1.0) if found.low is None or found.high is None else (found.low, found.high)


def choose_within(
    frame: Frame, arm: DefenseColumn, settings: AnalysisSettings, *, limits: Iterable[float]
) -> tuple[LimitedPoint, ...]:
    """Choose thresholds on one half of the groups, and measure them on the other."""
    scored = ~np.isnan(arm.records.score) & arm.is_answered
    names = frame.samples.group.names
    side = split_by_group(names, seed=settings.seed)
    is_calibration = side[frame.samples.group.codes[arm.records.sample]]
    attack = frame.samples.is_attack[arm.records.sample]
    choosing, measuring = scored & is_calibration, scored & ~is_calibration
    cells = sort_into_cells(frame, np.zeros(frame.sample_count, dtype=np.int32), 1)
    points = []
    for limit in limits:
        found = tpr_at_fpr(attack[choosing], arm.records.score[choosing], max_fpr=limit)
        threshold, rates = found.threshold, None
        if threshold is not None:
            threshold = _raised(threshold, arm.records.score[choosing & attack])
            blocked = measuring & (arm.records.score >= threshold)
            rates = _measure(cells, arm, blocked=blocked, measuring=measuring, settings=settings)
        points.append(
            LimitedPoint(
                max_fpr=limit,
                threshold=threshold,
                rates=rates,
                is_resolvable=found.resolvable,
                reason=found.reason,
            )
        )
    return tuple(points)


def _raised(threshold: float, attacks: NDArray[np.float64]) -> float:
    """Raise a threshold to the lowest attack it blocks: no attack is lost, some alarms are."""
    caught = attacks[attacks >= threshold]
    return float(caught.min()) if caught.size else threshold


def _measure(
    cells: Cells,
    arm: DefenseColumn,
    *,
    blocked: NDArray[np.bool_],
    measuring: NDArray[np.bool_],
    settings: AnalysisSettings,
) -> RatePair:
    benign, attacks = estimate_slices(
        cells, arm, hits=blocked, trials=measuring, confidence=settings.confidence
    )
    return RatePair(attack_success_rate=complement(attacks), false_positive_rate=benign)


def _chosen(
    frame: Frame, arm: DefenseColumn, scored: NDArray[np.bool_], *, settings: AnalysisSettings
) -> tuple[OperatingPoint, ...]:
    """Choose thresholds by cost on one half of the groups, and measure them on the other."""
    miss, alarm = settings.cost_missed_attack, settings.cost_false_alarm
    if miss is None or alarm is None:
        return ()
    side = split_by_group(frame.samples.group.names, seed=settings.seed)
    is_calibration = side[frame.samples.group.codes[arm.records.sample]]
    attack = frame.samples.is_attack[arm.records.sample]
    choosing, measuring = scored & is_calibration, scored & ~is_calibration
    return tuple(
        _measured(
            choose_threshold(
                attack[choosing],
                arm.records.score[choosing],
                stakes=Stakes(prevalence=prevalence, miss_cost=miss, block_cost=alarm),
            ),
            attack[measuring],
            arm.records.score[measuring],
        )
        for prevalence in settings.prevalences
    )


def _measured(
    point: OperatingPoint, attack: NDArray[np.bool_], score: NDArray[np.float64]
) -> OperatingPoint:
    """Put the rates of other samples in the place of those a threshold was chosen on."""
    found = measure_at(attack, score, threshold=point.threshold)
    hits, alarms = found.true_positive_rate.value, found.false_positive_rate.value
    if point.reason or hits is None or alarms is None:
        reason = point.reason or "a half of the groups lacks attacks or benign samples"
        return replace(
            point, true_positive_rate=None, false_positive_rate=None, cost=None, reason=reason
        )
    stakes = point.stakes
    cost = stakes.prevalence * stakes.miss_cost * (1 - hits)
    cost += (1 - stakes.prevalence) * stakes.block_cost * alarms
    return replace(point, true_positive_rate=hits, false_positive_rate=alarms, cost=cost)


COST_PREVALENCES: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5)
_REPLICATES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreDetails:
    """What the scores of one defense are worth as probabilities.

    Attributes:
        brier: Mean squared error with Murphy's parts.
        by_width: Calibration error over ten bins of equal width.
        by_mass: The same over ten bins of about equally many samples.
        partial_area: Area under the ROC curve up to `PARTIAL_MAX_FPR`, as it is.
        partial_area_standardised: The same brought to the scale where 0.5 is chance (McClish).
        costs: Cheapest expected cost at each of `COST_PREVALENCES`, chosen and measured on the
            same samples; empty without stated costs.
    """

    brier: Brier
    by_width: CalibrationError
    by_mass: CalibrationError
    partial_area: Ratio
    partial_area_standardised: Ratio
    costs: tuple[OperatingPoint, ...] = field(metadata={"json": "expected_costs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaPair:
    """The areas of two scoring defenses over the samples both scored.

    Attributes:
        first: Name of the first.
        second: Name of the second.
        difference: First area minus second, with the paired DeLong test, or the bootstrap of
            groups where samples share them.
    """

    first: str
    second: str
    difference: Difference


def detail_scores(
    frame: Frame, arm: DefenseColumn, settings: AnalysisSettings
) -> ScoreDetails | None:
    """Say what the scores of a defense are worth."""
    scored = _scored(arm)
    attack = frame.samples.is_attack[arm.records.sample][scored]
    if attack.all() or not attack.any():
        return None
    score, confidence = arm.records.score[scored], settings.confidence
    return ScoreDetails(
        brier=brier(attack, score),
        by_width=calibration_error(attack, score, confidence=confidence),
        by_mass=calibration_error(attack, score, binning="equal_mass", confidence=confidence),
        partial_area=partial_auc(attack, score, max_fpr=PARTIAL_MAX_FPR),
        partial_area_standardised=partial_auc(
            attack, score, max_fpr=PARTIAL_MAX_FPR, standardised=True
        ),
        costs=_costs(attack, score, settings),
    )


def compare_areas(frame: Frame, settings: AnalysisSettings) -> tuple[AreaPair, ...]:
    """Test the areas of all pairs of scoring defenses against each other.

    Baselines are left out. Repeats count as rows of the group of their sample.
    """
    wide = {
        arm.name: _spread(frame, arm)
        for arm in frame.arms
        if not arm.is_baseline and _scored(arm).any()
    }
    attack = np.tile(frame.samples.is_attack, frame.manifest.repeats)
    pairs = []
    for first, second in combinations(wide, 2):
        both = ~np.isnan(wide[first]) & ~np.isnan(wide[second])
        if attack[both].all() or not attack[both].any():
            continue
        pairs.append(
            AreaPair(
                first=first,
                second=second,
                difference=_compare(
                    frame, (wide[first], wide[second]), both=both, settings=settings
                ),
            )
        )
    return tuple(pairs)


def _compare(
    frame: Frame,
    scores: tuple[NDArray[np.float64], NDArray[np.float64]],
    *,
    both: NDArray[np.bool_],
    settings: AnalysisSettings,
) -> Difference:
    attack = np.tile(frame.samples.is_attack, frame.manifest.repeats)[both]
    first, second = scores[0][both], scores[1][both]
    if not frame.is_grouped:
        return compare_auc(attack, first, second=second, confidence=settings.confidence).difference
    from guardmark.stats.drawing import DrawPlan
    from guardmark.stats.scores.auc import compare_clustered_auc

    groups = np.tile(frame.samples.group.codes, frame.manifest.repeats)[both]
    return compare_clustered_auc(
        attack,
        (first, second),
        groups=groups,
        confidence=settings.confidence,
        drawing=DrawPlan(seed=settings.seed, replicates=_REPLICATES),
    ).difference


def _scored(arm: DefenseColumn) -> NDArray[np.bool_]:
    scored: NDArray[np.bool_] = ~np.isnan(arm.records.score) & arm.is_answered
    return scored


def _spread(frame: Frame, arm: DefenseColumn) -> NDArray[np.float64]:
    """Return the scores by position, nan where there is none."""
    wide = np.full(frame.manifest.repeats * frame.sample_count, np.nan)
    at = arm.records.repeat.astype(np.int64) * frame.sample_count + arm.records.sample
    wide[at] = np.where(_scored(arm), arm.records.score, np.nan)
    return wide


def _costs(
    attack: NDArray[np.bool_], score: NDArray[np.float64], settings: AnalysisSettings
) -> tuple[OperatingPoint, ...]:
    miss, alarm = settings.cost_missed_attack, settings.cost_false_alarm
    if miss is None or alarm is None:
        return ()
    stakes = Stakes(prevalence=COST_PREVALENCES[0], miss_cost=miss, block_cost=alarm)
    return expected_cost_curve(attack, score, stakes=stakes, prevalences=COST_PREVALENCES)
