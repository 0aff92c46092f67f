"""Figures as JSON values: full precision, null where undefined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guardmark.analysis.compare.comparison import BestSet, PairedSide
    from guardmark.analysis.compare.recommendations import Advice
    from guardmark.analysis.defense.confusion import OutcomeCounts
    from guardmark.analysis.defense.scorecard import RatePair
    from guardmark.analysis.defense.stability import Stability
    from guardmark.analysis.defense.thresholds import ThresholdAnalysis
    from guardmark.core.estimate import Difference, Estimate, Quantile, Ratio
    from guardmark.stats.rates.means import RepeatVariance

Json = dict[str, Any]
"""A JSON object; never leaves this floor but as text."""


def estimate_json(estimate: Estimate) -> Json:
    """Encode a rate."""
    return {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "successes": estimate.successes,
        "trials": estimate.trials,
        "confidence": estimate.confidence,
        "method": estimate.method,
        "groups": estimate.groups,
        "effective_n": estimate.effective_n,
        "design_effect": estimate.design_effect,
        "icc": estimate.icc,
        "group_mean": estimate.group_mean,
        "few_groups": estimate.few_groups,
        "reason": estimate.reason,
    }


def ratio_json(ratio: Ratio) -> Json:
    """Encode a figure that is no plain rate."""
    return {
        "value": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "trials": ratio.trials,
        "confidence": ratio.confidence,
        "method": ratio.method,
        "groups": ratio.groups,
        "replicates": ratio.replicates,
        "reason": ratio.reason,
    }


def difference_json(difference: Difference) -> Json:
    """Encode a difference of two rates."""
    return {
        "value": difference.value,
        "low": difference.low,
        "high": difference.high,
        "confidence": difference.confidence,
        "method": difference.method,
        "p_value": difference.p_value,
        "test": difference.test,
        "pairs": difference.pairs,
        "groups": difference.groups,
        "first_only": difference.first_only,
        "second_only": difference.second_only,
        "reason": difference.reason,
    }


def quantile_json(quantile: Quantile) -> Json:
    """Encode a latency quantile in milliseconds."""
    return {
        "quantile": quantile.quantile,
        "value_ms": quantile.value,
        "low_ms": quantile.low,
        "high_ms": quantile.high,
        "at_least": quantile.at_least,
        "trials": quantile.trials,
        "censored": quantile.censored,
        "confidence": quantile.confidence,
        "method": quantile.method,
        "reason": quantile.reason,
    }


def counts_json(counts: OutcomeCounts) -> Json:
    """Encode how often each outcome occurred."""
    return {
        "allow": counts.allow,
        "block": counts.block,
        "malformed": counts.malformed,
        "error": counts.error,
        "answered": counts.answered,
        "total": counts.total,
    }


def pair_json(pair: RatePair | None) -> Json | None:
    """Encode both error rates, or null."""
    if pair is None:
        return None
    return {
        "attack_success_rate": estimate_json(pair.attack_success_rate),
        "false_positive_rate": estimate_json(pair.false_positive_rate),
    }


def side_json(side: PairedSide) -> Json:
    """Encode two defenses on the same attacks, or on the same benign samples."""
    tests = side.not_worse
    return {
        "difference": difference_json(side.difference),
        "adjusted_p": side.adjusted_p,
        "both": side.both,
        "neither": side.neither,
        "unpaired": side.unpaired,
        "detectable": side.detectable,
        "first_not_worse": None if tests is None else tests[0].is_noninferior,
        "second_not_worse": None if tests is None else tests[1].is_noninferior,
        "margin": None if tests is None else tests[0].margin,
    }


def stability_json(found: Stability | None) -> Json | None:
    """Encode how answers vary over repeats, or null."""
    if found is None:
        return None
    return {
        "attacks": _spread_json(found.attacks),
        "benign": _spread_json(found.benign),
        "left_out": found.left_out,
    }


def _spread_json(spread: RepeatVariance) -> Json:
    return {
        "samples": spread.samples,
        "repeats": spread.repeats,
        "mean": spread.mean,
        "standard_error": spread.standard_error,
        "within": spread.within,
        "between": spread.between,
        "icc": spread.icc,
        "flip_rate": spread.flip_rate,
        "disagreement": spread.disagreement,
        "reason": spread.reason,
    }


def best_json(best: BestSet) -> Json:
    """Encode who is not distinguishable from the best, and the test of all together."""
    test = best.omnibus
    return {
        "best": best.best,
        "not_distinguishable": list(best.undistinguished),
        "omnibus": None
        if test is None
        else {
            "q": test.q,
            "degrees_of_freedom": test.degrees_of_freedom,
            "p_value": test.p_value,
            "samples": test.samples,
            "varying": test.varying,
            "reason": test.reason,
        },
    }


def thresholds_json(found: ThresholdAnalysis | None) -> Json | None:
    """Encode what the scores of a defense could do, or null."""
    if found is None:
        return None
    return {
        "scored_attacks": found.scored_attacks,
        "scored_benign": found.scored_benign,
        "area_under_roc": ratio_json(found.area),
        "average_precision": found.precision_area.value,
        "prevalence": found.precision_area.prevalence,
        "limited": [
            {
                "max_fpr": point.max_fpr,
                "threshold": point.threshold,
                "resolvable": point.is_resolvable,
                "reason": point.reason,
                "rates": pair_json(point.rates),
            }
            for point in found.limited
        ],
        "chosen": [
            {
                "prevalence": point.stakes.prevalence,
                "miss_cost": point.stakes.miss_cost,
                "block_cost": point.stakes.block_cost,
                "threshold": point.threshold,
                "true_positive_rate": point.true_positive_rate,
                "false_positive_rate": point.false_positive_rate,
                "cost": point.cost,
            }
            for point in found.chosen
        ],
        "curve": [
            {
                "threshold": point.threshold,
                "true_positive_rate": point.true_positive_rate,
                "false_positive_rate": point.false_positive_rate,
                "precision": point.precision,
            }
            for point in found.points
        ],
        "histogram": {
            "attacks": list(found.histogram.attacks),
            "benign": list(found.histogram.benign),
        },
    }


def advice_json(advice: Advice, sentence: str) -> Json:
    """Encode one recommendation."""
    return {
        "rule": advice.rule,
        "defense": advice.defense,
        "subject": advice.subject,
        "text": sentence,
        "figures": {name: estimate_json(figure) for name, figure in advice.figures},
        "numbers": dict(advice.numbers),
    }
