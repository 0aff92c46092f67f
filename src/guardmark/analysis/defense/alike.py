"""Services whose answers are all alike: they may not have read what they were sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from guardmark.core.record import Stage
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from guardmark.analysis.defense.frame import Frame
    from guardmark.core.record import Record
    from guardmark.store.reader import RecordReader

LEAST_ALIKE: Final = 10
"""Answers to attacks, and as many to benign samples, from which on equal answers tell something."""
_SERVICE: Final = "http"
_ANSWERS: Final = ("allow", "block")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeAnswers:
    """A service that answered every attack and every benign sample the same.

    Attributes:
        defense: Name of the defense.
        outcome: What it said of each: allow or block.
        count: How many answers that were.
        body: What it was sent, as JSON with the places of the texts.
    """

    defense: str
    outcome: str
    count: int
    body: str


def find_alike(reader: RecordReader, frame: Frame) -> tuple[AlikeAnswers, ...]:
    """Find the services all of whose answers are alike, to attacks and benign samples both."""
    found = []
    for arm in frame.arms:
        if arm.part.type != _SERVICE:
            continue
        counts = reader.counts(arm.name)
        outcomes = {outcome for _, outcome in counts if outcome in _ANSWERS}
        if len(outcomes) != 1:
            continue
        (outcome,) = outcomes
        if min(counts[True, outcome], counts[False, outcome]) < LEAST_ALIKE:
            continue
        if _says_one_thing(reader, arm.name):
            found.append(
                AlikeAnswers(
                    defense=arm.name,
                    outcome=outcome,
                    count=counts[True, outcome] + counts[False, outcome],
                    body=json.dumps(arm.part.settings.get("body"), ensure_ascii=False),
                )
            )
    return tuple(found)


def _says_one_thing(reader: RecordReader, defense: str) -> bool:
    """Tell whether no answer differs from the first in score, reason or categories."""
    first: object = None
    for record in reader.records(defense=defense, stage=Stage.DEFENSE):
        if record.outcome not in _ANSWERS:
            continue
        said = _said(record)
        first = said if first is None else first
        if said != first:
            return False
    return True


def _said(record: Record) -> object:
    evidence = record.evidence
    if evidence is None:
        return record.score, "", "", ()
    return record.score, evidence.native_action, evidence.reason, evidence.categories
