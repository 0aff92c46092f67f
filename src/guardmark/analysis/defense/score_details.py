"""What the scores of a defense are worth as probabilities, and beside those of another."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.settings import PARTIAL_MAX_FPR
from guardmark.stats.scores.auc import compare_auc
from guardmark.stats.scores.calibration import brier, calibration_error
from guardmark.stats.scores.thresholds import Stakes, expected_cost_curve, partial_auc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Difference, Ratio
    from guardmark.stats.scores.calibration import Brier, CalibrationError
    from guardmark.stats.scores.thresholds import OperatingPoint

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
