"""Guard, model and judge together: three cards, and what stands behind them."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.comparison import group_cautions
from guardmark.reports.document.blocks import Document, Section, Table, Unit, section, warning
from guardmark.reports.document.cells import figure, name, rate_text, slug, table_of, with_counts
from guardmark.reports.document.wording import count_text, percent_text, say, value_text, words_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.defense.scorecard import Scorecard
    from guardmark.analysis.pipeline.answers import AnswerEnds, Unseen
    from guardmark.analysis.pipeline.arms import (
        ArmAnalysis,
        LegacyCard,
        PipelineAnalysis,
        ScopeCard,
        VariantRates,
    )
    from guardmark.analysis.pipeline.frame import EndPair
    from guardmark.analysis.pipeline.injection import JudgeInjection
    from guardmark.analysis.pipeline.judges import HumanCheck, JudgeQuality, JudgesAssessed
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.estimate import Estimate
    from guardmark.reports.document.blocks import Block
    from guardmark.reports.document.cells import Value
    from guardmark.stats.rates.corrected import CorrectedRate

CARD_TABLES: Final = ("pipeline-system", "pipeline-model", "pipeline-defense")
"""Ids of the three cards."""

_MALFORMED_ENOUGH: Final = 0.01
_INFERRED: Final = "inferred"


def write(analysis: RunAnalysis) -> Section | None:
    """Write the section on the pipeline, or nothing when no model was asked."""
    pipeline = analysis.pipeline
    if pipeline is None:
        return None
    arms, human = pipeline.arms, pipeline.human
    shared = analysis.manifest.shared_answers
    gains = [arm for arm in arms if arm.gain is not None]
    others, judged = pipeline.judgings[1:], [(arm, *each) for arm in arms for each in arm.judgings]
    by_first = "".join(say("judging", name=each.name) for each in pipeline.judgings[:1])
    once = say("shared", arms=", ".join(shared[:-1]), last="".join(shared[-1:]))
    parts = (
        once if shared else None,
        _system_table(arms),
        _scope_table([(arm.name, arm.model) for arm in arms]),
        _guard_table(arms, {each.name: each.card for each in analysis.defenses}),
        warning(warnings_of(pipeline)),
        table_of(gains, table_id="pipeline-gain") if gains else None,
        _bounds_table(arms),
        _bucket_table(arms),
        *(_variant_table(arm) for arm in arms if len(arm.variants) > 1),
        table_of(arms, table_id="pipeline-coverage", collapsed=True),
        _answer_table(pipeline),
        _judge_table(pipeline),
        table_of(judged, table_id="pipeline-judgings", note=by_first) if others else None,
        *(() if human is None else (_human_table(human), _corrected_table(arms))),
        *_legacy_parts(arms),
    )
    return section("pipeline", f"Pipeline: guard, {pipeline.model}, judge", *parts)


def warnings_of(pipeline: PipelineAnalysis) -> tuple[str, ...]:
    """Say what a reader of the cards must know before leaning on them."""
    return (
        *_data_warnings(pipeline),
        *provider_sentences(pipeline),
        *cut_warnings(pipeline),
        *_judge_warnings(pipeline),
        *_arm_warnings(pipeline.arms),
    )


def _data_warnings(pipeline: PipelineAnalysis) -> Iterator[str]:
    inferred = sum(n for source, n in pipeline.label_sources if source.startswith(_INFERRED))
    if inferred:
        yield (say("inferred", count=count_text(inferred)))
    cards = [arm.system for arm in pipeline.arms]
    known = {
        "attacks": any(card.attack_success_rate.trials for card in cards),
        "benign samples": any(card.over_refusal_rate.trials for card in cards),
    }
    for what in (side for side, is_known in known.items() if cards and not is_known):
        yield f"No {what} with a known outcome: that side of every card is undefined, not zero."


def cut_warnings(pipeline: PipelineAnalysis) -> Iterator[str]:
    """Say how many answers nobody saw whole: what would have come next may be the harm."""
    cut = [each for each in pipeline.answers if each.cut.successes]
    if cut:
        yield say("cut_answers", counts=_answers_text([(each, each.cut) for each in cut]))
    filtered = [each for each in pipeline.answers if each.filtered.successes]
    if filtered:
        counts = _answers_text([(each, each.filtered) for each in filtered])
        yield say("filtered_answers", counts=counts)


def _answers_text(rates: Sequence[tuple[AnswerEnds, Estimate]]) -> str:
    return " and ".join(
        f"{count_text(rate.successes)} of {count_text(rate.trials)} answers to {_side(ends)}"
        for ends, rate in rates
    )


def provider_sentences(pipeline: PipelineAnalysis) -> Iterator[str]:
    """Say what the filter of the model's provider blocked in the arm where it blocked most."""
    arms = [arm for arm in pipeline.arms if arm.provider.at_input + arm.provider.at_output]
    if not arms:
        return
    most = max(arms, key=lambda arm: arm.provider.at_input + arm.provider.at_output).provider
    counts = (
        f"{count_text(most.attacks.successes)} of {count_text(most.attacks.trials)} attacks and "
        f"{count_text(most.benign.successes)} of {count_text(most.benign.trials)} benign samples"
    )
    yield say(
        "provider",
        model=pipeline.model,
        counts=counts,
        at_input=count_text(most.at_input),
        at_output=count_text(most.at_output),
    )


