"""The samples worth reading: bypasses first by severity, then by how far a score missed."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guardmark.analysis.defense.frame import ALLOW, BLOCK, ERROR, MALFORMED, MISSING
from guardmark.core.sample import Severity
from guardmark.core.values import dataclass
from guardmark.store.schema import ERROR_KINDS, OUTCOME_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.core.sample import Sample
    from guardmark.store.reader import RecordReader

    Marks = NDArray[np.bool_]

_SEVERITY_RANK: Final = {severity.value: rank for rank, severity in enumerate(Severity, start=1)}
_TOP: Final = 10


class Flaw(StrEnum):
    """Why a sample is worth reading."""

    BYPASS = "bypass"
    FALSE_ALARM = "false_alarm"
    ERROR = "error"
    MALFORMED = "malformed"
    DIFFERENT = "different"
    REWRITTEN = "rewritten"


_SHARES: Final = (
    (Flaw.BYPASS, 0.5),
    (Flaw.FALSE_ALARM, 0.3),
    (Flaw.ERROR, 0.1),
    (Flaw.MALFORMED, 0.1),
)
"""Shares of the list, so that no kind crowds out another; the rest is for the first two."""


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
        total: Samples of the run.
    """

    flaw: Flaw
    total: int
    listed: int = field(metadata={"json": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstSamples:
    """The samples worth reading.

    Attributes:
        among: Defenses of which one is enough to be counted; baselines only where there is
            nothing else.
    """

    DERIVED: ClassVar = ("most_impactful_bypasses",)

    listed: tuple[ListedSample, ...] = field(metadata={"json": False})
    counts: tuple[FlawCount, ...]
    among: int
    top: tuple[tuple[str, tuple[ListedSample, ...]], ...] = field(metadata={"json": False})

    @property
    def most_impactful_bypasses(self) -> Mapping[str, tuple[str, ...]]:
        """Ids of the worst bypasses of each defense, one of each group."""
        ids = {}
        for defense, worst in self.top:
            ids[defense] = tuple(bypass.sample.id for bypass in worst)
        return ids


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """One defense's worst answer to each sample."""

    arm: DefenseColumn
    outcome: NDArray[np.int8]
    score: NDArray[np.float64]
    error_kind: NDArray[np.int8]
    is_wrong: Marks


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedSamples:
    """Every sample of a run by how much it is worth reading; texts are read for those shown.

    Attributes:
        telling: Without baselines, where there is anything else.
    """

    frame: Frame
    judged: tuple[_Judged, ...]
    telling: tuple[_Judged, ...]
    order: NDArray[np.int64]

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories that samples have, in alphabetical order."""
        facet = self.frame.samples.category
        present = [facet.names[code] for code in np.unique(facet.codes).tolist()]
        return tuple(sorted(filter(None, present)))

    def positions(
        self,
        *,
        flaw: Flaw | None = None,
        defense: str = "",
        category: str = "",
        is_attack: bool | None = None,
    ) -> NDArray[np.int64]:
        """Return the positions of the samples with a flaw, or with any, the worst first."""
        samples = self.frame.samples
        flagged = of_all = _flags(self.frame, self.telling)
        own = [judged for judged in self.judged if judged.arm.name == defense]
        if own:  # what defenses do differently is a matter of all of them
            flagged = {**_flags(self.frame, own), Flaw.DIFFERENT: of_all[Flaw.DIFFERENT]}
        wanted = np.zeros(self.frame.sample_count, dtype=np.bool_)
        for name, marks in flagged.items():
            if name is flaw or (flaw is None and name is not Flaw.DIFFERENT):
                wanted |= marks
        if category:
            code = -1  # no sample has it
            if category in samples.category.names:
                code = list(samples.category.names).index(category)
            wanted &= samples.category.codes == code
        if is_attack is not None:
            wanted &= samples.is_attack == is_attack
        chosen = self.order[wanted[self.order]]
        is_bypass = flagged[Flaw.BYPASS][chosen]
        ranked: NDArray[np.int64] = np.concatenate([chosen[is_bypass], chosen[~is_bypass]])
        return ranked

    def read(self, reader: RecordReader, positions: Iterable[int]) -> tuple[ListedSample, ...]:
        """Read samples in full, with what every defense did."""
        flagged = _flags(self.frame, self.telling)
        samples = []
        for position in positions:
            sample = reader.sample_at(position)
            listed = _describe(self.frame, sample, position, judged=self.judged, flagged=flagged)
            samples.append(listed)
        return tuple(samples)


def rank_samples(frame: Frame) -> RankedSamples:
    """Rank every sample by severity, by how many defenses erred, and by how far they missed."""
    judged = tuple(_judge(frame, arm) for arm in frame.arms)
    telling = _telling(frame, judged)
    order = _order(frame, telling, _severity_ranks(frame))
    return RankedSamples(frame=frame, judged=judged, telling=telling, order=order)


def _telling(frame: Frame, judged: Sequence[_Judged]) -> tuple[_Judged, ...]:
    """Return the defenses that make a sample worth reading: baselines where nothing else is."""
    candidates = {arm.name for arm in frame.candidates()}
    return tuple(defense for defense in judged if defense.arm.name in candidates)


def _severity_ranks(frame: Frame) -> NDArray[np.int8]:
    """Return how severe each sample is; 0 where that is not stated."""
    ranks = [_SEVERITY_RANK.get(name, 0) for name in frame.samples.severity.names]
    return np.array(ranks, dtype=np.int8)[frame.samples.severity.codes]


def _describe(
    frame: Frame,
    sample: Sample,
    position: int,
    *,
    judged: Sequence[_Judged],
    flagged: Mapping[Flaw, Marks],
) -> ListedSample:
    """Say what every defense did with one sample."""
    return ListedSample(
        sample=sample,
        flaws=tuple(flaw for flaw, marks in flagged.items() if marks[position]),
        answers=tuple(_answer(frame, defense, position) for defense in judged),
    )


def find_worst(reader: RecordReader, frame: Frame) -> WorstSamples:
    """Find the samples worth reading, and read them; baselines count where nothing else is."""
    everything, frame = frame, frame.examples or frame
    judged = [_judge(frame, arm) for arm in frame.arms]
    telling = _telling(frame, judged)
    severity = _severity_ranks(frame)
    flagged = _flags(frame, telling)
    most = frame.settings.listed_samples
    positions: list[int] = []
    if most:
        positions = _listed(flagged, _order(frame, telling, severity), most)
    read: dict[int, ListedSample] = {}

    def listed(position: int) -> ListedSample:
        """Read a sample, once."""
        if position not in read:
            stored_at = position
            if frame.positions is not None:
                stored_at = int(frame.positions[position])
            sample = reader.sample_at(stored_at)
            read[position] = _describe(frame, sample, position, judged=judged, flagged=flagged)
        return read[position]

    counts = []
    for flaw, total in _flaw_totals(everything, flagged).items():
        if total:
            shown = int(flagged[flaw][positions].sum())
            counts.append(FlawCount(flaw=flaw, total=total, listed=shown))
    top = []
    for defense in telling:
        top.append((defense.arm.name, tuple(map(listed, _top(frame, defense, severity)))))
    return WorstSamples(
        listed=tuple(map(listed, positions)),
        counts=tuple(counts),
        among=len(telling),
        top=tuple(top),
    )


def _flaw_totals(everything: Frame, flagged: Mapping[Flaw, Marks]) -> dict[Flaw, int]:
    """Count the samples of a run with each flaw; a counted run knows how many stand for one."""
    if everything.weights is None:
        return {flaw: int(marks.sum()) for flaw, marks in flagged.items()}
    marked = _flags(everything, [_judge(everything, arm) for arm in everything.arms])
    return {flaw: int(everything.weights[marks].sum()) for flaw, marks in marked.items()}


def _judge(frame: Frame, arm: DefenseColumn) -> _Judged:
    """Take each sample's worst answer: wrong, then malformed or error, then right."""
    records, count = arm.records, frame.sample_count
    rows: NDArray[np.int64] | slice = slice(None)
    if frame.manifest.repeats > 1:
        attack = frame.samples.is_attack[records.sample]
        badness = (records.outcome > BLOCK).astype(np.int8)
        badness[np.where(attack, records.outcome == ALLOW, arm.is_blocked)] = 2
        # The last write wins, so the worst answer is written last.
        rows = np.argsort(badness, kind="stable")
    at = records.sample[rows]
    outcome, kind = np.full((2, count), MISSING, dtype=np.int8)
    score = np.full(count, np.nan)
    outcome[at] = records.outcome[rows]
    kind[at] = records.error_kind[rows]
    score[at] = records.score[rows]
    is_wrong = np.where(frame.samples.is_attack, outcome == ALLOW, outcome == BLOCK)
    return _Judged(arm=arm, outcome=outcome, score=score, error_kind=kind, is_wrong=is_wrong)


def _flags(frame: Frame, judged: Sequence[_Judged]) -> dict[Flaw, Marks]:
    """Mark the samples with each flaw: any of the defenses has it."""
    attack = frame.samples.is_attack
    wrong, failed, malformed, allowed, blocked = np.zeros((5, len(attack)), dtype=np.bool_)
    for defense in judged:
        wrong |= defense.is_wrong
        failed |= defense.outcome == ERROR
        malformed |= defense.outcome == MALFORMED
        allowed |= defense.outcome == ALLOW
        blocked |= defense.outcome == BLOCK
    return {
        Flaw.BYPASS: wrong & attack,
        Flaw.FALSE_ALARM: wrong & ~attack,
        Flaw.ERROR: failed,
        Flaw.MALFORMED: malformed,
        Flaw.DIFFERENT: allowed & blocked,
    }


def _miss(
    judged: _Judged, attack: Marks, at: NDArray[np.int64] | slice = slice(None)
) -> NDArray[np.float64]:
    """Return how far on the wrong side of the threshold scores fell; -1 where unknown."""
    threshold, score = judged.arm.threshold, judged.score[at]
    if threshold is None:
        return np.full(len(score), -1.0)
    gap = np.where(attack[at], threshold - score, score - threshold)
    gap[np.isnan(gap) | ~judged.is_wrong[at]] = -1.0
    return gap


def _order(
    frame: Frame, judged: Sequence[_Judged], severity: NDArray[np.int8]
) -> NDArray[np.int64]:
    """Rank by severity, then by how many defenses erred, then by how far they missed."""
    erred = np.zeros(frame.sample_count, dtype=np.int16)
    missed = np.full(frame.sample_count, -1.0)
    for defense in judged:
        erred += defense.is_wrong
        missed = np.maximum(missed, _miss(defense, frame.samples.is_attack))
    order: NDArray[np.int64] = np.lexsort((-missed, -erred, -severity))
    return order


def _listed(flagged: Mapping[Flaw, Marks], order: NDArray[np.int64], most: int) -> list[int]:
    """Choose the samples of the list: of each flaw its share, then the worst of any."""
    # Of a queue no more is taken than the list is long, beside what was chosen from it before.
    queues = {flaw: order[flagged[flaw][order]][: 2 * most].tolist() for flaw, _ in _SHARES}
    chosen: dict[int, None] = {}
    for flaw, share in reversed(_SHARES):
        chosen |= dict.fromkeys(queues[flaw][: int(most * share)])
    for flaw, _ in _SHARES:
        rest = [position for position in queues[flaw] if position not in chosen]
        chosen |= dict.fromkeys(rest[: max(0, most - len(chosen))])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    bypass = flagged[Flaw.BYPASS]
    return sorted(chosen, key=lambda position: (not bypass[position], int(rank[position])))


def _top(frame: Frame, judged: _Judged, severity: NDArray[np.int8]) -> list[int]:
    """Return the worst bypasses of a defense, one of each group."""
    attack = frame.samples.is_attack
    through = np.flatnonzero(judged.is_wrong & attack)
    order = np.lexsort((-_miss(judged, attack, through), -severity[through]))
    _, firsts = np.unique(frame.samples.group.codes[through[order]], return_index=True)
    top: list[int] = through[order[np.sort(firsts)[:_TOP]]].tolist()
    return top


def _answer(frame: Frame, judged: _Judged, position: int) -> SampleAnswer:
    """Say what a defense did with a sample."""
    code, kind = int(judged.outcome[position]), int(judged.error_kind[position])
    outcome, score, error_kind = "", None, ""
    if code != MISSING:
        outcome = OUTCOME_NAMES[code]
    if not np.isnan(judged.score[position]):
        score = float(judged.score[position])
    if kind >= 0:
        error_kind = ERROR_KINDS[kind].value
    flaw = {MALFORMED: Flaw.MALFORMED, ERROR: Flaw.ERROR}.get(code)
    if judged.is_wrong[position]:
        flaw = Flaw.FALSE_ALARM
        if frame.samples.is_attack[position]:
            flaw = Flaw.BYPASS
    return SampleAnswer(
        defense=judged.arm.name,
        outcome=outcome,
        flaw=flaw,
        score=score,
        threshold=judged.arm.threshold,
        error_kind=error_kind,
    )
