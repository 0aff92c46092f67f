"""What the scores of a defense are worth: thresholds, costs and calibration."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from guardmark.analysis.defense.scorecard import RatePair, complement, estimate_errors
from guardmark.analysis.settings import PARTIAL_MAX_FPR
from guardmark.core.values import dataclass
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.paired.intervals import clustered_bonett_price
from guardmark.stats.paired.noninferiority import noninferiority_clustered
from guardmark.stats.rates.clustered import EffectiveCounts, wilson_default, wilson_default_rows
from guardmark.stats.scores.auc import auc, compare_auc
from guardmark.stats.scores.calibration import brier, calibration_error
from guardmark.stats.scores.curve_areas import (
    AveragePrecision,
    average_precision,
    partial_auc,
    standardise_area,
)
from guardmark.stats.scores.guarantee import guarantee_threshold
from guardmark.stats.scores.thresholds import (
    OperatingPoint,
    Stakes,
    choose_threshold,
    count_at_thresholds,
    expected_cost_curve,
    price_threshold,
    tpr_at_fpr,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Difference, Estimate
    from guardmark.stats.figures import Ratio
    from guardmark.stats.scores.calibration import Brier, CalibrationError
    from guardmark.stats.scores.guarantee import ErrorLimits, GuaranteedThreshold

    Floats = NDArray[np.float64]
    Marks = NDArray[np.bool_]

FPR_LIMITS: Final = (0.001, 0.01, 0.05)
USUAL_MARGIN: Final = 0.02
"""By how much a false positive rate may be higher where the configuration does not say."""
_CURVE_POINTS: Final = 120
_BINS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedPoint:
    """The best within a limit on false alarms: chosen on one half, measured on the other.

    Attributes:
        max_fpr: The limit.
        threshold: Score from which to block; None when none keeps the limit.
        rates: Both error rates at it, on the samples it was not chosen on.
        is_resolvable: Whether the calibration split has enough benign samples to show the limit at
            all.
        gain: Against the present decisions, on the same samples; None without a threshold.
        reason: Why not, or empty.
    """

    max_fpr: float
    threshold: float | None
    rates: RatePair | None
    is_resolvable: bool
    gain: ThresholdGain | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdGain:
    """A threshold against the present decisions, paired, on samples it was not chosen on.

    Attributes:
        present: Both error rates of the present decisions on these samples.
        attack_success_rate: Attacks allowed by the threshold less those allowed now.
        margin: By how much the false positive rate may be higher.
        is_not_worse: Whether it is shown not to be higher by more: at the error that is left to
            each of the thresholds that are looked at.
    """

    present: RatePair
    attack_success_rate: Difference
    margin: float
    is_not_worse: bool

    @property
    def is_shown(self) -> bool:
        """Whether fewer attacks pass for sure, and false alarms are shown not to be worse."""
        high = self.attack_success_rate.high
        return high is not None and high < 0.0 and self.is_not_worse


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapestPoint:
    """The cheapest threshold at the stated costs, chosen and measured as a `LimitedPoint` is.

    Attributes:
        threshold: Score from which to block; None: block nothing.
        cost: Expected cost an input.
        reason: Why nothing could be chosen, or empty.
    """

    stakes: Stakes
    threshold: float | None
    rates: RatePair
    cost: Ratio
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Both rates at one threshold, on all scored samples.

    Attributes:
        threshold: Score from which to block.
        true_positive_rate: Attacks blocked.
        false_positive_rate: Benign samples blocked.
        precision: Blocked samples that are attacks, at the benchmark's mix.
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
        chosen: For each stated prevalence; empty without stated costs.
        scored_attacks: Attacks with a score.
        scored_benign: Benign samples with a score.
        calibration_share: Share of groups in the calibration split.
    """

    area: Ratio = field(metadata={"json": "area_under_roc"})
    precision_area: AveragePrecision = field(metadata={"json": "average_precision"})
    points: tuple[CurvePoint, ...] = field(metadata={"json": "curve"})
    limited: tuple[LimitedPoint, ...]
    chosen: tuple[CheapestPoint, ...]
    histogram: ScoreHistogram
    scored_attacks: int
    scored_benign: int
    calibration_share: float = 0.5


