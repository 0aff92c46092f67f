"""The samples worth reading: bypasses first by severity, then by how far a score missed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guardmark.analysis.defense.frame import ALLOW, BLOCK, ERROR, MALFORMED, MISSING
from guardmark.core.sample import Severity
from guardmark.store.schema import ERROR_KINDS, OUTCOME_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.sample import Sample
    from guardmark.store.reader import RecordReader

_SEVERITY_RANK: Final = {severity.value: rank for rank, severity in enumerate(Severity, start=1)}
_TOP: Final = 10


class Flaw(StrEnum):
    """Why a sample is worth reading."""

    BYPASS = "bypass"
    FALSE_ALARM = "false_alarm"
    ERROR = "error"
    MALFORMED = "malformed"
    DIFFERENT = "different"


_SHARES: Final = (
    (Flaw.BYPASS, 0.5),
    (Flaw.FALSE_ALARM, 0.3),
    (Flaw.ERROR, 0.1),
    (Flaw.MALFORMED, 0.1),
)
"""Shares of the list, so that one kind cannot crowd out the others; what is not used is
given to bypasses and false alarms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleAnswer:
    """What one defense did with a listed sample (its worst answer, when it was asked often).

    Attributes:
        defense: Its name.
        outcome: Word of the outcome; empty when it has not been asked.
        flaw: What is wrong with that, or None.
        score: In [0, 1], or None.
        threshold: Score from which the defense blocks, or None.
        error_kind: Kind of an error, or empty.
    """

    defense: str
    outcome: str
    flaw: Flaw | None
    score: float | None = None
    threshold: float | None = None
    error_kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSample:
    """One sample with what every defense did.

    Attributes:
        sample: In full.
        flaws: Every reason it is listed, in the order of `Flaw`.
        answers: One for each defense, in the order of the run.
    """

    sample: Sample
    flaws: tuple[Flaw, ...]
    answers: tuple[SampleAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlawCount:
    """How many samples have a flaw, and how many of them are listed.

    Attributes:
        flaw: Which.
        total: Samples of the run.
        listed: Of them in the list.
    """

    flaw: Flaw
    total: int
    listed: int = field(metadata={"json": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstSamples:
    """The samples worth reading.

    Attributes:
        listed: Worst first.
        counts: One for each flaw that occurs.
        top: For each defense that is no baseline: its most impactful bypasses, as positions in
            `listed` or samples of their own.
    """

    DERIVED: ClassVar = ("most_impactful_bypasses",)

    listed: tuple[ListedSample, ...] = field(metadata={"json": False})
    counts: tuple[FlawCount, ...]
    top: tuple[tuple[str, tuple[ListedSample, ...]], ...] = field(metadata={"json": False})

    @property
    def most_impactful_bypasses(self) -> Mapping[str, tuple[str, ...]]:
        """Ids of the worst bypasses of each defense."""
        return {name: tuple(each.sample.id for each in listed) for name, listed in self.top}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """One defense's worst answer to each sample."""

    arm: DefenseColumn
    outcome: NDArray[np.int8]
    score: NDArray[np.float64]
    error_kind: NDArray[np.int8]
    is_wrong: NDArray[np.bool_]


def find_worst(reader: RecordReader, frame: Frame, settings: AnalysisSettings) -> WorstSamples:
    """Find the samples worth reading, and read them.

    Baselines do not make a sample worth reading, unless the run has nothing else.
    """
    judged = [_judge(frame, arm) for arm in frame.arms]
    telling = [each for each in judged if not each.arm.is_baseline] or judged
    severity = _severity(frame)
    flagged = _flags(frame, telling)
    positions = list[int]()
    if settings.listed_samples:
        order = _order(frame, telling, severity)
        positions = _listed(flagged, order, settings.listed_samples)
    tops = {each.arm.name: _top(frame, each, severity) for each in telling}
    cache: dict[int, ListedSample] = {}

    def listed(position: int) -> ListedSample:
        if position not in cache:
            cache[position] = ListedSample(
                sample=reader.sample_at(position),
                flaws=tuple(flaw for flaw in Flaw if flagged[flaw][position]),
                answers=tuple(_answer(frame, each, position) for each in judged),
            )
        return cache[position]

    chosen = np.zeros(frame.sample_count, dtype=np.bool_)
    chosen[positions] = True
    return WorstSamples(
        listed=tuple(listed(position) for position in positions),
        counts=tuple(
            FlawCount(flaw=flaw, total=total, listed=int((flagged[flaw] & chosen).sum()))
            for flaw in Flaw
            if (total := int(flagged[flaw].sum()))
        ),
        top=tuple((name, tuple(listed(at) for at in found)) for name, found in tops.items()),
    )


def _judge(frame: Frame, arm: DefenseColumn) -> _Judged:
    """Take each sample's worst answer: wrong, then malformed or error, then right."""
    records, count = arm.records, frame.sample_count
    attack = frame.samples.is_attack[records.sample]
    wrong = np.where(attack, records.outcome == ALLOW, records.outcome == BLOCK)
    badness = (records.outcome > BLOCK).astype(np.int8)
    badness[wrong] = 2
    # The last write wins, so the worst answer is written last.
    rows = np.argsort(badness, kind="stable")
    at = records.sample[rows]
    outcome = np.full(count, MISSING, dtype=np.int8)
    outcome[at] = records.outcome[rows]
    score = np.full(count, np.nan)
    score[at] = records.score[rows]
    kind = np.full(count, -1, dtype=np.int8)
    kind[at] = records.error_kind[rows]
    is_wrong = np.where(frame.samples.is_attack, outcome == ALLOW, outcome == BLOCK)
    return _Judged(arm=arm, outcome=outcome, score=score, error_kind=kind, is_wrong=is_wrong)


def _flags(frame: Frame, judged: list[_Judged]) -> dict[Flaw, NDArray[np.bool_]]:
    attack = frame.samples.is_attack
    nobody = np.zeros(frame.sample_count, dtype=np.bool_)
    wrong, error, malformed, allowed, blocked = nobody, nobody, nobody, nobody, nobody
    for each in judged:
        wrong = wrong | each.is_wrong
        error = error | (each.outcome == ERROR)
        malformed = malformed | (each.outcome == MALFORMED)
        allowed = allowed | (each.outcome == ALLOW)
        blocked = blocked | (each.outcome == BLOCK)
    return {
        Flaw.BYPASS: wrong & attack,
        Flaw.FALSE_ALARM: wrong & ~attack,
        Flaw.ERROR: error,
        Flaw.MALFORMED: malformed,
        Flaw.DIFFERENT: allowed & blocked,
    }


def _severity(frame: Frame) -> NDArray[np.int8]:
    ranks = [_SEVERITY_RANK.get(name, 0) for name in frame.samples.severity.names]
    found: NDArray[np.int8] = np.array(ranks, dtype=np.int8)[frame.samples.severity.codes]
    return found


def _miss(
    judged: _Judged, attack: NDArray[np.bool_], at: NDArray[np.int64] | slice = slice(None)
) -> NDArray[np.float64]:
    """Return how far on the wrong side of the threshold scores fell; -1 where unknown."""
    threshold, score = judged.arm.threshold, judged.score[at]
    if threshold is None:
        return np.full(len(score), -1.0)
    gap = np.where(attack[at], threshold - score, score - threshold)
    gap[np.isnan(gap) | ~judged.is_wrong[at]] = -1.0
    return gap


def _order(frame: Frame, judged: list[_Judged], severity: NDArray[np.int8]) -> NDArray[np.int64]:
    """Rank by severity, then by how many defenses erred, then by how far they missed."""
    attack = frame.samples.is_attack
    if not judged:  # a pipeline without any guard
        return np.argsort(-severity, kind="stable")
    erred = sum(each.is_wrong.astype(np.int16) for each in judged)
    missed = np.max([_miss(each, attack) for each in judged], axis=0)
    order: NDArray[np.int64] = np.lexsort((-missed, -np.asarray(erred), -severity))
    return order


def _listed(
    flagged: dict[Flaw, NDArray[np.bool_]], order: NDArray[np.int64], most: int
) -> list[int]:
    # Of a queue no more is taken than the list is long, beside what was chosen from it before.
    queues = {flaw: order[flagged[flaw][order]][: 2 * most].tolist() for flaw, _ in _SHARES}
    chosen: dict[int, None] = {}
    for flaw, share in reversed(_SHARES):
        for position in queues[flaw][: int(most * share)]:
            chosen[position] = None
    for flaw, _ in _SHARES:
        for position in queues[flaw]:
            if len(chosen) >= most:
                break
            chosen[position] = None
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    bypass = flagged[Flaw.BYPASS]
    return sorted(chosen, key=lambda position: (not bypass[position], int(rank[position])))


def _top(frame: Frame, judged: _Judged, severity: NDArray[np.int8]) -> list[int]:
    attack = frame.samples.is_attack
    through = np.flatnonzero(judged.is_wrong & attack)
    order = np.lexsort((-_miss(judged, attack, through), -severity[through]))
    top: list[int] = through[order[:_TOP]].tolist()
    return top


def _answer(frame: Frame, judged: _Judged, position: int) -> SampleAnswer:
    outcome, kind = int(judged.outcome[position]), int(judged.error_kind[position])
    score = float(judged.score[position])
    flaw = None
    if judged.is_wrong[position]:
        flaw = Flaw.BYPASS if frame.samples.is_attack[position] else Flaw.FALSE_ALARM
    elif outcome in {MALFORMED, ERROR}:
        flaw = Flaw.MALFORMED if outcome == MALFORMED else Flaw.ERROR
    return SampleAnswer(
        defense=judged.arm.name,
        outcome="" if outcome == MISSING else OUTCOME_NAMES[outcome],
        flaw=flaw,
        score=None if np.isnan(score) else score,
        threshold=judged.arm.threshold,
        error_kind="" if kind < 0 else ERROR_KINDS[kind].value,
    )