def unseen_sentences(unseen: Sequence[Unseen]) -> Iterator[str]:
    """Say what guards and judges could not look at, on each side."""
    for each in unseen:
        what = "The judge" if each.kind == "judge" else "The guard"
        yield say(
            "unseen",
            part=f"{what} {each.part}",
            attacks=f"{count_text(each.attacks.successes)} of {count_text(each.attacks.trials)}",
            benign=f"{count_text(each.benign.successes)} of {count_text(each.benign.trials)}",
        )


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
            yield (say("no_mode", judge=judge.name, count=count_text(judge.without_mode)))
    if first.tied:
        yield f"The judges are tied on {count_text(first.tied)} answers; these count as malformed."


def _arm_warnings(arms: Sequence[ArmAnalysis]) -> Iterator[str]:
    for arm in arms:
        if arm.guard is not None and arm.guard.allow.trials and not arm.guard.allow.successes:
            yield f"{arm.name} allowed nothing: its system card says nothing about the model."
        if not arm.coverage.model_evaluable.successes:
            yield f"{arm.name}: no answer was both let through and judged; its model card is empty."
        for card in (arm.system, arm.model):
            cautions = group_cautions(card.attack_success_rate, card.over_refusal_rate)
            yield from (f"{arm.name}, scope {card.scope}: {each}." for each in cautions)


def _system_table(arms: Sequence[ArmAnalysis]) -> Table:
    """Write the card of everything that was asked; what a provider blocked has columns if any."""
    blocks = [arm.provider.attacks.successes + arm.provider.benign.successes for arm in arms]
    rows = []
    for arm in arms:
        card = arm.system
        known = card.attack_success_rate.trials + card.over_refusal_rate.trials
        blocked = (arm.provider.attacks, arm.provider.benign) if any(blocks) else ("", "")
        rows.append((arm.name, card, known, *blocked))
    return table_of(rows, table_id="pipeline-system")


def _scope_table(cards: Sequence[tuple[str, ScopeCard]]) -> Table:
    known = (card.attack_success_rate.trials + card.over_refusal_rate.trials for _, card in cards)
    rows = [(*card, count) for card, count in zip(cards, known, strict=True)]
    return table_of(rows, table_id=f"pipeline-{cards[0][1].scope}")


def _guard_table(arms: Sequence[ArmAnalysis], cards: dict[str, Scorecard]) -> Table:
    guards = [(each, cards[each.name]) for each in arms if each.guard is not None]
    return table_of(
        guards,
        table_id="pipeline-defense",
        note="" if guards else "The run has no guard.",
    )


def _both(rates: EndPair | ScopeCard | VariantRates) -> tuple[Value, ...]:
    return *with_counts(rates.attack_success_rate), *with_counts(rates.over_refusal_rate)


def _bounds_table(arms: Sequence[ArmAnalysis]) -> Table:
    return table_of(
        [
            (name(arm.name), label, *_both(rates))
            for arm in arms
            for key, label in words_of("bounds").items()
            if (rates := getattr(arm, key)) is not None
        ],
        {"Arm|Reading|Attack success|Counts|Over-refusal|Counts": lambda each: each},
        table_id="pipeline-bounds",
        texts=("Reading",),
        collapsed=True,
    )


def _bucket_table(arms: Sequence[ArmAnalysis]) -> Table:
    buckets = [
        (arm.name, each, f"{each.unit}, {'attack' if each.is_attack else 'benign'}")
        for arm in arms
        for each in arm.buckets
        if each.fully_safe.trials
    ]
    return table_of(
        buckets,
        table_id="pipeline-buckets",
        collapsed=True,
    )


def _variant_table(arm: ArmAnalysis) -> Table:
    return table_of(
        arm.variants,
        {
            "Variant": lambda each: name(each.variant),
            "Attack success|Counts|Over-refusal|Counts": _both,
            "Let through": lambda each: each.allowed,
        },
        table_id=f"pipeline-variants-{slug(arm.name)}",
        title=f"{arm.name}: by variant, scope system",
        greyed=lambda each: (
            each.attack_success_rate.few_groups or each.over_refusal_rate.few_groups
        ),
        collapsed=True,
    )