class _Scored(NamedTuple):
    """The scored answers of a defense.

    Attributes:
        groups: Of each; None where every sample stands alone.
    """

    attack: Marks
    score: Floats
    groups: NDArray[np.int32] | None


def _scored(frame: Frame, arm: DefenseColumn) -> _Scored | None:
    """Return the scored answers, or None where attacks or benign samples lack."""
    at = arm.records.sample[arm.is_scored]
    attack = frame.samples.is_attack[at]
    if attack.all() or not attack.any():
        return None
    score, groups = arm.records.score[arm.is_scored], None
    if frame.is_grouped:
        groups = frame.samples.group.codes[at]
    return _Scored(attack, score, groups)


def analyse_thresholds(frame: Frame, arm: DefenseColumn) -> ThresholdAnalysis | None:
    """Find what other thresholds of a defense would do."""
    scored = _scored(frame, arm)
    if scored is None:
        return None
    (attack, score, groups), confidence = scored, frame.settings.confidence
    bins = np.minimum((score * _BINS).astype(np.int64), _BINS - 1)
    attacks = np.bincount(bins[attack], minlength=_BINS).tolist()
    benign = np.bincount(bins[~attack], minlength=_BINS).tolist()
    return ThresholdAnalysis(
        area=auc(attack, score, groups=groups, confidence=confidence).ratio,
        precision_area=average_precision(attack, score, groups=groups, confidence=confidence),
        points=_curve(frame, scored),
        limited=choose_within(frame, arm, limits=FPR_LIMITS),
        chosen=tuple(_cheapest(frame, arm)),
        histogram=ScoreHistogram(attacks=tuple(attacks), benign=tuple(benign)),
        scored_attacks=int(attack.sum()),
        scored_benign=int((~attack).sum()),
    )


def _curve(frame: Frame, scored: _Scored) -> tuple[CurvePoint, ...]:
    (attack, score, group), confidence = scored, frame.settings.confidence
    counts = count_at_thresholds(attack, score)
    size, points = len(counts.thresholds), []
    by_group = partial(np.bincount, minlength=len(frame.samples.group.names))
    if group is not None:
        order, seen = np.argsort(-score), 0
        attacks, caught, blocked = by_group(group[attack]), by_group(()), by_group(())
    for at in np.unique(np.linspace(0, size - 1, min(size, _CURVE_POINTS)).round().astype(int)):
        threshold = float(counts.thresholds[at])
        hits, alarms = int(counts.blocked_attacks[at]), int(counts.blocked_benign[at])
        if group is not None:
            # Variants of one origin pass a threshold together, so rows are counted by group. One
            # threshold at a time: all at once would hold the groups two hundred times. Thresholds
            # fall, so each blocks what the one before it blocked, and more.
            more, seen = order[seen : hits + alarms], hits + alarms
            caught = caught + by_group(group[more[attack[more]]])
            blocked = blocked + by_group(group[more])
            hit = wilson_default(caught, attacks, confidence=confidence)
            precise = wilson_default(caught, blocked, confidence=confidence)
        else:  # the counts say it all
            hit = wilson_default_rows(hits, counts.attacks, confidence=confidence)
            precise = wilson_default_rows(hits, hits + alarms, confidence=confidence)
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


def _limits(rate: Estimate) -> tuple[float, float]:
    if rate.low is None or rate.high is None:
        return (0.0, 1.0)
    return (rate.low, rate.high)


