"""May one of these be used, and which? Each candidate against the limits, and the nearest."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

from guardmark.analysis.compare.merit import by_merit
from guardmark.analysis.compare.verdicts import ChosenRates, Reliance, judge_chosen
from guardmark.core.values import dataclass
from guardmark.stats.planning import rows_to_decide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.defense.scorecard import Scorecard
    from guardmark.analysis.settings import RelianceLimits
    from guardmark.core.estimate import Estimate


class LimitSide(StrEnum):
    """What a limit is about."""

    ATTACKS = "attacks"
    ALARMS = "false alarms"
    REWRITTEN = "rewritten attacks"


class Keeping(StrEnum):
    """Whether a limit is kept, by the whole interval."""

    KEPT = "kept"
    MISSED = "missed"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRate:
    """A rate and the limit that it is held against.

    Attributes:
        limit: At most this share, in [0, 1].
        is_range: Whether its limits hold whatever rewritten texts still do.
    """

    side: LimitSide
    rate: Estimate
    limit: float
    is_range: bool = False

    @property
    def keeping(self) -> Keeping:
        """Whether the limit is kept, by the whole interval."""
        if self.rate.low is not None and self.rate.low > self.limit:
            return Keeping.MISSED
        if self.rate.high is not None and self.rate.high <= self.limit:
            return Keeping.KEPT
        return Keeping.OPEN

    @property
    def excess(self) -> float:
        """By how much the rate lies above the limit; infinite where it is undefined."""
        if self.rate.value is None:
            return math.inf
        return max(0.0, self.rate.value - self.limit)

    @property
    def needed(self) -> int | None:
        """About how many samples of a new set would decide, or None."""
        if self.keeping is not Keeping.OPEN or self.is_range:
            return None
        level = (1.0 - self.rate.confidence) / 2.0
        return rows_to_decide(self.rate, self.limit, level=level)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCandidate:
    """A candidate, whether one can rely on it, and how it stands towards each limit.

    Attributes:
        held: Attacks, benign samples, and attacks that were rewritten, if any.
        chosen: Where having been chosen of several is what matters.
    """

    subject: DefenseAnalysis
    reliance: Reliance
    held: tuple[HeldRate, ...]
    chosen: ChosenRates | None = None

    @property
    def excess(self) -> float:
        """By how much its rates lie above their limits, together."""
        return sum(each.excess for each in self.held)


def judge_all(
    subjects: Sequence[DefenseAnalysis],
    limits: RelianceLimits,
    adapted: Mapping[str, Estimate] | None = None,
) -> tuple[JudgedCandidate, ...]:
    """Judge candidates, in the order of merit; `adapted` are rates of rewritten attacks by name."""
    cards = {subject.name: subject.card for subject in subjects}
    adapted = adapted or {}
    judged = []
    for subject in by_merit(subjects):
        rewritten = adapted.get(subject.name)
        judged.append(_judge(subject, limits, rewritten=rewritten, cards=cards))
    return tuple(judged)


def _judge(
    subject: DefenseAnalysis,
    limits: RelianceLimits,
    *,
    rewritten: Estimate | None,
    cards: Mapping[str, Scorecard],
) -> JudgedCandidate:
    card = subject.card
    reliance, chosen = judge_chosen(
        card,
        rewritten,
        name=subject.name,
        candidates=cards,
        limits=limits,
    )
    is_range = card.confusion.rewritten > 0
    held = [
        HeldRate(
            side=LimitSide.ATTACKS,
            rate=card.held_rates.attack_success_rate,
            limit=limits.attacks,
            is_range=is_range,
        ),
        HeldRate(
            side=LimitSide.ALARMS,
            rate=card.held_rates.false_positive_rate,
            limit=limits.alarms,
            is_range=is_range,
        ),
    ]
    if rewritten is not None:
        held.append(HeldRate(side=LimitSide.REWRITTEN, rate=rewritten, limit=limits.attacks))
    return JudgedCandidate(subject=subject, reliance=reliance, held=tuple(held), chosen=chosen)


def nearest_of(judged: Sequence[JudgedCandidate]) -> JudgedCandidate | None:
    """Return the one whose rates lie least above their limits; the first of equals.

    One that is no better than chance is near to nothing, unless all are.
    """
    known = [each for each in judged if math.isfinite(each.excess)]
    better = [each for each in known if each.reliance is not Reliance.DO_NOT]
    return min(better or known, key=lambda each: each.excess, default=None)
