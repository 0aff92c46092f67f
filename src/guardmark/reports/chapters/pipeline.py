"""Guard, model and judge together: three cards, and what stands behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.chapters.pipeline_trust import trust_blocks, warnings_of
from guardmark.reports.document.blocks import Bullets, Paragraph, Row, Section, Table, Tone
from guardmark.reports.document.cells import (
    columns,
    counts,
    name,
    of_estimate,
    row,
    slug,
)
from guardmark.reports.document.wording import count_text, measure_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.pipeline.arms import ArmAnalysis, PipelineAnalysis
    from guardmark.analysis.pipeline.card import EndPair, ScopeCard
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.estimate import Estimate
    from guardmark.reports.document.blocks import Block

CARD_TABLES = ("pipeline-system", "pipeline-model", "pipeline-defense")
"""Ids of the three cards."""

_RATES = {
    "Attack success": "attacks to which an unsafe answer came out",
    "Over-refusal": "benign samples that were blocked, refused or not answered",
    "Harmful help": "attacks to which an unsafe answer met the request",
    "Unsafe to benign": "benign samples to which an unsafe answer came out",
    "Balanced error": "mean of attack success and over-refusal rate",
}


def write(analysis: RunAnalysis) -> Section | None:
    """Write the section on the pipeline, or nothing when no model was asked."""
    pipeline = analysis.pipeline
    if pipeline is None:
        return None
    blocks: list[Block] = [
        Bullets(lines=tuple(f"{arm.name}: {_arm_sentence(arm)}" for arm in pipeline.arms)),
        *_shared(analysis.manifest.shared_answers),
        _scope_table(
            pipeline.arms,
            scope="system",
            note="Over everything whose end is known: blocked, or answered and judged. A blocked "
            "attack did no harm; a blocked benign sample was refused.",
        ),
        _scope_table(
            pipeline.arms,
            scope="model",
            note="Given that the guard allowed: how the target model does on what reaches it.",
        ),
        _guard_table(analysis, pipeline),
    ]
    warnings = warnings_of(pipeline)
    if warnings:
        blocks.append(Bullets(lines=warnings, tone=Tone.WARNING))
    gains = _gain_table(pipeline.arms)
    if gains is not None:
        blocks.append(gains)
    blocks.append(_bounds_table(pipeline.arms))
    blocks.append(_bucket_table(pipeline.arms))
    blocks.extend(_variant_table(arm) for arm in pipeline.arms if len(arm.variants) > 1)
    blocks.extend(trust_blocks(pipeline))
    return Section(id="pipeline", title=_title(pipeline), blocks=tuple(blocks))


def _shared(arms: Sequence[str]) -> tuple[Block, ...]:
    if not arms:
        return ()
    told = f"{', '.join(arms[:-1])} and {arms[-1]}"
    return (
        Paragraph(
            text="Each answer of the target model was generated once and serves the arms "
            f"{told}; what differs between them is the guard."
        ),
    )


def _arm_sentence(arm: ArmAnalysis) -> str:
    """Say in one sentence what comes out of an arm."""
    harm, refused = arm.system.attack_success_rate, arm.system.over_refusal_rate
    unknown = arm.coverage.known.trials - arm.coverage.known.successes
    return (
        f"{_share(harm)} of {count_text(harm.trials)} attacks got an unsafe answer, "
        f"{_share(refused)} of {count_text(refused.trials)} benign samples were blocked, refused "
        f"or not answered; {count_text(unknown)} without a known end"
    )


def _share(estimate: Estimate) -> str:
    return measure_text(of_estimate(estimate))


def _title(pipeline: PipelineAnalysis) -> str:
    return f"Pipeline: guard, {pipeline.model}, judge"


def _scope_table(arms: Sequence[ArmAnalysis], *, scope: str, note: str) -> Table:
    rows = []
    for arm in arms:
        card: ScopeCard = arm.system if scope == "system" else arm.model
        known = card.attack_success_rate.trials + card.over_refusal_rate.trials
        rows.append(
            row(
                name(arm.name),
                card.attack_success_rate,
                card.over_refusal_rate,
                card.harmful_help_rate,
                card.benign_unsafe_rate,
                card.balanced_error,
                known,
            )
        )
    title = "System: what comes out" if scope == "system" else "Model, given that the guard allows"
    return Table(
        id=f"pipeline-{scope}",
        title=title,
        columns=columns(
            *("Arm", *_RATES, "Known"),
            meanings={**_RATES, "Known": "samples whose end is known at this scope"},
        ),
        rows=tuple(rows),
        note=note,
    )


def _guard_table(analysis: RunAnalysis, pipeline: PipelineAnalysis) -> Table:
    cards = {each.name: each.card for each in analysis.defenses}
    rows = []
    for arm in pipeline.arms:
        if arm.guard is None:
            continue
        card = cards[arm.name]
        rows.append(
            row(
                name(arm.name),
                card.attack_success_rate,
                card.false_positive_rate,
                arm.guard.allow,
                arm.guard.block,
                arm.guard.malformed,
                arm.guard.error,
            )
        )
    others = ("Allows", "Blocks", "Malformed", "Errors")
    return Table(
        id="pipeline-defense",
        title="Defense: what the guard decides",
        columns=columns(
            *("Guard", "ASR", "FPR", *others),
            meanings={
                "ASR": "attacks the guard allowed, of those it decided",
                "FPR": "benign samples the guard blocked, of those it decided",
                **dict.fromkeys(others, "of all it was asked"),
            },
        ),
        rows=tuple(rows),
        note="" if rows else "The run has no guard.",
    )


def _gain_table(arms: Sequence[ArmAnalysis]) -> Table | None:
    rows = tuple(
        row(name(arm.name), arm.gain.attack_success_rate, arm.gain.over_refusal_rate)
        for arm in arms
        if arm.gain is not None
    )
    if not rows:
        return None
    return Table(
        id="pipeline-gain",
        title="What a guard changes against no guard, paired",
        columns=columns("Guard", "Attack success", "Over-refusal"),
        rows=rows,
        note="Both arms see the same answers of the model; negative means less.",
    )


def _bounds_table(arms: Sequence[ArmAnalysis]) -> Table:
    rows = []
    for arm in arms:
        known = (arm.system.attack_success_rate, arm.system.over_refusal_rate)
        rows.append(_pair_row(arm.name, "known ends (headline)", known))
        for label, pair in (
            ("under the run's policy", arm.under_policy),
            ("fail-open: unknown ends go the attacker's way", arm.fail_open),
            ("fail-closed: unknown ends were blocked", arm.fail_closed),
        ):
            if pair is not None:
                rows.append(_pair_row(arm.name, label, _rates(pair)))
    return Table(
        id="pipeline-bounds",
        title="How far the rates could move",
        columns=columns(
            *("Arm", "Reading", "Attack success", "Counts", "Over-refusal", "Counts"),
            texts=("Reading",),
        ),
        rows=tuple(rows),
        collapsed=True,
    )


def _rates(pair: EndPair) -> tuple[Estimate, Estimate]:
    return pair.attack_success_rate, pair.over_refusal_rate


def _pair_row(arm: str, label: str, pair: tuple[Estimate, Estimate]) -> Row:
    harm, refused = of_estimate(pair[0]), of_estimate(pair[1])
    return row(name(arm), label, harm, counts(harm), refused, counts(refused))


def _bucket_table(arms: Sequence[ArmAnalysis]) -> Table:
    rows = tuple(
        row(
            name(arm.name),
            f"{bucket.unit}, {'attack' if bucket.is_attack else 'benign'}",
            bucket.fully_safe,
            bucket.partially_unsafe,
            bucket.consistently_unsafe,
            bucket.fully_safe.trials,
        )
        for arm in arms
        for bucket in arm.buckets
        if bucket.fully_safe.trials
    )
    return Table(
        id="pipeline-buckets",
        title="Once or always: prompt rows over repeats, base prompts over variants",
        columns=columns(
            *("Arm", "Unit", "Fully safe", "Partially unsafe", "Consistently unsafe", "Units"),
            texts=("Unit",),
        ),
        rows=rows,
        note="Only known ends count; a unit without any is left out.",
        collapsed=True,
    )


def _variant_table(arm: ArmAnalysis) -> Table:
    rows = []
    for each in arm.variants:
        harm, refused = of_estimate(each.attack_success_rate), of_estimate(each.over_refusal_rate)
        cells = (
            name(each.variant),
            harm,
            counts(harm),
            refused,
            counts(refused),
            of_estimate(each.allowed),
        )
        rows.append(row(*cells, greyed=harm.greyed or refused.greyed))
    return Table(
        id=f"pipeline-variants-{slug(arm.name)}",
        title=f"{arm.name}: by variant, scope system",
        columns=columns(
            "Variant", "Attack success", "Counts", "Over-refusal", "Counts", "Let through"
        ),
        rows=tuple(rows),
        collapsed=True,
    )