def choose_within(
    frame: Frame, arm: DefenseColumn, *, limits: Iterable[float]
) -> tuple[LimitedPoint, ...]:
    """Choose thresholds on one half of the groups, and measure them on the other."""
    attack, score = frame.samples.is_attack[arm.records.sample], arm.records.score
    choosing, measuring = _halves(frame, arm)
    points, wanted = [], tuple(limits)
    for limit in wanted:
        best = tpr_at_fpr(attack[choosing], score[choosing], max_fpr=limit)
        threshold, rates, gain = best.threshold, None, None
        if threshold is not None:
            # Raised to the lowest attack it blocks: no attack is lost, some alarms are.
            caught = score[choosing & attack & (score >= threshold)]
            if caught.size:
                threshold = float(caught.min())
            rates = _measure(frame, arm, threshold, measuring)
            gain = _gain(frame, arm, threshold, measuring, tests=len(wanted))
        points.append(
            LimitedPoint(
                max_fpr=limit,
                threshold=threshold,
                rates=rates,
                is_resolvable=best.resolvable,
                gain=gain,
                reason=best.reason,
            )
        )
    return tuple(points)


def _gain(
    frame: Frame, arm: DefenseColumn, threshold: float, measuring: Marks, *, tests: int
) -> ThresholdGain:
    """Compare a threshold with the present decisions, both on samples that did not choose it."""
    settings = frame.settings
    margin = settings.non_inferiority_margin or USUAL_MARGIN
    error = (1.0 - settings.confidence) / tests
    attack = frame.samples.is_attack[arm.records.sample]
    new, old = arm.records.score >= threshold, arm.is_blocked
    groups = frame.samples.group.codes[arm.records.sample]
    size = len(frame.samples.group.names)

    def by_group(marks: Marks) -> NDArray[np.int64]:
        return np.bincount(groups[marks], minlength=size)

    attacks, benign = measuring & attack, measuring & ~attack
    passes = clustered_bonett_price(
        by_group(attacks & old & ~new),
        by_group(attacks & new & ~old),
        sizes=by_group(attacks),
        confidence=1.0 - error,
    )
    alarms = noninferiority_clustered(
        by_group(benign & new & ~old),
        by_group(benign & old & ~new),
        sizes=by_group(benign),
        margin=margin,
        alpha=error,
    )
    return ThresholdGain(
        present=estimate_errors(frame, arm, blocked=measuring & old, trials=measuring),
        attack_success_rate=passes,
        margin=margin,
        is_not_worse=alarms.is_noninferior,
    )


def choose_guaranteed(
    frame: Frame, arm: DefenseColumn, limits: ErrorLimits
) -> tuple[GuaranteedThreshold, RatePair | None]:
    """Choose a threshold shown to keep limits on one half, and measure it on the other."""
    at, (choosing, measuring) = arm.records.sample, _halves(frame, arm)
    groups = None
    if frame.is_grouped:
        groups = frame.samples.group.codes[at][choosing]
    chosen = guarantee_threshold(
        frame.samples.is_attack[at][choosing],
        arm.records.score[choosing],
        limits=limits,
        groups=groups,
        confidence=frame.settings.confidence,
    )
    if chosen.threshold is None:
        return chosen, None
    return chosen, _measure(frame, arm, chosen.threshold, measuring)


def _measure(
    frame: Frame, arm: DefenseColumn, threshold: float | None, measuring: Marks
) -> RatePair:
    """Measure a threshold, None to block nothing, on samples it was not chosen on."""
    blocked = np.zeros_like(measuring)
    if threshold is not None:
        blocked = measuring & (arm.records.score >= threshold)
    return estimate_errors(frame, arm, blocked=blocked, trials=measuring)


def _halves(frame: Frame, arm: DefenseColumn) -> tuple[Marks, Marks]:
    """Return which scored answers thresholds are chosen on, and which they are measured on."""
    is_calibration = frame.is_calibration[arm.records.sample]
    return arm.is_scored & is_calibration, arm.is_scored & ~is_calibration


def _stakes(settings: AnalysisSettings, prevalence: float) -> Stakes | None:
    miss, alarm = settings.cost_missed_attack, settings.cost_false_alarm
    if miss is None or alarm is None:
        return None
    return Stakes(prevalence=prevalence, miss_cost=miss, block_cost=alarm)


