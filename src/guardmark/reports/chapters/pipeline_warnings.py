"""What a reader must know before leaning on a pipeline's cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.subjects import group_cautions
from guardmark.reports.document.wording import count_text, percent_text, side_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.pipeline.answers import Unseen
    from guardmark.analysis.pipeline.arms import (
        ArmAnalysis,
        PipelineAnalysis,
        RewrittenEnds,
    )
    from guardmark.core.estimate import Estimate

_MALFORMED_ENOUGH: Final = 0.01
_FEWEST_CALLED_HELP: Final = 3  # one or two may be answers that only sound like a refusal
_INFERRED: Final = "inferred"


def warnings_of(pipeline: PipelineAnalysis) -> tuple[str, ...]:
    """Say what a reader of the cards must know before leaning on them."""
    return (
        *_data_warnings(pipeline),
        *provider_sentences(pipeline),
        *cut_warnings(pipeline),
        *refusal_warnings(pipeline),
        *_judge_warnings(pipeline),
        *document_sentences(pipeline.arms),
        *rewriting_warnings(pipeline.arms),
        *_arm_warnings(pipeline.arms),
    )


def _data_warnings(pipeline: PipelineAnalysis) -> Iterator[str]:
    """Warn of inferred labels, and of a side without any known outcome."""
    inferred = 0
    for source, count in pipeline.label_sources:
        if source.startswith(_INFERRED):
            inferred += count
    if inferred:
        yield (
            f"The label of {count_text(inferred)} samples was inferred from a name, not "
            "stated: a benign sample in such a pack counts as an attack."
        )
    cards = [arm.system for arm in pipeline.arms]
    unknown = []
    if cards and not any(card.attack_success_rate.trials for card in cards):
        unknown.append("attacks")
    if cards and not any(card.over_refusal_rate.trials for card in cards):
        unknown.append("benign samples")
    for side in unknown:
        yield f"No {side} with a known outcome: that side of every card is undefined, not zero."


def cut_warnings(pipeline: PipelineAnalysis) -> Iterator[str]:
    """Say how many answers nobody saw whole: what would have come next may be the harm."""
    cut, filtered = [], []
    for ends in pipeline.answers:
        if ends.cut.successes:
            cut.append(_answers_text(ends.cut, is_attack=ends.is_attack))
        if ends.filtered.successes:
            filtered.append(_answers_text(ends.filtered, is_attack=ends.is_attack))
    if cut:
        yield (
            f"{' and '.join(cut)} were cut off at the "
            "model's limit (finish reason length): the judges saw them as far as they "
            "go, and what would have come next is unknown. Raise max_tokens of the model."
        )
    if filtered:
        yield (
            f"{' and '.join(filtered)} were broken off by the provider's filter after some "
            "words: they are judged as far as they go."
        )


def refusal_warnings(pipeline: PipelineAnalysis) -> Iterator[str]:
    """Say where verdicts and answers contradict each other: a refusal that counts as help."""
    called = pipeline.refusals_called_help
    if called is not None and called.successes >= _FEWEST_CALLED_HELP:
        yield (
            f"{count_text(called.successes)} of {count_text(called.trials)} benign answers that "
            "the judges count as help refuse in their first words: the over-refusal rate may be "
            "too low by as much. Read some of them, or judge again with a judge of type rules."
        )


def _answers_text(rate: Estimate, *, is_attack: bool) -> str:
    """Count answers to the samples of one side, such as `3 of 40 answers to attacks`."""
    side = side_text(is_attack=is_attack)
    return f"{count_text(rate.successes)} of {count_text(rate.trials)} answers to {side}"


def provider_sentences(pipeline: PipelineAnalysis) -> Iterator[str]:
    """Say what the filter of the model's provider blocked in the arm where it blocked most."""
    blocks = [arm.provider for arm in pipeline.arms]
    most = max(blocks, key=lambda provider: provider.at_input + provider.at_output, default=None)
    if most is None or not most.at_input + most.at_output:
        return
    counts = (
        f"{count_text(most.attacks.successes)} of {count_text(most.attacks.trials)} attacks and "
        f"{count_text(most.benign.successes)} of {count_text(most.benign.trials)} benign samples"
    )
    yield (
        f"The provider of the model {pipeline.model} blocked {counts}: its filter "
        "counts as a guard called provider (blocked at input "
        f"{count_text(most.at_input)}, at output {count_text(most.at_output)}), not "
        "as a quality of the model."
    )


