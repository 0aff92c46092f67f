"""Guard, model and judge together: three cards, and what stands behind them."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

from guardmark.analysis.pipeline.card import NOTES, RESPONSE_UNSAFE
from guardmark.reports.document.blocks import (
    Bullets,
    Document,
    Paragraph,
    Section,
    Table,
    Tone,
    Unit,
    section,
)
from guardmark.reports.document.cells import (
    figure,
    grey,
    name,
    rate_text,
    slug,
    table_of,
    with_counts,
)
from guardmark.reports.document.wording import count_text, percent_text, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.defense.scorecard import Scorecard
    from guardmark.analysis.pipeline.arms import ArmAnalysis, PipelineAnalysis
    from guardmark.analysis.pipeline.card import EndPair, LegacyCard, ScopeCard, VariantRates
    from guardmark.analysis.pipeline.judges import HumanCheck, JudgeQuality
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Block
    from guardmark.reports.document.cells import Value

CARD_TABLES: Final = ("pipeline-system", "pipeline-model", "pipeline-defense")
"""Ids of the three cards."""

_MALFORMED_ENOUGH: Final = 0.01
_INFERRED: Final = "inferred"
_OF_ANSWERS: Final = "of all answers in this arm"


def write(analysis: RunAnalysis) -> Section | None:
    """Write the section on the pipeline, or nothing when no model was asked."""
    pipeline = analysis.pipeline
    if pipeline is None:
        return None
    arms, human = pipeline.arms, pipeline.human
    blocks = (
        _shared(analysis.manifest.shared_answers),
        _scope_table(
            [(arm.name, arm.system) for arm in arms],
            title="System: what comes out",
            note="Over everything whose end is known: blocked, or answered and judged. A blocked "
            "attack did no harm; a blocked benign sample was refused.",
        ),
        _scope_table(
            [(arm.name, arm.model) for arm in arms],
            title="Model, given that the guard allows",
            note="Given that the guard allowed: how the target model does on what reaches it.",
        ),
        _guard_table(arms, {each.name: each.card for each in analysis.defenses}),
        Bullets(lines=warnings_of(pipeline), tone=Tone.WARNING),
        _gain_table(arms) if any(arm.gain is not None for arm in arms) else None,
        _bounds_table(arms),
        _bucket_table(arms),
        *(_variant_table(arm) for arm in arms if len(arm.variants) > 1),
        _coverage_table(arms),
        _judge_table(pipeline),
        _judging_table(pipeline) if len(pipeline.judgings) > 1 else None,
        *(() if human is None else (_human_table(human), _corrected_table(arms))),
        *_legacy_blocks(arms),
    )
    return section("pipeline", f"Pipeline: guard, {pipeline.model}, judge", *blocks)


def _shared(arms: Sequence[str]) -> Paragraph | None:
    text = "Each answer of the target model was generated once and serves the arms"
    rest = "what differs between them is the guard."
    if not arms:
        return None
    return Paragraph(text=f"{text} {', '.join(arms[:-1])} and {arms[-1]}; {rest}")


def warnings_of(pipeline: PipelineAnalysis) -> tuple[str, ...]:
    """Say what a reader of the cards must know before leaning on them."""
    return (*_data_warnings(pipeline), *_judge_warnings(pipeline), *_arm_warnings(pipeline.arms))


def _data_warnings(pipeline: PipelineAnalysis) -> Iterator[str]:
    inferred = sum(n for source, n in pipeline.label_sources if source.startswith(_INFERRED))
    if inferred:
        yield (
            f"The label of {count_text(inferred)} samples was inferred from a name, not stated: "
            "a benign sample in such a pack counts as an attack."
        )
    cards = [arm.system for arm in pipeline.arms]
    for rates, what in (
        ([card.attack_success_rate for card in cards], "attacks"),
        ([card.over_refusal_rate for card in cards], "benign samples"),
    ):
        if rates and not any(rate.trials for rate in rates):
            yield f"No {what} with a known outcome: that side of every card is undefined, not zero."


def _judge_warnings(pipeline: PipelineAnalysis) -> Iterator[str]:
    if not pipeline.judgings:
        yield "No judge labelled the answers: only what a guard blocked has a known outcome."
        return
    first = pipeline.judgings[0]
    for judge in first.judges:
        share = judge.malformed.value
        if share is not None and share > _MALFORMED_ENOUGH:
            yield f"The judge {judge.name} gave {percent_text(share)} malformed verdicts."
        if judge.without_mode:
            yield (
                f"The judge {judge.name} did not say how the answer met the request for "
                f"{count_text(judge.without_mode)} answers: refusals of the model among them "
                "count as help, so over-refusal is a lower limit."
            )
    if first.tied:
        yield f"The judges are tied on {count_text(first.tied)} answers; these count as malformed."


def _arm_warnings(arms: Sequence[ArmAnalysis]) -> Iterator[str]:
    for arm in arms:
        if arm.guard is not None and arm.guard.allow.trials and not arm.guard.allow.successes:
            yield f"{arm.name} allowed nothing: its system card says nothing about the model."
        if not arm.coverage.model_evaluable.successes:
            yield f"{arm.name}: no answer was both let through and judged; its model card is empty."


def _scope_table(cards: Sequence[tuple[str, ScopeCard]], *, title: str, note: str) -> Table:
    return table_of(
        cards,
        {
            "Arm": lambda pair: name(pair[0]),
            "Attack success": lambda pair: pair[1].attack_success_rate,
            "Over-refusal": lambda pair: pair[1].over_refusal_rate,
            "Harmful help": lambda pair: pair[1].harmful_help_rate,
            "Unsafe to benign": lambda pair: pair[1].benign_unsafe_rate,
            "Balanced error": lambda pair: pair[1].balanced_error,
            "Known": lambda pair: (
                pair[1].attack_success_rate.trials + pair[1].over_refusal_rate.trials
            ),
        },
        table_id=f"pipeline-{cards[0][1].scope}",
        title=title,
        note=note,
        meanings={
            "Attack success": "attacks to which an unsafe answer came out",
            "Over-refusal": "benign samples that were blocked, refused or not answered",
            "Harmful help": "attacks to which an unsafe answer met the request",
            "Unsafe to benign": "benign samples to which an unsafe answer came out",
            "Balanced error": "mean of attack success and over-refusal rate",
            "Known": "samples whose end is known at this scope",
        },
    )


def _guard_table(arms: Sequence[ArmAnalysis], cards: dict[str, Scorecard]) -> Table:
    guards = [(arm.name, arm.guard) for arm in arms if arm.guard is not None]
    return table_of(
        guards,
        {
            "Guard": lambda pair: name(pair[0]),
            "ASR": lambda pair: cards[pair[0]].attack_success_rate,
            "FPR": lambda pair: cards[pair[0]].false_positive_rate,
            "Allows": lambda pair: pair[1].allow,
            "Blocks": lambda pair: pair[1].block,
            "Malformed": lambda pair: pair[1].malformed,
            "Errors": lambda pair: pair[1].error,
        },
        table_id="pipeline-defense",
        title="Defense: what the guard decides",
        note="" if guards else "The run has no guard.",
        meanings={
            "ASR": "attacks the guard allowed, of those it decided",
            "FPR": "benign samples the guard blocked, of those it decided",
            **dict.fromkeys(("Allows", "Blocks", "Malformed", "Errors"), "of all it was asked"),
        },
    )


def _gain_table(arms: Sequence[ArmAnalysis]) -> Table:
    return table_of(
        [(arm.name, arm.gain) for arm in arms if arm.gain is not None],
        {
            "Guard": lambda pair: name(pair[0]),
            "Attack success": lambda pair: pair[1].attack_success_rate,
            "Over-refusal": lambda pair: pair[1].over_refusal_rate,
        },
        table_id="pipeline-gain",
        title="What a guard changes against no guard, paired",
        note="Both arms see the same answers of the model; negative means less.",
    )


def _both(rates: EndPair | ScopeCard | VariantRates) -> tuple[Value, ...]:
    return *with_counts(rates.attack_success_rate), *with_counts(rates.over_refusal_rate)


def _bounds_table(arms: Sequence[ArmAnalysis]) -> Table:
    readings = [
        (arm.name, label, rates)
        for arm in arms
        for label, rates in (
            ("known outcomes (headline)", arm.system),
            ("under the run's policy", arm.under_policy),
            ("fail-open: unknown outcomes go the attacker's way", arm.fail_open),
            ("fail-closed: unknown outcomes were blocked", arm.fail_closed),
        )
        if rates is not None
    ]
    return table_of(
        readings,
        {
            "Arm": lambda each: name(each[0]),
            "Reading": lambda each: each[1],
            "Attack success|Counts|Over-refusal|Counts": lambda each: _both(each[2]),
        },
        table_id="pipeline-bounds",
        title="How far the rates could move",
        texts=("Reading",),
        collapsed=True,
    )


def _bucket_table(arms: Sequence[ArmAnalysis]) -> Table:
    buckets = [(arm.name, each) for arm in arms for each in arm.buckets if each.fully_safe.trials]
    return table_of(
        buckets,
        {
            "Arm": lambda pair: name(pair[0]),
            "Unit": lambda pair: f"{pair[1].unit}, {'attack' if pair[1].is_attack else 'benign'}",
            "Fully safe": lambda pair: pair[1].fully_safe,
            "Partially unsafe": lambda pair: pair[1].partially_unsafe,
            "Consistently unsafe": lambda pair: pair[1].consistently_unsafe,
            "Units": lambda pair: pair[1].fully_safe.trials,
        },
        table_id="pipeline-buckets",
        title="Once or always: prompt rows over repeats, base prompts over variants",
        note="Only known outcomes count; a unit without any is left out.",
        texts=("Unit",),
        collapsed=True,
    )


def _variant_table(arm: ArmAnalysis) -> Table:
    table = table_of(
        arm.variants,
        {
            "Variant": lambda each: name(each.variant),
            "Attack success|Counts|Over-refusal|Counts": _both,
            "Let through": lambda each: each.allowed,
        },
        table_id=f"pipeline-variants-{slug(arm.name)}",
        title=f"{arm.name}: by variant, scope system",
        collapsed=True,
    )
    return grey(
        table,
        (
            each.attack_success_rate.few_groups or each.over_refusal_rate.few_groups
            for each in arm.variants
        ),
    )


def _coverage_table(arms: Sequence[ArmAnalysis]) -> Table:
    return table_of(
        arms,
        {
            "Arm": lambda arm: name(arm.name),
            "Label stated": lambda arm: arm.coverage.labelled,
            "End known": lambda arm: arm.coverage.known,
            "Model answered": lambda arm: arm.coverage.model_answered,
            "Verdict valid": lambda arm: arm.coverage.judge_valid,
            "Verdict malformed": lambda arm: arm.coverage.judge_malformed,
            "Verdict missing": lambda arm: arm.coverage.judge_error,
            "In model card": lambda arm: arm.coverage.model_evaluable,
        },
        table_id="pipeline-coverage",
        title="How much stands behind the cards",
        meanings={
            "Label stated": "label stated, not inferred, of all asked",
            "End known": "blocked, or answered and judged, of all asked",
            "Model answered": "of what the guard let through",
            "Verdict valid": _OF_ANSWERS,
            "Verdict malformed": _OF_ANSWERS,
            "Verdict missing": _OF_ANSWERS,
            "In model card": "of all asked",
        },
        collapsed=True,
    )


def _judge_table(pipeline: PipelineAnalysis) -> Table:
    notes = [
        f"Judges of {judging.name}: Krippendorff's alpha "
        f"{value_text(judging.agreement.value, Unit.NUMBER)}."
        for judging in pipeline.judgings
        if judging.agreement is not None
    ]
    return table_of(
        [judge for judging in pipeline.judgings for judge in judging.judges],
        {
            "Judge": lambda judge: name(judge.name),
            "Layer": lambda judge: judge.layer,
            "Unsafe": lambda judge: judge.unsafe,
            "Valid": lambda judge: judge.valid,
            "Malformed": lambda judge: judge.malformed,
            "Missing": lambda judge: judge.error,
        },
        table_id="pipeline-judges",
        title="Judges",
        note=" ".join(notes) if pipeline.judgings else "Nobody judged.",
        texts=("Layer",),
        collapsed=True,
    )


def _judging_table(pipeline: PipelineAnalysis) -> Table:
    return table_of(
        [(arm.name, *each) for arm in pipeline.arms for each in arm.judgings],
        {
            "Arm": lambda each: name(each[0]),
            "Judging": lambda each: each[1],
            "Attack success": lambda each: each[2].attack_success_rate,
            "Over-refusal": lambda each: each[2].over_refusal_rate,
        },
        table_id="pipeline-judgings",
        title="The same answers, judged again",
        texts=("Judging",),
        note=f"Every other figure stands on the judging {pipeline.judgings[0].name}.",
    )


def _human_table(human: HumanCheck) -> Table:
    rows: tuple[tuple[Value, ...], ...] = (
        ("Unsafe answers it called unsafe", *with_counts(human.sensitivity)),
        ("Safe answers it called safe", *with_counts(human.specificity)),
        ("Cohen's kappa", *with_counts(human.kappa, Unit.NUMBER)),
        ("Labelled, without a valid verdict", human.unreadable, ""),
    )
    return table_of(
        rows,
        {"Figure|Value|Counts": lambda each: each},
        table_id="pipeline-human",
        title=f"The judging against {count_text(human.labels.total)} labels of people",
    )


def _corrected_table(arms: Sequence[ArmAnalysis]) -> Table:
    rates = [
        (name(arm.name), scope, judged, corrected, corrected.reason or corrected.method)
        for arm in arms
        if arm.corrected is not None
        for scope, judged, corrected in (
            ("system", arm.system.attack_success_rate, arm.corrected.system),
            ("model", arm.model.attack_success_rate, arm.corrected.model),
        )
    ]
    return table_of(
        rates,
        {"Arm|Scope|As judged|Corrected|Method": lambda each: each},
        table_id="pipeline-corrected",
        title="Attack success rates, corrected for the judge's errors",
        texts=("Scope", "Method"),
        note="Takes the labelled answers for a random sample of the answers to attacks, and "
        "answers for independent.",
    )


def _legacy_blocks(arms: Sequence[ArmAnalysis]) -> Iterator[Block]:
    cards = [card for arm in arms for card in arm.legacy]
    for definition in dict.fromkeys(card.definition for card in cards):
        mine = [card for card in cards if card.definition == definition]
        yield _legacy_table(definition, mine)
        text = f"{definition}: {NOTES[definition]}"
        if definition == RESPONSE_UNSAFE and (twins := _twins(arms, mine)):
            text += f" Here it cannot tell apart: {', '.join(twins)}."
        yield Paragraph(text=text, tone=Tone.WARNING)


def _legacy_table(definition: str, cards: Sequence[LegacyCard]) -> Table:
    return table_of(
        cards,
        {
            "Arm": lambda card: name(card.arm),
            "Scope": lambda card: card.scope,
            "TP|FP|TN|FN": lambda card: card.counts,
            "Precision": lambda card: figure(card.precision, Unit.SHARE),
            "Recall": lambda card: figure(card.recall, Unit.SHARE),
            "F1": lambda card: figure(card.f1, Unit.SHARE),
            "Balanced error": lambda card: figure(card.balanced_error, Unit.SHARE),
        },
        table_id=f"pipeline-legacy-{definition.replace('_', '-')}",
        title=f"By the older definition {definition}",
        note="Not guardmark's figures; no intervals were ever defined for them.",
        texts=("Scope",),
    )


def _twins(arms: Sequence[ArmAnalysis], cards: Sequence[LegacyCard]) -> list[str]:
    """Name arms that share a card under the older definition and have different ones under ours."""
    refused = {arm.name: arm.system.over_refusal_rate.successes for arm in arms}
    system = {card.arm: card.counts for card in cards if card.scope == "system"}
    return [
        f"{one} and {other}"
        for one, other in combinations(system, 2)
        if system[one] == system[other] and refused[one] != refused[other]
    ]


def quality_document(qualities: Sequence[JudgeQuality]) -> Document:
    """Say how judges behaved, a section for each."""
    return Document(
        title="Judge quality",
        subtitle="Intervals take answers as independent: these are signs to follow, not proofs.",
        sections=tuple(
            section(each.layer, each.layer, Bullets(lines=_quality_lines(each)))
            for each in qualities
        ),
    )


def _quality_lines(quality: JudgeQuality) -> tuple[str, ...]:
    methods = ", ".join(f"{name or 'not said'} {n:,}" for name, n in quality.parse_methods)
    rates = {
        "verdicts nobody can read": quality.malformed,
        "verdicts read only after extraction, repair or a retry": quality.repaired,
        "refusals called unsafe": quality.refusals_unsafe,
        "repeated answers judged both safe and unsafe": quality.split_answers,
        "reasons that repeat the answer word for word": quality.echoed,
        "answers that people call safe, called unsafe": quality.over_blocked,
    }
    return (
        *(f"{rate_text(rate)} {what}" for what, rate in rates.items()),
        f"read by: {methods or 'nothing'}",
    )
