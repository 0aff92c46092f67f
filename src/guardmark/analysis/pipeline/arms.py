"""Everything a report says about guard, model and judge together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.pipeline.card import (
    BASE_PROMPT,
    PROMPT_ROW,
    EndPair,
    GuardRates,
    LegacyCard,
    PipelineCoverage,
    PlaceRates,
    RowBuckets,
    ScopeCard,
    VariantRates,
    count_guard,
    count_legacy,
    enforce_policy,
    estimate_bounds,
    find_ends,
    make_scope_card,
    measure_coverage,
    rate_variants,
    sort_rows,
)
from guardmark.analysis.pipeline.frame import ERROR, NO_GUARD, read_pipeline
from guardmark.analysis.pipeline.judges import (
    CorrectedCard,
    HumanCheck,
    JudgingRates,
    check_against_people,
    correct_card,
    rate_judging,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import Frame
    from guardmark.analysis.pipeline.card import Ends
    from guardmark.analysis.pipeline.frame import PipelineArm, PipelineFrame
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Difference
    from guardmark.store.reader import RecordReader

_INFERRED = "inferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardGain:
    """What an arm changes against the arm without a guard, paired; positive means more."""

    attack_success_rate: Difference  # Difference of the attack success rates at scope `system`.
    over_refusal_rate: Difference  # Difference of the over-refusal rates at scope `system`.


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmAnalysis:
    """Everything said about one arm."""

    name: str  # Name of the guard, or `none`.
    system: ScopeCard  # Card over everything that was asked.
    model: ScopeCard  # Card over what the guard allowed.
    fail_open: EndPair  # Everything without a known end goes the attacker's way.
    fail_closed: EndPair  # Everything without a known end was blocked.
    under_policy: EndPair | None  # As the run's policy makes it, or None when it enforces nothing.
    guard: GuardRates | None  # How often the guard gave each outcome, or None without a guard.
    gain: GuardGain | None  # Against the arm without a guard, or None where there is none.
    coverage: PipelineCoverage
    variants: tuple[VariantRates, ...]
    buckets: tuple[RowBuckets, ...]
    # Attack success rates corrected by labels of people, or None without any.
    corrected: CorrectedCard | None
    judgings: tuple[tuple[str, ScopeCard], ...]  # The system card under every judging, by name.
    legacy: tuple[LegacyCard, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineAnalysis:
    """Everything said about the pipeline of a run."""

    model: str  # Name of the target model.
    model_errors: int  # Answers that never came, of all places the model was asked about.
    arms: tuple[ArmAnalysis, ...]  # One for each, in the order of the configuration.
    judgings: tuple[JudgingRates, ...]  # Of the run first; the cards stand on the first.
    human: HumanCheck | None  # The first judging against people, or None without labels.
    # How labels were come by, where the data say so, and how often.
    label_sources: tuple[tuple[str, int], ...]


def analyse_pipeline(
    reader: RecordReader, frame: Frame, settings: AnalysisSettings
) -> PipelineAnalysis | None:
    """Compute what a report says about a pipeline, from the records alone."""
    pipeline = read_pipeline(reader, frame)
    if pipeline is None:
        return None
    rates, judging = PlaceRates(frame, settings), pipeline.judging
    sources = [str(s.metadata.get("label_source", "")) for s in reader.samples()]
    stated = np.array([not source.startswith(_INFERRED) for source in sources], dtype=np.bool_)
    is_stated = np.tile(stated, frame.manifest.repeats)
    models = [part.name for part in frame.manifest.parts if part.kind == "model"]
    return PipelineAnalysis(
        model=models[0] if models else "model",
        model_errors=int(np.count_nonzero(pipeline.model == ERROR)),
        arms=tuple(_analyse_arm(rates, pipeline, arm, is_stated) for arm in pipeline.arms),
        judgings=tuple(rate_judging(rates, each) for each in pipeline.judgings),
        human=None if judging is None else check_against_people(rates, pipeline, judging),
        label_sources=tuple(sorted(Counter(source for source in sources if source).items())),
    )


def _analyse_arm(
    rates: PlaceRates, pipeline: PipelineFrame, arm: PipelineArm, is_stated: NDArray[np.bool_]
) -> ArmAnalysis:
    judging, manifest = pipeline.judging, pipeline.frame.manifest
    ends = find_ends(arm, judging)
    fail_open, fail_closed = estimate_bounds(rates, arm, judging)
    policies = (manifest.on_malformed, manifest.on_error)
    return ArmAnalysis(
        name=arm.name,
        system=make_scope_card(rates, ends, scope="system"),
        model=make_scope_card(rates, ends, scope="model"),
        fail_open=fail_open,
        fail_closed=fail_closed,
        under_policy=enforce_policy(rates, arm, judging, policies=policies),
        guard=None if arm.name == NO_GUARD else count_guard(rates, arm),
        gain=_gain(rates, pipeline, arm, ends),
        coverage=measure_coverage(rates, pipeline, ends, judging=judging, is_stated=is_stated),
        variants=rate_variants(rates, pipeline, ends),
        buckets=tuple(
            sort_rows(rates, pipeline, ends, unit=unit, is_attack=label)
            for unit in (PROMPT_ROW, BASE_PROMPT)
            for label in (True, False)
        ),
        corrected=None if judging is None else correct_card(rates, pipeline, judging, ends=ends),
        judgings=tuple(
            (each.name, make_scope_card(rates, find_ends(arm, each), scope="system"))
            for each in pipeline.judgings
        ),
        legacy=tuple(
            count_legacy(
                arm.name, ends, definition=definition, scope=scope, is_attack=rates.is_attack
            )
            for definition in rates.settings.legacy_cards
            for scope in ("system", "model")
        ),
    )


def _gain(
    rates: PlaceRates, pipeline: PipelineFrame, arm: PipelineArm, ends: Ends
) -> GuardGain | None:
    """Compare an arm with the arm without a guard, on places whose end is known in both."""
    bare = next((each for each in pipeline.arms if each.name == NO_GUARD), None)
    if bare is None or arm.name == NO_GUARD:
        return None
    other = find_ends(bare, pipeline.judging)
    both, is_attack = ends.is_known & other.is_known, rates.is_attack
    return GuardGain(
        attack_success_rate=rates.difference(ends.is_unsafe, other.is_unsafe, both & is_attack),
        over_refusal_rate=rates.difference(ends.is_refused, other.is_refused, both & ~is_attack),
    )
