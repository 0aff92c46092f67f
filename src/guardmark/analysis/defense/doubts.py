"""Defenses whose figures are doubtful, because they or their answers were probably misread."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.frame import DefenseColumn
from guardmark.analysis.defense.scorecard import complement, estimate_errors
from guardmark.core.place import Place, stored_name
from guardmark.core.record import Stage
from guardmark.core.values import dataclass
from guardmark.parsing.labels import says_changed
from guardmark.store.columns import record_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.defense.frame import Frame
    from guardmark.core.estimate import Estimate
    from guardmark.core.manifest import PartManifest
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
        if first is None:
            first = said
        if said != first:
            return False
    return True


def _said(record: Record) -> object:
    evidence = record.evidence
    if evidence is None:
        return record.score, "", "", ()
    return record.score, evidence.native_action, evidence.reason, evidence.categories


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceWords:
    """How often a service answered with some of its words, such as those for a changed text.

    Attributes:
        defense: Name of the defense; with `@output`, of its decisions about a model's answers.
        words: Which of the words it used, such as MASKED or REVIEW.
        attacks: Attacks answered with one of them, of those it decided about.
        benign: Benign samples answered with one of them, of those it decided about.
    """

    defense: str
    words: tuple[str, ...]
    attacks: Estimate
    benign: Estimate


def find_changed_texts(reader: RecordReader, frame: Frame) -> tuple[ServiceWords, ...]:
    """Find the services that changed texts and are counted as if they had allowed them."""
    if frame.weights is not None:
        return ()
    found = []
    for arm in frame.arms:
        counted = _count_words(reader, frame, arm, _words_for_changed(arm.part))
        if counted is not None:
            found.append(counted)
    return tuple(found)


def find_flagged_texts(reader: RecordReader, frame: Frame) -> tuple[ServiceWords, ...]:
    """Find the services that flagged inputs or answers, as their configurations say."""
    if frame.weights is not None:
        return ()
    recorded = {name for name, stage, _ in reader.recorded_stages() if stage is Stage.DEFENSE}
    found = []
    for part in frame.manifest.parts:
        words = _words_that_mean(part, "flag")
        if part.kind != "defense" or not words:
            continue
        for name in (part.name, stored_name(part.name, Place.OUTPUT)):
            if name not in recorded:
                continue
            records = record_columns(reader, name, is_every=frame.is_every)
            column = DefenseColumn(part=part, records=records, threshold=None)
            counted = _count_words(reader, frame, column, words)
            if counted is not None:
                found.append(counted)
    return tuple(found)


def _words_for_changed(part: PartManifest) -> frozenset[str]:
    """Return the words of a service for a changed text that its configuration reads as allowed."""
    return frozenset(word for word in _words_that_mean(part, "allow") if says_changed(word))


def _words_that_mean(part: PartManifest, meaning: str) -> frozenset[str]:
    """Return the words of a service that have some meaning in its configuration."""
    actions = part.settings.get("actions")
    if not isinstance(actions, Mapping):
        return frozenset()
    return frozenset(word for word, stated in actions.items() if stated == meaning)


def _count_words(
    reader: RecordReader, frame: Frame, arm: DefenseColumn, words: frozenset[str]
) -> ServiceWords | None:
    """Count the samples that were answered with one of the words; None where none was."""
    if not words:
        return None
    seen, places = set[str](), []
    for record in reader.records(defense=arm.records.defense, stage=Stage.DEFENSE):
        if record.evidence is not None and record.evidence.native_action in words:
            seen.add(record.evidence.native_action)
            places.append(record.key.repeat * frame.sample_count + record.key.sample)
    if not places:
        return None
    records = arm.records
    own = records.repeat.astype(np.int64) * frame.sample_count + records.sample
    marks = np.isin(own, places)
    rates = estimate_errors(frame, arm, blocked=marks, trials=arm.is_answered)
    return ServiceWords(
        defense=arm.records.defense,
        words=tuple(sorted(seen)),
        attacks=complement(rates.attack_success_rate),
        benign=rates.false_positive_rate,
    )


_LEAST: Final = 5  # decisions of each kind: fewer may fall so by chance
_MOST: Final = 10_000  # decisions that are compared: more would say the same
_CONTRARY: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreContradiction:
    """A defense whose blocked samples have lower scores than those it allowed.

    Attributes:
        defense: Its name.
        share: Share of pairs in which the blocked sample has the higher score, in [0, 1]; ties
            count half.
        blocked: Decisions to block that were compared.
        allowed: Decisions to allow that were compared.
    """

    defense: str
    share: float
    blocked: int
    allowed: int

    @property
    def sentence(self) -> str:
        """What is to be looked at."""
        return (
            f"{self.defense}: the scores contradict the decisions: of {self.blocked:,} blocked and "
            f"{self.allowed:,} allowed samples, the blocked one has the higher score in "
            f"{100 * self.share:.0f} % of pairs. Either the score means certainty, not risk, or "
            "the decision was read the wrong way; do not use thresholds of it"
        )


def find_contradictions(frame: Frame) -> Iterator[ScoreContradiction]:
    """Find the defenses whose scores rank what they blocked below what they allowed."""
    for column in frame.arms:
        where = np.flatnonzero(column.is_scored)[:_MOST]
        if not len(where):
            continue
        scores, is_blocked = column.records.score[where], column.is_blocked[where]
        high, low = scores[is_blocked], np.sort(scores[~is_blocked])
        if min(len(high), len(low)) < _LEAST:
            continue
        below = np.searchsorted(low, high, side="left")
        up_to = np.searchsorted(low, high, side="right")
        share = float((below + up_to).sum()) / (2 * len(high) * len(low))
        if share < _CONTRARY:
            yield ScoreContradiction(
                defense=column.name, share=share, blocked=len(high), allowed=len(low)
            )