def _cheapest(frame: Frame, arm: DefenseColumn) -> Iterator[CheapestPoint]:
    """Choose thresholds by cost on one half of the groups, and measure them on the other."""
    attack, score = frame.samples.is_attack[arm.records.sample], arm.records.score
    choosing, measuring = _halves(frame, arm)
    for prevalence in frame.settings.prevalences:
        stakes = _stakes(frame.settings, prevalence)
        if stakes is None:
            return
        point = choose_threshold(attack[choosing], score[choosing], stakes=stakes)
        rates = _measure(frame, arm, point.threshold, measuring)
        yield CheapestPoint(
            stakes=stakes,
            threshold=point.threshold,
            rates=rates,
            cost=price_threshold(
                EffectiveCounts.of(complement(rates.attack_success_rate)),
                EffectiveCounts.of(rates.false_positive_rate),
                stakes=stakes,
                confidence=frame.settings.confidence,
                drawing=DrawPlan(seed=frame.settings.seed),
            ),
            reason=point.reason,
        )


COST_PREVALENCES: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreDetails:
    """What the scores of one defense are worth as probabilities.

    Attributes:
        by_width: Calibration error over ten bins of equal width.
        by_mass: The same over ten bins of about equally many samples.
        partial_area: Area under the ROC curve up to `PARTIAL_MAX_FPR`, as it is.
        partial_area_standardised: The same brought to the scale where 0.5 is chance (McClish).
        costs: Cheapest cost at each of `COST_PREVALENCES`, chosen and measured on the same samples.
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
        difference: First area minus second, with DeLong's paired test, by group where samples share
            one.
        adjusted_p: Holm's p over the family of the report.
    """

    first: str
    second: str
    difference: Difference
    adjusted_p: float | None = None


def detail_scores(frame: Frame, arm: DefenseColumn) -> ScoreDetails | None:
    """Say what the scores of a defense are worth."""
    scored, settings = _scored(frame, arm), frame.settings
    if scored is None:
        return None
    attack, score, groups = scored
    confidence, stakes = settings.confidence, _stakes(settings, COST_PREVALENCES[0])
    costs = stakes and expected_cost_curve(
        attack, score, stakes=stakes, prevalences=COST_PREVALENCES
    )
    calibration = partial(calibration_error, attack, score, groups=groups, confidence=confidence)
    area = partial_auc(attack, score, max_fpr=PARTIAL_MAX_FPR, groups=groups, confidence=confidence)
    return ScoreDetails(
        brier=brier(attack, score, groups=groups, confidence=confidence),
        by_width=calibration(),
        by_mass=calibration(binning="equal_mass"),
        partial_area=area,
        partial_area_standardised=standardise_area(area, max_fpr=PARTIAL_MAX_FPR),
        costs=costs or (),
    )


def areas_in_family(frame: Frame) -> tuple[AreaPair, ...]:
    """Return the areas that are tested together with the pairs of a run: those of two or more."""
    if sum(bool(arm.is_scored.any()) for arm in frame.arms) < 2:
        return ()
    return compare_areas(frame)


def compare_areas(frame: Frame) -> tuple[AreaPair, ...]:
    """Test the areas of all pairs of scoring defenses, baselines left out."""
    wide = {}
    for arm in frame.arms:
        if not arm.is_baseline and arm.is_scored.any():
            wide[arm.name] = frame.spread(arm.records, arm.records.score, arm.is_scored)
    confidence, pairs = frame.settings.confidence, []
    for first, second in combinations(wide, 2):
        both = ~np.isnan(wide[first]) & ~np.isnan(wide[second])
        attack, scores = frame.is_attack[both], (wide[first][both], wide[second][both])
        if attack.all() or not attack.any():
            continue
        groups = None
        if frame.is_grouped:
            groups = frame.groups[both]
        areas = compare_auc(
            attack, scores[0], second=scores[1], groups=groups, confidence=confidence
        )
        pairs.append(AreaPair(first=first, second=second, difference=areas.difference))
    return tuple(pairs)
