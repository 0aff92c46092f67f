"""Calibration, areas compared, weighted rates and early ends, for `summary.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.encode import Json, difference_json, estimate_json, ratio_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.defense.deployment import DeploymentRates
    from guardmark.analysis.defense.score_details import AreaPair, ScoreDetails
    from guardmark.analysis.stopping.early_stop import StopVerdict
    from guardmark.stats.scores.calibration import CalibrationError


def scores_json(found: ScoreDetails | None) -> Json | None:
    """Encode what scores are worth as probabilities, or null."""
    if found is None:
        return None
    return {
        "brier": {
            "value": found.brier.value,
            "reliability": found.brier.reliability,
            "resolution": found.brier.resolution,
            "uncertainty": found.brier.uncertainty,
            "within_bins": found.brier.within_bins,
            "trials": found.brier.trials,
            "reason": found.brier.reason,
        },
        "calibration": [_calibration(found.by_width), _calibration(found.by_mass)],
        "partial_area": ratio_json(found.partial_area),
        "partial_area_standardised": ratio_json(found.partial_area_standardised),
        "expected_costs": [
            {
                "prevalence": point.stakes.prevalence,
                "threshold": point.threshold,
                "cost": point.cost,
            }
            for point in found.costs
        ],
    }


def _calibration(error: CalibrationError) -> Json:
    return {
        "binning": error.binning,
        "value": error.value,
        "reference": error.reference,
        "corrected": error.corrected,
        "largest_gap": error.largest_gap,
        "reason": error.reason,
        "bins": [
            {
                "low": each.low,
                "high": each.high,
                "mean_score": each.mean_score,
                "attack_rate": estimate_json(each.attack_rate),
            }
            for each in error.bins
        ],
    }


def area_json(pair: AreaPair) -> Json:
    """Encode two areas against each other."""
    return {
        "first": pair.first,
        "second": pair.second,
        "difference": difference_json(pair.difference),
    }


def deployment_json(found: DeploymentRates | None) -> Json | None:
    """Encode the rates at the deployment's mix, or null without one."""
    if found is None:
        return None
    return {
        "attack_success_rate": ratio_json(found.attack_success_rate),
        "false_positive_rate": ratio_json(found.false_positive_rate),
        "worth_attacks": found.worth_attacks,
        "worth_benign": found.worth_benign,
    }


def stops_json(found: Sequence[StopVerdict]) -> list[Json]:
    """Encode why a defense was ended early; nothing when it was not."""
    return [
        {
            "rule": each.statement.said,
            "answer": each.answer,
            "groups": each.groups,
            "text": each.sentence,
        }
        for each in found
    ]
