"""Reference methods of scores, judges, agreement, early stopping, latency and attackers.

Each function hands the inputs of a case to public functions of `guardmark.stats` and returns the
figures under the names a case uses. A refusal (`ValueError`) reads as undefined figures: a
reference file says null where a figure cannot be given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tests.oracles.alternatives import harrell_davis, ppi_mean

from guardmark.stats.agreement import cohen_kappa, krippendorff_alpha
from guardmark.stats.attempts.survival import attack_success_at, kaplan_meier
from guardmark.stats.quantiles import quantile_ranks
from guardmark.stats.rates.clustered import EffectiveCounts, wilson_default_rows
from guardmark.stats.rates.corrected import JudgeLabels, rogan_gladen
from guardmark.stats.rates.means import decompose_repeats
from guardmark.stats.rates.predictive import predictive_values
from guardmark.stats.scores.auc import auc, compare_auc
from guardmark.stats.scores.calibration import brier, calibration_error
from guardmark.stats.scores.curve_areas import average_precision, partial_auc, standardise_area
from guardmark.stats.scores.thresholds import tpr_at_fpr
from guardmark.stats.sequential import beta_mixture_sequence, mcnemar_e_value

Inputs = dict[str, Any]
Figures = dict[str, Any]
Method = Callable[[Inputs], Figures]

METHODS: dict[str, Method] = {}


def _answers(name: str, *keys: str) -> Callable[[Method], Method]:
    """Enter a function under a method name; refused inputs leave all its figures undefined."""

    def enter(function: Method) -> Method:
        @wraps(function)
        def answer(inputs: Inputs) -> Figures:
            try:
                return function(inputs)
            except ValueError:
                return dict.fromkeys(keys)

        METHODS[name] = answer
        return answer

    return enter


def _confidence(inputs: Inputs) -> float:
    if inputs.get("alpha") is not None:
        return 1 - float(inputs["alpha"])
    return 0.95 if inputs.get("confidence") is None else float(inputs["confidence"])


def _given(inputs: Inputs, name: str, default: float) -> float:
    """Return an optional input, the default where it is absent or null."""
    return default if inputs.get(name) is None else inputs[name]


@_answers(
    "roc.summary",
    "auc", "se_delong", "average_precision", "pauc_fpr_0_0.2_raw", "pauc_mcclish", "brier",
)  # fmt: skip
def _roc_summary(inputs: Inputs) -> Figures:
    y, score = inputs["y"], inputs["score"]
    area = auc(y, score)
    return {
        "auc": area.ratio.value,
        "se_delong": area.standard_error,
        "average_precision": average_precision(y, score).value,
        "pauc_fpr_0_0.2_raw": partial_auc(y, score, max_fpr=0.2).value,
        "pauc_mcclish": standardise_area(partial_auc(y, score, max_fpr=0.2), max_fpr=0.2).value,
        "brier": brier(y, score).value,
    }


@_answers("roc.tpr_at_fpr", "tpr", "fpr", "threshold")
def _tpr_at_fpr(inputs: Inputs) -> Figures:
    found = tpr_at_fpr(inputs["y"], inputs["score"], max_fpr=inputs["max_fpr"])
    return {"tpr": found.tpr, "fpr": found.fpr, "threshold": found.threshold}


@_answers("roc.delong_paired", "auc_a", "auc_b", "z", "p")
def _delong_paired(inputs: Inputs) -> Figures:
    found = compare_auc(inputs["y"], inputs["score_a"], second=inputs["score_b"])
    return {
        "auc_a": found.first,
        "auc_b": found.second,
        "z": found.z,
        "p": found.difference.p_value,
    }


@_answers("calibration.ece_equal_width", "ece")
def _ece(inputs: Inputs) -> Figures:
    found = calibration_error(inputs["y"], inputs["score"], bins=int(_given(inputs, "bins", 10)))
    return {"ece": found.value}


@_answers("judge.rogan_gladen", "raw_estimate", "estimate", "lower", "upper")
def _rogan_gladen(inputs: Inputs) -> Figures:
    labels = JudgeLabels(
        caught=inputs["se_successes"],
        missed=inputs["se_n"] - inputs["se_successes"],
        accused=inputs["sp_n"] - inputs["sp_successes"],
        cleared=inputs["sp_successes"],
    )
    found = rogan_gladen(
        inputs["judged_positive"], inputs["n"], labels=labels, confidence=_confidence(inputs)
    )
    return {
        "raw_estimate": found.raw,
        "estimate": found.value,
        "lower": found.low,
        "upper": found.high,
    }


def _ppi(inputs: Inputs, *, tuned: bool) -> Figures:
    labels = JudgeLabels(
        caught=inputs["labelled_true1_judge1"],
        missed=inputs["labelled_true1_judge0"],
        accused=inputs["labelled_true0_judge1"],
        cleared=inputs["labelled_true0_judge0"],
    )
    found = ppi_mean(
        inputs["unlabelled_judge1"],
        inputs["unlabelled_judge1"] + inputs["unlabelled_judge0"],
        labels=labels,
        tuned=tuned,
        confidence=_confidence(inputs),
    )
    return {
        "lambda": found.tuning,
        "estimate": found.raw,
        "se": found.standard_error,
        "lower": found.raw_low,
        "upper": found.raw_high,
    }


@_answers("judge.ppi_mean", "estimate", "se", "lower", "upper")
def _ppi_mean(inputs: Inputs) -> Figures:
    return _ppi(inputs, tuned=False)


@_answers("judge.ppi_plus_mean", "lambda", "estimate", "se", "lower", "upper")
def _ppi_plus_mean(inputs: Inputs) -> Figures:
    return _ppi(inputs, tuned=True)


@_answers("agreement.cohen_kappa", "kappa", "se", "observed_agreement", "pabak")
def _cohen_kappa(inputs: Inputs) -> Figures:
    found = cohen_kappa(
        [[inputs["both_yes"], inputs["yes_no"]], [inputs["no_yes"], inputs["both_no"]]]
    )
    return {
        "kappa": found.value,
        "se": found.standard_error,
        "observed_agreement": found.observed,
        "pabak": found.pabak,
    }


@_answers("agreement.krippendorff_nominal", "alpha")
def _krippendorff(inputs: Inputs) -> Figures:
    return {"alpha": krippendorff_alpha(inputs["ratings"]).value}


@_answers("sequential.beta_mixture_cs", "lower", "upper")
def _beta_mixture(inputs: Inputs) -> Figures:
    found = beta_mixture_sequence(
        inputs["successes"],
        inputs["trials"],
        confidence=_confidence(inputs),
        prior_a=_given(inputs, "prior_a", 0.5),
        prior_b=_given(inputs, "prior_b", 0.5),
    )
    return {"lower": found.low, "upper": found.high}


@_answers("sequential.mcnemar_evalue", "e_value")
def _mcnemar_e_value(inputs: Inputs) -> Figures:
    found = mcnemar_e_value(
        inputs["first_only"],
        inputs["second_only"],
        prior_a=_given(inputs, "prior_a", 0.5),
        prior_b=_given(inputs, "prior_b", 0.5),
    )
    return {"e_value": found.e_value}


@_answers("latency.quantile_ci_ranks", "lower_rank", "upper_rank")
def _quantile_ranks(inputs: Inputs) -> Figures:
    found = quantile_ranks(inputs["n"], inputs["quantile"], confidence=_confidence(inputs))
    return {"lower_rank": found.lower, "upper_rank": found.upper}


@_answers("latency.harrell_davis", "estimates")
def _harrell_davis(inputs: Inputs) -> Figures:
    return {"estimates": [harrell_davis(inputs["values"], q) for q in inputs["quantiles"]]}


@_answers("adaptive.asr_at_k", "value")
def _asr_at_k(inputs: Inputs) -> Figures:
    return {"value": attack_success_at([inputs["n"]], [inputs["successes"]], k=inputs["k"]).value}


@_answers("adaptive.kaplan_meier", "time", "survival", "lower", "upper")
def _kaplan_meier(inputs: Inputs) -> Figures:
    points = kaplan_meier(
        inputs["queries"], inputs["bypassed"], confidence=_confidence(inputs)
    ).points
    return {
        "time": [point.time for point in points],
        "survival": [point.survival for point in points],
        "lower": [point.low for point in points],
        "upper": [point.high for point in points],
    }


@_answers("repeats.variance_decomposition", "mean", "se", "within_var", "between_var")
def _repeats(inputs: Inputs) -> Figures:
    found = decompose_repeats(inputs["successes"], repeats=inputs["repeats"])
    return {
        "mean": found.mean,
        "se": found.standard_error,
        "within_var": found.within,
        "between_var": found.between,
    }


@_answers("prevalence.ppv_npv", "ppv", "npv", "ppv_lower", "ppv_upper", "npv_lower", "npv_upper")
def _predictive(inputs: Inputs) -> Figures:
    found = predictive_values(
        EffectiveCounts.of(wilson_default_rows(inputs["tp"], inputs["attacks"])),
        EffectiveCounts.of(wilson_default_rows(inputs["fp"], inputs["benign"])),
        prevalence=inputs["prevalence"],
        confidence=_confidence(inputs),
    )
    return {
        "ppv": found.positive.value,
        "npv": found.negative.value,
        "ppv_lower": found.positive.low,
        "ppv_upper": found.positive.high,
        "npv_lower": found.negative.low,
        "npv_upper": found.negative.high,
    }


TABLE = METHODS
