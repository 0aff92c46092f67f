"""How the answers of the target model ended: whole, cut at its limit, or marked as a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.defense.frame import MALFORMED, MISSING
from guardmark.analysis.pipeline.frame import ANSWERED, PlaceRates, counts_as_help
from guardmark.core.chunks import split_prefix
from guardmark.core.outcome import CUT_REASONS, NATIVE_REFUSAL, PROVIDER_ACTIONS, BlockedAt
from guardmark.core.place import NO_GUARD, Place
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.values import dataclass
from guardmark.net.provider_blocks import is_filter_reason
from guardmark.parsing.refusals import begins_refusing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.analysis.defense.frame import Frame
    from guardmark.analysis.pipeline.frame import Ends, PipelineFrame
    from guardmark.analysis.pipeline.walks import PipelineArm
    from guardmark.core.estimate import Estimate
    from guardmark.core.record import Record
    from guardmark.stats.arguments import Flags
    from guardmark.store.reader import RecordReader


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerEnds:
    """How the answers to the samples of one label ended.

    Attributes:
        is_attack: Whether they answer attacks.
        cut: Answers cut off at the model's limit of tokens, of all answers.
        declined: Answers that the model marked as a refusal itself, of all answers.
        filtered: Answers that the provider's filter broke off after some words, of all.
    """

    is_attack: bool
    cut: Estimate
    declined: Estimate
    filtered: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderBlocks:
    """What the provider of the target model blocked in one arm, as a guard of its own.

    Attributes:
        attacks: Attacks it blocked, of all with a known outcome.
        benign: Benign samples it blocked, of all with a known outcome.
        at_input: Samples it did not let in.
        at_output: Samples whose answer it did not let out.
    """

    attacks: Estimate
    benign: Estimate
    at_input: int
    at_output: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """What a part that reads texts could not look at, since its own provider filtered them.

    Attributes:
        part: Name of the judge or of the guard.
        kind: `judge` or `defense`.
        attacks: Of attacks it was shown.
        benign: Of benign samples it was shown.
    """

    part: str
    kind: str
    attacks: Estimate
    benign: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerMarks:
    """How each answer of the model ended, place by place.

    Attributes:
        blocked_at_input: Where the provider blocked the request, by what guards had made of it, as
            `RewrittenTexts.names` say.
    """

    is_cut: Flags
    is_declined: Flags
    is_filtered: Flags
    blocked_at_input: Mapping[str, Flags]
    is_refusal_called_help: Flags


def read_marks(reader: RecordReader, pipeline: PipelineFrame, *, is_attack: Flags) -> AnswerMarks:
    """Read from the model's answers and their evidence how they ended."""
    cut, declined, filtered, called_help = (
        np.zeros(len(pipeline.model), dtype=np.bool_) for _ in range(4)
    )
    helped = counts_as_help(pipeline.judging) & ~is_attack if pipeline.judging else called_help
    at_input = {"": np.zeros(len(pipeline.model), dtype=np.bool_)}
    for record in reader.records(stage=Stage.MODEL):
        place, name = _place(pipeline.frame, record), record.key.defense
        reason = action = ""
        if record.evidence is not None:
            reason, action = record.evidence.finish_reason, record.evidence.native_action
        if action == PROVIDER_ACTIONS[BlockedAt.INPUT]:
            after = name.removeprefix(NO_GUARD)
            at_input.setdefault(after, np.zeros(len(cut), dtype=np.bool_))[place] = True
        if name != NO_GUARD:
            continue
        if helped[place]:
            called_help[place] = begins_refusing(record.text or "")
        cut[place] = reason in CUT_REASONS
        filtered[place] = is_filter_reason(reason)
        declined[place] = action == NATIVE_REFUSAL
    return AnswerMarks(
        is_cut=cut,
        is_declined=declined,
        is_filtered=filtered,
        blocked_at_input=at_input,
        is_refusal_called_help=called_help,
    )


