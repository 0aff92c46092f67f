"""How the answers of the target model ended: whole, cut at its limit, or marked as a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.pipeline.frame import ANSWERED, NO_GUARD
from guardmark.core.outcome import CUT_REASONS, NATIVE_REFUSAL
from guardmark.core.record import Stage

if TYPE_CHECKING:
    from guardmark.analysis.pipeline.frame import PipelineFrame, PlaceRates
    from guardmark.core.estimate import Estimate
    from guardmark.store.reader import RecordReader

_SIDES: Final = (True, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerEnds:
    """How the answers to the samples of one label ended."""

    is_attack: bool  # Whether they answer attacks.
    cut: Estimate  # Answers cut off at the model's limit of tokens, of all answers.
    declined: Estimate  # Answers that the model marked as a refusal itself, of all answers.


def rate_answers(
    reader: RecordReader, rates: PlaceRates, pipeline: PipelineFrame
) -> tuple[AnswerEnds, ...]:
    """Estimate how often answers were cut off, and how often the model marked a refusal."""
    places = len(pipeline.model)
    count = pipeline.frame.sample_count
    is_cut, is_declined = np.zeros(places, dtype=np.bool_), np.zeros(places, dtype=np.bool_)
    for record in reader.records(defense=NO_GUARD, stage=Stage.MODEL):
        if record.evidence is not None:
            place = record.key.repeat * count + record.key.sample
            is_cut[place] = record.evidence.finish_reason in CUT_REASONS
            is_declined[place] = record.evidence.native_action == NATIVE_REFUSAL
    answered = pipeline.model == ANSWERED
    return tuple(
        AnswerEnds(
            is_attack=side,
            cut=rates.of(is_cut, answered & (rates.is_attack == side)),
            declined=rates.of(is_declined, answered & (rates.is_attack == side)),
        )
        for side in _SIDES
    )