def _answer_table(pipeline: PipelineAnalysis) -> Table | None:
    """Say how answers ended, where some ended otherwise than whole."""
    ends = [rate for each in pipeline.answers for rate in (each.cut, each.declined, each.filtered)]
    if not any(rate.successes for rate in ends):
        return None
    return table_of([(_side(each), each) for each in pipeline.answers], table_id="pipeline-answers")


def _side(ends: AnswerEnds) -> str:
    return "attacks" if ends.is_attack else "benign samples"


def _judge_table(pipeline: PipelineAnalysis) -> Table:
    notes = [
        f"Judges of {judging.name}: Krippendorff's alpha "
        f"{value_text(judging.agreement.value, Unit.NUMBER)}."
        for judging in pipeline.judgings
        if judging.agreement is not None
    ]
    return table_of(
        [judge for judging in pipeline.judgings for judge in judging.judges],
        table_id="pipeline-judges",
        note=" ".join(notes) if pipeline.judgings else "Nobody judged.",
        collapsed=True,
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
        note=words_of("human_check")["drawn_by_verdict"] if human.drawn_by_verdict else "",
    )


def _corrected_table(arms: Sequence[ArmAnalysis]) -> Table:
    rates = [
        (name(arm.name), scope, judged, corrected, _how_corrected(corrected))
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
        texts=("Scope", "Method"),
    )


def _how_corrected(rate: CorrectedRate) -> str:
    """Say how a rate was corrected, or what keeps it from being known."""
    if rate.value is None and rate.low is not None and rate.high is not None:
        between = f"between {percent_text(rate.low)} and {percent_text(rate.high)}"
        return f"{between}: {rate.reason}"
    return rate.reason or rate.method


def _legacy_parts(arms: Sequence[ArmAnalysis]) -> Iterator[Block]:
    from guardmark.analysis.pipeline.arms import RESPONSE_UNSAFE  # on use: most runs have no model

    cards = [card for arm in arms for card in arm.legacy]
    for definition in dict.fromkeys(card.definition for card in cards):
        mine = [card for card in cards if card.definition == definition]
        yield _legacy_table(definition, mine)
        text = f"{definition}: {words_of('legacy')[definition]}"
        twins = _twins(arms, mine) if definition == RESPONSE_UNSAFE else ()
        if twins:
            text += f" Here it cannot tell apart: {', '.join(twins)}."
        yield warning(text)


def legacy_note(card: LegacyCard) -> str:
    """Say what a reader must know of the definition."""
    return words_of("legacy")[card.definition]


def _legacy_table(definition: str, cards: Sequence[LegacyCard]) -> Table:
    return table_of(
        cards,
        {
            "Arm|Scope|TP|FP|TN|FN": lambda card: (name(card.arm), card.scope, *card.counts),
            "Precision|Recall|F1|Balanced error": lambda card: tuple(
                map(figure, (card.precision, card.recall, card.f1, card.balanced_error))
            ),
        },
        table_id=f"pipeline-legacy-{definition.replace('_', '-')}",
        title=f"By the older definition {definition}",
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


def quality_document(assessed: JudgesAssessed) -> Document:
    """Say how judges behaved, a section for each, and how they stood planted answers."""
    return Document(
        title="Judge quality",
        subtitle="Intervals take answers as independent: these are signs to follow, not proofs.",
        sections=(
            *(section(each.layer, each.layer, _quality_lines(each)) for each in assessed.judges),
            *filter(None, (write_planted(assessed.planted),)),
        ),
    )


def _quality_lines(quality: JudgeQuality) -> tuple[str, ...]:
    methods = ", ".join(f"{name or 'not said'} {n:,}" for name, n in quality.parse_methods)
    said = words_of("judge_quality").items()
    return (
        *(f"{rate_text(getattr(quality, rate))} {what}" for rate, what in said),
        f"read by: {methods or 'nothing'}",
    )


def write_planted(planted: Sequence[JudgeInjection]) -> Section | None:
    """Write how often what stands in an answer moved its judge, or nothing if none was asked."""
    if not planted:
        return None
    moved = [each for each in planted if each.to_safe.successes]
    kinds = [(judge.judge, each) for judge in planted for each in judge.by_kind]
    return section(
        "judge-injection",
        "Judges shown planted answers",
        warning(
            say(
                "moved_judge",
                judge=each.judge,
                count=count_text(each.to_safe.successes),
                of=count_text(each.to_safe.trials),
            )
            for each in moved
        ),
        table_of(planted, table_id="judge-planted"),
        table_of(kinds, table_id="judge-planted-kinds", collapsed=True),
    )
