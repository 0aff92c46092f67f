"""What the cards of a pipeline rest on: coverage, judges, people, and older definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.pipeline.card import NOTES, RESPONSE_UNSAFE
from guardmark.reports.document.blocks import (
    Bullets,
    Document,
    FigureCell,
    Paragraph,
    Section,
    Table,
    Tone,
    Unit,
)
from guardmark.reports.document.cells import (
    columns,
    counts,
    figure,
    name,
    of_estimate,
    rate_text,
    row,
    words,
)
from guardmark.reports.document.wording import count_text, percent_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.pipeline.arms import ArmAnalysis, PipelineAnalysis
    from guardmark.analysis.pipeline.card import LegacyCard
    from guardmark.analysis.pipeline.judges import HumanCheck, JudgeQuality
    from guardmark.core.estimate import Estimate
    from guardmark.reports.document.blocks import Block, TextCell
    from guardmark.stats.rates.corrected import CorrectedRate


_MALFORMED_ENOUGH: Final = 0.01
_INFERRED: Final = "inferred"


def trust_blocks(pipeline: PipelineAnalysis) -> list[Block]:
    """Write what the cards rest on."""
    blocks: list[Block] = [_coverage_table(pipeline.arms), _judge_table(pipeline)]
    if len(pipeline.judgings) > 1:
        blocks.append(_judging_table(pipeline))
    if pipeline.human is not None:
        blocks.append(_human_table(pipeline.human))
        blocks.append(_corrected_table(pipeline.arms))
    blocks.extend(_legacy_blocks(pipeline))
    return blocks


def warnings_of(pipeline: PipelineAnalysis) -> tuple[str, ...]:
    """Say what a reader of the cards must know before leaning on them."""
    return (*_data_warnings(pipeline), *_part_warnings(pipeline))


def _data_warnings(pipeline: PipelineAnalysis) -> Iterator[str]:
    inferred = sum(n for source, n in pipeline.label_sources if source.startswith(_INFERRED))
    if inferred:
        yield (
            f"The label of {count_text(inferred)} samples was inferred from a name, not stated: "
            "a benign sample in such a pack counts as an attack."
        )
    arms = pipeline.arms
    for label, what in (
        ("attack_success_rate", "attacks"),
        ("over_refusal_rate", "benign samples"),
    ):
        if arms and not any(getattr(arm.system, label).trials for arm in arms):
            yield f"No {what} with a known end: that side of every card is undefined, not zero."


def _part_warnings(pipeline: PipelineAnalysis) -> Iterator[str]:
    if not pipeline.judgings:
        yield "No judge labelled the answers: only what a guard blocked has a known end."
    for judge in pipeline.judgings[0].judges if pipeline.judgings else ():
        share = judge.malformed.value
        if share is not None and share > _MALFORMED_ENOUGH:
            yield f"The judge {judge.name} gave {percent_text(share)} malformed verdicts."
        if judge.without_mode:
            yield (
                f"The judge {judge.name} did not say how the answer met the request for "
                f"{count_text(judge.without_mode)} answers: refusals of the model among them "
                "count as help, so over-refusal is a lower limit."
            )
    if pipeline.judgings and pipeline.judgings[0].tied:
        yield (
            f"The judges are tied on {count_text(pipeline.judgings[0].tied)} answers; these count "
            "as malformed."
        )
    for arm in pipeline.arms:
        yield from _arm_warnings(arm)


def _arm_warnings(arm: ArmAnalysis) -> Iterator[str]:
    if arm.guard is not None and arm.guard.allow.trials and not arm.guard.allow.successes:
        yield f"{arm.name} allowed nothing: its system card says nothing about the model."
    if not arm.coverage.model_evaluable.successes:
        yield f"{arm.name}: no answer was both let through and judged; its model card is empty."


def _coverage_table(arms: Sequence[ArmAnalysis]) -> Table:
    rows = tuple(
        row(
            name(arm.name),
            *(
                arm.coverage.labelled,
                arm.coverage.known,
                arm.coverage.model_answered,
                arm.coverage.judge_valid,
                arm.coverage.judge_malformed,
                arm.coverage.judge_error,
                arm.coverage.model_evaluable,
            ),
        )
        for arm in arms
    )
    return Table(
        id="pipeline-coverage",
        title="How much stands behind the cards",
        columns=columns(
            *(
                "Arm",
                "Label stated",
                "End known",
                "Model answered",
                "Verdict valid",
                "Verdict malformed",
                "Verdict missing",
                "In model card",
            ),
            meanings={
                "Label stated": "label stated, not inferred, of all asked",
                "End known": "blocked, or answered and judged, of all asked",
                "Model answered": "of what the guard let through",
                "Verdict valid": "of all answers in this arm",
                "Verdict malformed": "of all answers in this arm",
                "Verdict missing": "of all answers in this arm",
                "In model card": "of all asked",
            },
        ),
        rows=rows,
        collapsed=True,
    )


def _judge_table(pipeline: PipelineAnalysis) -> Table:
    rows = tuple(
        row(name(judge.name), judge.layer, judge.unsafe, judge.valid, judge.malformed, judge.error)
        for judging in pipeline.judgings
        for judge in judging.judges
    )
    notes = [
        f"Judges of {judging.name}: Krippendorff's alpha {_alpha(judging.agreement.value)}."
        for judging in pipeline.judgings
        if judging.agreement is not None
    ]
    return Table(
        id="pipeline-judges",
        title="Judges",
        columns=columns(
            "Judge", "Layer", "Unsafe", "Valid", "Malformed", "Missing", texts=("Layer",)
        ),
        rows=rows,
        note=" ".join(notes) or ("" if rows else "Nobody judged."),
        collapsed=True,
    )


def _alpha(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


def _judging_table(pipeline: PipelineAnalysis) -> Table:
    rows = tuple(
        row(name(arm.name), judging, card.attack_success_rate, card.over_refusal_rate)
        for arm in pipeline.arms
        for judging, card in arm.judgings
    )
    return Table(
        id="pipeline-judgings",
        title="The same answers, judged again",
        columns=columns("Arm", "Judging", "Attack success", "Over-refusal", texts=("Judging",)),
        rows=rows,
        note=f"Every other figure stands on the judging {pipeline.judgings[0].name}.",
    )


def _human_table(human: HumanCheck) -> Table:
    labels = human.labels
    rows = (
        row("Unsafe answers it called unsafe", *_with_counts(human.sensitivity)),
        row("Safe answers it called safe", *_with_counts(human.specificity)),
        row(
            "Cohen's kappa",
            FigureCell(
                value=human.kappa.value,
                low=human.kappa.low,
                high=human.kappa.high,
                unit=Unit.NUMBER,
                reason=human.kappa.reason,
            ),
            count_text(human.kappa.trials),
        ),
        row("Labelled, without a valid verdict", human.unreadable, ""),
    )
    return Table(
        id="pipeline-human",
        title=f"The judging against {count_text(labels.total)} labels of people",
        columns=columns("Figure", "Value", "Counts"),
        rows=rows,
    )


def _with_counts(estimate: Estimate) -> tuple[FigureCell, TextCell]:
    measure = of_estimate(estimate)
    return measure, counts(measure)


def _corrected_table(arms: Sequence[ArmAnalysis]) -> Table:
    rows = []
    for arm in arms:
        if arm.corrected is None:
            continue
        for scope, raw, fixed in (
            ("system", arm.system.attack_success_rate, arm.corrected.system),
            ("model", arm.model.attack_success_rate, arm.corrected.model),
        ):
            cells = (name(arm.name), words(scope), of_estimate(raw), _fixed(fixed))
            rows.append(row(*cells, fixed.reason or fixed.method))
    return Table(
        id="pipeline-corrected",
        title="Attack success rates, corrected for the judge's errors",
        columns=columns(
            "Arm", "Scope", "As judged", "Corrected", "Method", texts=("Scope", "Method")
        ),
        rows=tuple(rows),
        note="Takes the labelled answers for a random sample of the answers to attacks, and "
        "answers for independent.",
    )


def _fixed(rate: CorrectedRate) -> FigureCell:
    return FigureCell(
        value=rate.value,
        low=rate.low,
        high=rate.high,
        unit=Unit.SHARE,
        trials=rate.trials,
        reason=rate.reason,
    )


def _legacy_blocks(pipeline: PipelineAnalysis) -> list[Block]:
    blocks: list[Block] = []
    cards = [card for arm in pipeline.arms for card in arm.legacy]
    for definition in dict.fromkeys(card.definition for card in cards):
        mine = [card for card in cards if card.definition == definition]
        blocks.append(_legacy_table(definition, mine))
        text = NOTES[definition]
        twins = _twins(pipeline, mine) if definition == RESPONSE_UNSAFE else ()
        if twins:
            text += f" Here it cannot tell apart: {', '.join(twins)}."
        blocks.append(Paragraph(text=f"{definition}: {text}", tone=Tone.WARNING))
    return blocks


def _legacy_table(definition: str, cards: Sequence[LegacyCard]) -> Table:
    rows = tuple(
        row(
            name(card.arm),
            card.scope,
            *card.counts,
            *(
                figure(value, Unit.SHARE)
                for value in (card.precision, card.recall, card.f1, card.balanced_error)
            ),
        )
        for card in cards
    )
    titles = ("Scope", "TP", "FP", "TN", "FN", "Precision", "Recall", "F1", "Balanced error")
    return Table(
        id=f"pipeline-legacy-{definition.replace('_', '-')}",
        title=f"By the older definition {definition}",
        columns=columns("Arm", *titles, texts=("Scope",)),
        rows=rows,
        note="Not guardmark's figures; no intervals were ever defined for them.",
    )


def _twins(pipeline: PipelineAnalysis, cards: Sequence[LegacyCard]) -> tuple[str, ...]:
    """Arms that share a card under the older definition and have different ones under ours."""
    refused = {arm.name: arm.system.over_refusal_rate.successes for arm in pipeline.arms}
    system = {card.arm: card.counts for card in cards if card.scope == "system"}
    return tuple(
        f"{one} and {other}"
        for at, one in enumerate(system)
        for other in list(system)[at + 1 :]
        if system[one] == system[other] and refused[one] != refused[other]
    )


QUALITY_FIGURES: Final = (
    ("malformed", "verdicts nobody can read"),
    ("repaired", "verdicts read only after extraction, repair or a retry"),
    ("refusals_unsafe", "refusals called unsafe"),
    ("split_answers", "repeated answers judged both safe and unsafe"),
    ("echoed", "reasons that repeat the answer word for word"),
    ("over_blocked", "answers that people call safe, called unsafe"),
)


def quality_document(found: Sequence[JudgeQuality]) -> Document:
    """Say how judges behaved, a section for each."""
    text = "Intervals take answers as independent: these are signs to follow, not proofs."
    return Document(
        title="Judge quality",
        subtitle=text,
        sections=tuple(
            Section(
                id=quality.layer,
                title=quality.layer,
                blocks=(Bullets(lines=_quality_lines(quality)),),
            )
            for quality in found
        ),
    )


def _quality_lines(quality: JudgeQuality) -> tuple[str, ...]:
    methods = ", ".join(f"{name or 'not said'} {n:,}" for name, n in quality.parse_methods)
    return (
        *(f"{rate_text(getattr(quality, name))} {words}" for name, words in QUALITY_FIGURES),
        f"read by: {methods or 'nothing'}",
    )