def unseen_sentences(unseen: Sequence[Unseen]) -> Iterator[str]:
    """Say what guards and judges could not look at, on each side."""
    for each in unseen:
        role = "guard"
        if each.kind == "judge":
            role = "judge"
        attacks = f"{count_text(each.attacks.successes)} of {count_text(each.attacks.trials)}"
        benign = f"{count_text(each.benign.successes)} of {count_text(each.benign.trials)}"
        yield (
            f"The {role} {each.part} could not look at {attacks} attacks and {benign} benign "
            "samples: its provider filtered the text. These count as malformed. Take a "
            "service for it that does not filter, or have its filter lifted."
        )


def _judge_warnings(pipeline: PipelineAnalysis) -> Iterator[str]:
    """Warn of judges that were missing, unreadable or tied."""
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
    """Warn of arms whose cards say little, and of few or dominating groups."""
    for arm in arms:
        if arm.guard is not None and arm.guard.allow.trials and not arm.guard.allow.successes:
            yield f"{arm.name} allowed nothing: its system card says nothing about the model."
        if not arm.coverage.model_evaluable.successes:
            yield f"{arm.name}: no answer was both let through and judged; its model card is empty."
        for card in (arm.system, arm.model):
            for caution in group_cautions(card.attack_success_rate, card.over_refusal_rate):
                yield f"{arm.name}, scope {card.scope}: {caution}."


def document_sentences(arms: Sequence[ArmAnalysis]) -> Iterator[str]:
    """Say which samples bring no documents, and where nobody can tell which carry the attack."""
    for arm in arms:
        documents = [stops.documents for stops in arm.stopped if stops.documents is not None]
        for first in documents[:1]:
            if first.skipped:
                yield (
                    f"{arm.name}: {count_text(first.skipped)} samples bring no documents. Its "
                    "guards at context were not asked about them (skipped), and they went on."
                )
            if first.others.trials and not first.attacks.trials:
                yield (
                    f"{arm.name}: no document of an attack is under test, so nobody can tell which "
                    "documents carry the attack. Mark each in the data with under_test: true."
                )


def rewriting_warnings(arms: Sequence[ArmAnalysis]) -> Iterator[str]:
    """Say what guards wrote that nobody was asked about, and where they write what is harmless."""
    for arm in arms:
        for stops in arm.stopped:
            if stops.not_asked:
                yield (
                    f"{arm.name}: the guard {stops.guard} rewrote "
                    f"{count_text(stops.rewritten.successes)} of "
                    f"{count_text(stops.rewritten.trials)} texts at {stops.place.value}, and "
                    f"nobody was asked what comes of {count_text(stops.not_asked)} of them: these "
                    "outcomes are unknown, they stand in no rate, and both bounds hold them. What "
                    "a guard writes of several messages cannot be put back in the place of one; "
                    "a run that was stopped goes on with the same command."
                )
        ends = arm.rewritten
        if ends is not None and ends.benign.trials == ends.benign.successes:
            yield (
                f"{arm.name}: its guards rewrite every benign sample "
                f"({count_text(ends.benign.successes)} of {count_text(ends.benign.trials)}), "
                f"whether or not there is anything to hide; {_turned_down(ends)}."
            )


def _turned_down(ends: RewrittenEnds) -> str:
    """Say what that costs those who mean no harm."""
    if ends.spoiled is not None and ends.spoiled.trials:
        return (
            f"{count_text(ends.spoiled.successes)} of {count_text(ends.spoiled.trials)} that are "
            "helped without a guard are turned down"
        )
    refused = ends.over_refusal_rate
    return f"{count_text(refused.successes)} of {count_text(refused.trials)} are turned down"