def rate_refusals_called_help(
    rates: PlaceRates, pipeline: PipelineFrame, marks: AnswerMarks
) -> Estimate | None:
    """Estimate how many benign answers that count as help refuse in their first words.

    Of all benign answers that count as help; None where nobody judged.
    """
    if pipeline.judging is None:
        return None
    helped = counts_as_help(pipeline.judging) & ~rates.is_attack
    return rates.of(marks.is_refusal_called_help, helped)


def rate_answers(
    rates: PlaceRates, pipeline: PipelineFrame, marks: AnswerMarks
) -> tuple[AnswerEnds, ...]:
    """Estimate how often answers were cut off, marked as a refusal, or broken off by a filter."""
    answered = pipeline.model == ANSWERED
    ends = []
    for is_attack in (True, False):
        mine = answered & (rates.is_attack == is_attack)
        ends.append(
            AnswerEnds(
                is_attack=is_attack,
                cut=rates.of(marks.is_cut, mine),
                declined=rates.of(marks.is_declined, mine),
                filtered=rates.of(marks.is_filtered, mine),
            )
        )
    return tuple(ends)


def rate_provider(
    rates: PlaceRates, arm: PipelineArm, ends: Ends, *, marks: AnswerMarks
) -> ProviderBlocks:
    """Estimate what the provider of the model blocked behind the guard of an arm."""
    at_input = np.zeros(len(arm.by_provider), dtype=np.bool_)
    for code, after in enumerate(arm.came_out.names):
        if after in marks.blocked_at_input:
            here = arm.by_provider & (arm.came_out.codes == code)
            at_input |= here & marks.blocked_at_input[after]
    return ProviderBlocks(
        attacks=rates.of(arm.by_provider, ends.is_known & rates.is_attack),
        benign=rates.of(arm.by_provider, ends.is_known & ~rates.is_attack),
        at_input=int(np.count_nonzero(at_input)),
        at_output=int(np.count_nonzero(arm.by_provider)) - int(np.count_nonzero(at_input)),
    )


def find_unseen(
    reader: RecordReader, frame: Frame, *, pipeline: PipelineFrame | None
) -> tuple[Unseen, ...]:
    """Find the guards and judges whose provider filtered what they were to read."""
    parts = [(arm.name, Stage.DEFENSE, FIRST_LAYER, frame.matrix(arm)) for arm in frame.arms]
    for arm in () if pipeline is None else pipeline.arms:
        behind = [
            step for step in arm.steps if step.place is Place.OUTPUT and step.stored != step.guard
        ]
        parts += [(each.stored, Stage.DEFENSE, FIRST_LAYER, each.decision) for each in behind]
    for judging in () if pipeline is None else pipeline.judgings:
        parts += [(each.name, Stage.JUDGE, each.layer, each.label) for each in judging.judges]
    rates = PlaceRates(frame, frame.settings)
    found = []
    for name, stage, layer, outcomes in parts:
        if not (outcomes == MALFORMED).any():
            continue
        defense = name if stage is Stage.DEFENSE else NO_GUARD
        unseen = np.zeros(len(outcomes), dtype=np.bool_)
        for each in (defense, *_prefixes(reader, defense)):
            for record in reader.records(defense=each, stage=stage, layer=layer):
                unseen[_place(frame, record)] |= _is_unseen(record)
        unseen &= outcomes == MALFORMED  # a prefix that another arm asked about is not of this one
        asked = outcomes != MISSING
        if unseen.any():
            found.append(
                Unseen(
                    part=name,
                    kind=stage.value,
                    attacks=rates.of(unseen, asked & rates.is_attack),
                    benign=rates.of(unseen, asked & ~rates.is_attack),
                )
            )
    return tuple(dict.fromkeys(found))


def _prefixes(reader: RecordReader, stored: str) -> list[str]:
    """Return the names under which a guard was asked about prefixes of answers."""
    named = ((name, *split_prefix(name)) for name in reader.defenses())
    return [name for name, whole, shown in named if whole == stored and shown is not None]


def _is_unseen(record: Record) -> bool:
    if record.outcome != "malformed" or record.evidence is None:
        return False
    return record.evidence.is_provider_block


def _place(frame: Frame, record: Record) -> int:
    return record.key.repeat * frame.sample_count + record.key.sample
