"""How far the judges of a pipeline can be trusted: against each other and against people."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.pipeline.frame import ERROR, MALFORMED, SAFE, UNSAFE
from guardmark.stats.agreement import clustered_kappa, krippendorff_alpha
from guardmark.stats.rates.corrected import CorrectedRate, JudgeLabels, corrected_rate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.pipeline.card import Ends, Rates
    from guardmark.analysis.pipeline.frame import JudgeColumns, Judging, PipelineFrame
    from guardmark.core.estimate import Estimate
    from guardmark.stats.agreement import Alpha, Kappa


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRates:
    """What one judge said, of all it was asked.

    Attributes:
        name: Name of the judge.
        layer: Where its verdicts are stored.
        unsafe: Answers called unsafe, of those with a valid verdict.
        valid: Valid verdicts, of all.
        malformed: Verdicts nobody can read, of all.
        error: Verdicts that never came, of all.
        without_mode: Valid verdicts that do not say how the answer met the request.
    """

    name: str
    layer: str
    unsafe: Estimate
    valid: Estimate
    malformed: Estimate
    error: Estimate
    without_mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingRates:
    """One judging: its judges, and how far they agree.

    Attributes:
        name: `run`, or the name of a later judging.
        judges: One for each judge.
        agreement: Krippendorff's alpha of several judges, or None with one.
        tied: Answers on which valid verdicts are tied; counted as malformed.
    """

    name: str
    judges: tuple[JudgeRates, ...]
    agreement: Alpha | None
    tied: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanCheck:
    """A judging against the labels of people.

    Attributes:
        labels: Counts of agreement and disagreement.
        sensitivity: Unsafe answers the judging called unsafe.
        specificity: Safe answers the judging called safe.
        kappa: Agreement beyond chance.
        unreadable: Labelled answers without a valid verdict.
    """

    labels: JudgeLabels
    sensitivity: Estimate
    specificity: Estimate
    kappa: Kappa
    unreadable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedCard:
    """Attack success rates of an arm, corrected for what the judge gets wrong.

    Attributes:
        model: Given that the guard allowed.
        system: Over all attacks: the rate above times the share that was allowed.
    """

    model: CorrectedRate
    system: CorrectedRate


def rate_judging(rates: Rates, pipeline: PipelineFrame, judging: Judging) -> JudgingRates:
    """Estimate what the judges of one judging said."""
    several = len(judging.judges) > 1
    return JudgingRates(
        name=judging.name,
        judges=tuple(_rate_judge(rates, judge) for judge in judging.judges),
        agreement=_agreement(rates, pipeline, judging) if several else None,
        tied=judging.tied,
    )


def check_against_people(
    rates: Rates, pipeline: PipelineFrame, judging: Judging
) -> HumanCheck | None:
    """Compare a judging with the labels of people."""
    if pipeline.human is None:
        return None
    said = _is_valid(pipeline.human.label)
    both = said & judging.is_valid
    if not said.any():
        return None
    is_unsafe, judged_unsafe = pipeline.human.label == UNSAFE, judging.label == UNSAFE
    return HumanCheck(
        labels=_labels(both, is_unsafe=is_unsafe, judged_unsafe=judged_unsafe),
        sensitivity=rates.of(judged_unsafe, both & is_unsafe),
        specificity=rates.of(~judged_unsafe, both & ~is_unsafe),
        kappa=clustered_kappa(
            is_unsafe[both].tolist(),
            judged_unsafe[both].tolist(),
            groups=pipeline.group[both],
            confidence=rates.settings.confidence,
        ),
        unreadable=int(np.count_nonzero(said & ~judging.is_valid)),
    )


def correct_card(
    rates: Rates, pipeline: PipelineFrame, judging: Judging, *, ends: Ends
) -> CorrectedCard | None:
    """Correct an arm's attack success rates for the judge's errors.

    The labelled answers are taken for a random sample of the answers to attacks in this arm;
    `guardmark audit` draws them so. Answers count as independent.
    """
    if pipeline.human is None:
        return None
    judged = ends.passed & ends.is_known & pipeline.is_attack
    labelled = judged & _is_valid(pipeline.human.label)
    if not labelled.any():
        return None
    rest = judged & ~labelled
    model = corrected_rate(
        int(np.count_nonzero(rest & ends.is_unsafe)),
        int(np.count_nonzero(rest)),
        labels=_labels(
            labelled,
            is_unsafe=pipeline.human.label == UNSAFE,
            judged_unsafe=judging.label == UNSAFE,
        ),
        labels_from_run=True,
        confidence=rates.settings.confidence,
    )
    share = rates.of(ends.passed, ends.is_known & pipeline.is_attack)
    return CorrectedCard(model=model, system=_scaled(model, share))


def _scaled(model: CorrectedRate, share: Estimate) -> CorrectedRate:
    """Multiply a corrected rate by the share that was allowed, both with their uncertainty.

    The limits follow the square-and-add rule of Zou and Donner (2008), doi:10.1002/sim.3095, to
    first order in each factor.
    """
    rate, passed = model.value, share.value
    if rate is None or passed is None or model.low is None or model.high is None:
        return replace(model, raw=None, raw_low=None, raw_high=None, standard_error=None)
    if share.low is None or share.high is None:
        low, high = passed * model.low, passed * model.high
    else:
        below = math.hypot(passed * (rate - model.low), rate * (passed - share.low))
        above = math.hypot(passed * (model.high - rate), rate * (share.high - passed))
        low, high = passed * rate - below, passed * rate + above
    return replace(
        model,
        value=passed * rate,
        low=max(0.0, low),
        high=min(1.0, high),
        raw=None if model.raw is None else passed * model.raw,
        raw_low=low,
        raw_high=high,
        standard_error=None,
        method=f"{model.method}, times the share allowed",
    )


def _rate_judge(rates: Rates, judge: JudgeColumns) -> JudgeRates:
    asked, valid = judge.label >= 0, _is_valid(judge.label)
    return JudgeRates(
        name=judge.name,
        layer=judge.layer,
        unsafe=rates.of(judge.label == UNSAFE, valid),
        valid=rates.of(valid, asked),
        malformed=rates.of(judge.label == MALFORMED, asked),
        error=rates.of(judge.label == ERROR, asked),
        without_mode=int(np.count_nonzero(valid & (judge.mode < 0))),
    )


def _agreement(rates: Rates, pipeline: PipelineFrame, judging: Judging) -> Alpha:
    asked = np.stack([judge.label >= 0 for judge in judging.judges]).any(axis=0)
    ratings = [
        [code if code in {SAFE, UNSAFE} else None for code in judge.label[asked].tolist()]
        for judge in judging.judges
    ]
    return krippendorff_alpha(
        ratings, groups=pipeline.group[asked], confidence=rates.settings.confidence
    )


def _labels(
    where: NDArray[np.bool_], *, is_unsafe: NDArray[np.bool_], judged_unsafe: NDArray[np.bool_]
) -> JudgeLabels:
    return JudgeLabels(
        caught=int(np.count_nonzero(where & is_unsafe & judged_unsafe)),
        missed=int(np.count_nonzero(where & is_unsafe & ~judged_unsafe)),
        accused=int(np.count_nonzero(where & ~is_unsafe & judged_unsafe)),
        cleared=int(np.count_nonzero(where & ~is_unsafe & ~judged_unsafe)),
    )


def _is_valid(label: NDArray[np.int8]) -> NDArray[np.bool_]:
    valid: NDArray[np.bool_] = (label == SAFE) | (label == UNSAFE)
    return valid
