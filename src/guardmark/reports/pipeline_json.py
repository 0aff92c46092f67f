"""The pipeline's figures as JSON values, for `summary.json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from guardmark.analysis.pipeline.legacy import NOTES
from guardmark.reports.chapters.pipeline_trust import warnings_of
from guardmark.reports.encode import Json, difference_json, estimate_json, ratio_json

if TYPE_CHECKING:
    from guardmark.analysis.pipeline.arms import ArmAnalysis, PipelineAnalysis
    from guardmark.analysis.pipeline.card import EndPair, GuardRates, PipelineCoverage, ScopeCard
    from guardmark.analysis.pipeline.judges import CorrectedCard, HumanCheck, JudgingRates
    from guardmark.analysis.pipeline.legacy import LegacyCard
    from guardmark.analysis.pipeline.rows import RowBuckets, VariantRates


def pipeline_json(pipeline: PipelineAnalysis | None) -> Json | None:
    """Encode what is said about the pipeline of a run, or null without one."""
    if pipeline is None:
        return None
    return {
        "model": pipeline.model,
        "model_errors": pipeline.model_errors,
        "arms": [_arm(arm) for arm in pipeline.arms],
        "judgings": [_judging(judging) for judging in pipeline.judgings],
        "human": _human(pipeline.human),
        "label_sources": dict(pipeline.label_sources),
        "warnings": list(warnings_of(pipeline)),
    }


def _arm(arm: ArmAnalysis) -> Json:
    return {
        "name": arm.name,
        "system": _scope(arm.system),
        "model": _scope(arm.model),
        "bounds": {"fail_open": _pair(arm.fail_open), "fail_closed": _pair(arm.fail_closed)},
        "under_policy": _pair(arm.under_policy),
        "guard": _guard(arm.guard),
        "gain": None
        if arm.gain is None
        else {
            "attack_success_rate": difference_json(arm.gain.attack_success_rate),
            "over_refusal_rate": difference_json(arm.gain.over_refusal_rate),
        },
        "coverage": _coverage(arm.coverage),
        "variants": [_variant(each) for each in arm.variants],
        "buckets": [_bucket(each) for each in arm.buckets],
        "corrected": _corrected(arm.corrected),
        "judgings": {name: _scope(card) for name, card in arm.judgings},
        "legacy": [_legacy(card) for card in arm.legacy],
    }


def _scope(card: ScopeCard) -> Json:
    return {
        "scope": card.scope,
        "attack_success_rate": estimate_json(card.attack_success_rate),
        "over_refusal_rate": estimate_json(card.over_refusal_rate),
        "harmful_help_rate": estimate_json(card.harmful_help_rate),
        "benign_unsafe_rate": estimate_json(card.benign_unsafe_rate),
        "balanced_error": ratio_json(card.balanced_error),
    }


def _pair(pair: EndPair | None) -> Json | None:
    if pair is None:
        return None
    return {
        "attack_success_rate": estimate_json(pair.attack_success_rate),
        "over_refusal_rate": estimate_json(pair.over_refusal_rate),
    }


def _guard(guard: GuardRates | None) -> Json | None:
    if guard is None:
        return None
    return {
        "allow": estimate_json(guard.allow),
        "block": estimate_json(guard.block),
        "malformed": estimate_json(guard.malformed),
        "error": estimate_json(guard.error),
    }


def _coverage(coverage: PipelineCoverage) -> Json:
    return {
        "labelled": estimate_json(coverage.labelled),
        "known": estimate_json(coverage.known),
        "model_answered": estimate_json(coverage.model_answered),
        "judge_valid": estimate_json(coverage.judge_valid),
        "judge_malformed": estimate_json(coverage.judge_malformed),
        "judge_error": estimate_json(coverage.judge_error),
        "model_evaluable": estimate_json(coverage.model_evaluable),
    }


def _variant(variant: VariantRates) -> Json:
    return {
        "variant": variant.variant,
        "attack_success_rate": estimate_json(variant.attack_success_rate),
        "over_refusal_rate": estimate_json(variant.over_refusal_rate),
        "allowed": estimate_json(variant.allowed),
    }


def _bucket(bucket: RowBuckets) -> Json:
    return {
        "unit": bucket.unit,
        "label": "attack" if bucket.is_attack else "benign",
        "fully_safe": estimate_json(bucket.fully_safe),
        "partially_unsafe": estimate_json(bucket.partially_unsafe),
        "consistently_unsafe": estimate_json(bucket.consistently_unsafe),
        "unknown": bucket.unknown,
    }


def _corrected(card: CorrectedCard | None) -> Json | None:
    if card is None:
        return None
    return {"system": asdict(card.system), "model": asdict(card.model)}


def _judging(judging: JudgingRates) -> Json:
    return {
        "name": judging.name,
        "tied": judging.tied,
        "agreement": None if judging.agreement is None else asdict(judging.agreement),
        "judges": [
            {
                "name": judge.name,
                "layer": judge.layer,
                "unsafe": estimate_json(judge.unsafe),
                "valid": estimate_json(judge.valid),
                "malformed": estimate_json(judge.malformed),
                "error": estimate_json(judge.error),
                "without_mode": judge.without_mode,
            }
            for judge in judging.judges
        ],
    }


def _human(human: HumanCheck | None) -> Json | None:
    if human is None:
        return None
    return {
        "caught": human.labels.caught,
        "missed": human.labels.missed,
        "accused": human.labels.accused,
        "cleared": human.labels.cleared,
        "unreadable": human.unreadable,
        "sensitivity": estimate_json(human.sensitivity),
        "specificity": estimate_json(human.specificity),
        "kappa": asdict(human.kappa),
    }


def _legacy(card: LegacyCard) -> Json:
    return {
        "definition": card.definition,
        "note": NOTES[card.definition],
        "scope": card.scope,
        "true_positives": card.true_positives,
        "false_positives": card.false_positives,
        "true_negatives": card.true_negatives,
        "false_negatives": card.false_negatives,
        "precision": card.precision,
        "recall": card.recall,
        "f1": card.f1,
        "false_positive_rate": card.false_positive_rate,
        "false_negative_rate": card.false_negative_rate,
        "balanced_error": card.balanced_error,
    }
