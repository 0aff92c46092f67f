"""Reference method names and the functions of guardmark.stats that answer them, first part.

One rate, grouped rates, paired and independent comparisons, multiplicity, planning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.oracles import alternatives

from guardmark.core.estimate import Difference, Estimate
from guardmark.stats import multiplicity
from guardmark.stats.arguments import Counts
from guardmark.stats.paired import intervals, noninferiority, significance
from guardmark.stats.paired.intervals import PairedTable
from guardmark.stats.rates import clustered, proportion
from guardmark.stats.rates.clustered import summarise

Inputs = dict[str, Any]
Figures = dict[str, Any]


def _given(inputs: Inputs, **defaults: Any) -> Inputs:
    """Return optional inputs, the default where one is absent or null."""
    return {
        name: default if inputs.get(name) is None else inputs[name]
        for name, default in defaults.items()
    }


def _bounds(estimate: Estimate) -> Figures:
    return {"value": estimate.value, "lower": estimate.low, "upper": estimate.high}


def _proportion(function: Callable[..., Estimate]) -> Callable[[Inputs], Figures]:
    def answer(inputs: Inputs) -> Figures:
        options = _given(inputs, confidence=0.95)
        return _bounds(function(inputs["successes"], inputs["trials"], **options))

    return answer


def _clustered(function: Callable[..., Estimate]) -> Callable[[Inputs], Figures]:
    def answer(inputs: Inputs) -> Figures:
        estimate = function(
            inputs["cluster_successes"],
            inputs["cluster_sizes"],
            **_given(inputs, confidence=0.95),
        )
        return {
            **_bounds(estimate),
            "p": estimate.value,
            "n_eff": estimate.effective_n,
            "deff_used": estimate.design_effect,
        }

    return answer


def _cluster_summary(inputs: Inputs) -> Figures:
    summary = summarise(inputs["cluster_successes"], inputs["cluster_sizes"])
    return {
        "p": summary.rate,
        "se_cr0": summary.se_cr0,
        "se_cr1": summary.se_cr1,
        "icc_anova": summary.icc,
        "design_effect": summary.design_effect,
        "deff_max": summary.design_effect_limit,
        "df": summary.degrees_of_freedom,
        "group_mean": summary.group_mean,
    }


def _mcnemar(inputs: Inputs) -> Figures:
    test = significance.mcnemar(inputs["first_only"], inputs["second_only"])
    return {
        "p_exact": test.p_exact,
        "p_midp": test.p_midp,
        "p_chi2": test.p_chi2,
        "p_chi2_cc": test.p_chi2_corrected,
    }


def _paired_interval(function: Callable[..., Difference]) -> Callable[[Inputs], Figures]:
    def answer(inputs: Inputs) -> Figures:
        cells = ("both", "first_only", "second_only", "neither")
        table = PairedTable(**{cell: inputs[cell] for cell in cells})
        return _difference(function(table, **_given(inputs, confidence=0.95)))

    return answer


def _difference(estimate: Difference) -> Figures:
    return {
        "difference": estimate.value,
        "lower": estimate.low,
        "upper": estimate.high,
        "p": estimate.p_value,
    }


def _paired_clustered(inputs: Inputs) -> Figures:
    first, second = inputs["cluster_first_only"], inputs["cluster_second_only"]
    check = alternatives.crosscheck_pairs(
        first, second, sizes=inputs["cluster_sizes"], **_given(inputs, confidence=0.95)
    )
    flipped = significance.sign_flip(first, second)
    return {
        "difference": check.difference,
        "se_cr1": check.se_cr1,
        "obuchowski_chi2": check.obuchowski_chi2,
        "obuchowski_p": check.obuchowski_p,
        "durkalski_chi2": check.durkalski_chi2,
        "durkalski_p": check.durkalski_p,
        "ci_t_lower": check.t_low,
        "ci_t_upper": check.t_high,
        "signflip_exact_p": flipped.p_exact,
        "signflip_midp_p": flipped.p_midp,
    }


def _clustered_bonett_price(inputs: Inputs) -> Figures:
    first, second = inputs["cluster_first_only"], inputs["cluster_second_only"]
    sizes = inputs["cluster_sizes"]
    estimate = intervals.clustered_bonett_price(
        first, second, sizes=sizes, **_given(inputs, confidence=0.95)
    )
    counts = intervals.summarise_pairs(first, second, sizes=sizes)
    limits = intervals.grouped_limits(counts, confidence=estimate.confidence)
    alone = replace(estimate, low=limits.low, high=limits.high)
    return {**_difference(alone), "deff_used": counts.design_effect}


def _noninferiority(inputs: Inputs) -> Figures:
    test = noninferiority.noninferiority_tango(
        inputs["first_only"],
        inputs["second_only"],
        pairs=inputs["n"],
        margin=inputs["margin"],
        **_given(inputs, alpha=0.05),
    )
    return {
        "difference": test.difference,
        "p_noninferior": test.p_noninferior,
        "p_tost": test.p_equivalent,
        "lower": test.low,
        "upper": test.high,
    }


def _cochran_q(inputs: Inputs) -> Figures:
    test = multiplicity.cochran_q(inputs["outcomes_rows_are_items"])
    return {"q": test.q, "df": test.degrees_of_freedom, "p": test.p_value}


def _adjusted(function: Callable[..., list[float | None]]) -> Callable[[Inputs], Figures]:
    def answer(inputs: Inputs) -> Figures:
        return {"adjusted": function(inputs["p"])}

    return answer


def _independent(function: Callable[..., Difference]) -> Callable[[Inputs], Figures]:
    def answer(inputs: Inputs) -> Figures:
        first = Counts(inputs["x1"], inputs["n1"])
        second = Counts(inputs["x2"], inputs["n2"])
        return _difference(function(first, second, **_given(inputs, confidence=0.95)))

    return answer


def _half_width(inputs: Inputs) -> Figures:
    options = _given(inputs, confidence=0.95)
    return {"half_width": proportion.wilson_half_width(inputs["p"], inputs["n"], **options)}


def _n_for_half_width(inputs: Inputs) -> Figures:
    options = _given(inputs, confidence=0.95)
    rate = _given(inputs, p=0.5)["p"]
    return {"n": proportion.trials_for_half_width(inputs["half_width"], rate=rate, **options)}


def _n_zero_events(inputs: Inputs) -> Figures:
    options = _given(inputs, confidence=0.95)
    n = math.log1p(-options["confidence"]) / math.log1p(-inputs["upper"])
    return {"n": max(1, math.ceil(n - 1e-9))}


def _mcnemar_normal(inputs: Inputs) -> Figures:
    power = alternatives.mcnemar_power_normal(
        inputs["p_small"], inputs["p_large"], pairs=inputs["n"], **_given(inputs, alpha=0.05)
    )
    return {"power": power}


def _mcnemar_enumerated(inputs: Inputs) -> Figures:
    sides = (inputs["p_small"], inputs["p_large"])
    options = {"pairs": inputs["n"], **_given(inputs, alpha=0.05)}
    return {
        "power_exact": alternatives.mcnemar_power(*sides, form="exact", **options),
        "power_midp": alternatives.mcnemar_power(*sides, **options),
    }


METHODS: dict[str, Callable[[Inputs], Figures]] = {
    "proportion.wilson": _proportion(proportion.wilson),
    "proportion.wilson_cc": _proportion(alternatives.wilson_cc),
    "proportion.clopper_pearson": _proportion(proportion.clopper_pearson),
    "proportion.clopper_pearson_upper": _proportion(alternatives.clopper_pearson_upper),
    "proportion.clopper_pearson_lower": _proportion(alternatives.clopper_pearson_lower),
    "proportion.jeffreys": _proportion(alternatives.jeffreys),
    "clustered.summary": _cluster_summary,
    "clustered.wilson_default": _clustered(clustered.wilson_default),
    "clustered.survey_logit": _clustered(alternatives.survey_logit),
    "clustered.survey_beta": _clustered(alternatives.survey_beta),
    "paired.mcnemar": _mcnemar,
    "paired.diff_newcombe10": _paired_interval(alternatives.newcombe10),
    "paired.diff_tango": _paired_interval(intervals.tango),
    "paired.diff_bonett_price": _paired_interval(intervals.bonett_price),
    "paired.clustered": _paired_clustered,
    "paired.clustered_bonett_price_default": _clustered_bonett_price,
    "paired.noninferiority_tango": _noninferiority,
    "paired.cochran_q": _cochran_q,
    "independent.diff_newcombe": _independent(alternatives.newcombe),
    "independent.diff_miettinen_nurminen": _independent(alternatives.miettinen_nurminen),
    "multiplicity.bonferroni": _adjusted(alternatives.bonferroni),
    "multiplicity.holm": _adjusted(multiplicity.holm),
    "multiplicity.hochberg": _adjusted(alternatives.hochberg),
    "multiplicity.bh": _adjusted(alternatives.benjamini_hochberg),
    "multiplicity.by": _adjusted(alternatives.benjamini_yekutieli),
    "power.wilson_half_width": _half_width,
    "power.n_for_half_width": _n_for_half_width,
    "power.n_zero_events": _n_zero_events,
    "power.mcnemar_normal": _mcnemar_normal,
    "power.mcnemar_enumerated": _mcnemar_enumerated,
}
