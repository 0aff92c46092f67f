"""Arms without one of their guards, and each guard alone: the same program over stored calls."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.defense.frame import ALLOW, BLOCK, MISSING, REWRITTEN
from guardmark.analysis.pipeline.frame import ANSWERED, find_ends, waited_ms
from guardmark.core.place import Place
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.pipeline.frame import Ends, PipelineFrame, PlaceRates
    from guardmark.analysis.pipeline.walks import PipelineArm, StatedGuard
    from guardmark.core.estimate import Difference, Estimate
    from guardmark.stats.arguments import Flags


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingCalls:
    """Calls that a walk needs and that were never made.

    Attributes:
        part: Whom they would ask.
        count: How many.
    """

    part: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareBetween:
    """A share of all samples of a label, of which some are not known.

    Attributes:
        lowest: Where what is not known, by a missing call or a failure, has the property nowhere.
        highest: Where it has it everywhere.
    """

    lowest: Estimate
    highest: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardLeftOut:
    """One guard of an arm: what it stops alone, and what the arm comes to without it.

    Attributes:
        guard: Its name; it is left out at every place where it stands.
        attacks_alone: Attacks it stops with no other guard in the arm, of those it decides about.
            Of a guard of documents: of which it leaves one out.
        benign_alone: Benign samples likewise.
        attacks_only: Attacks that it stops alone and no other guard of the arm does.
        attack_success_rate: Of the arm without it, of outcomes that are known.
        over_refusal_rate: Likewise.
        attacks_between: Attacks that succeed without it, of all that were asked.
        more_attacks: Attack success without it less that of the whole arm, paired; positive means
            that it helps.
        more_refusals: Over-refusal without it less that of the whole arm; negative means that it
            costs benign samples.
        less_ms: How much less one waits without it; positive means that it takes time.
        missing: Calls that the arm without it needs and that were never made.
        missing_alone: Calls that it needs alone and that were never made.
    """

    guard: str
    attacks_alone: Estimate
    benign_alone: Estimate
    attacks_only: ShareBetween
    attack_success_rate: Estimate
    over_refusal_rate: Estimate
    attacks_between: ShareBetween
    more_attacks: Difference
    more_refusals: Difference
    less_ms: Difference = field(metadata={"json": False})
    missing: tuple[MissingCalls, ...]
    missing_alone: tuple[MissingCalls, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveOneOut:
    """What each guard of an arm of several is worth.

    Attributes:
        together: Attacks that at least one of its guards stops alone.
        benign_together: Benign samples likewise.
        by_all: Attacks that every one of them stops alone.
        guards: Each of them, in order.
    """

    together: ShareBetween
    benign_together: ShareBetween
    by_all: ShareBetween
    guards: tuple[GuardLeftOut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alone:
    """A guard by itself around the model: where it stops, and where that is known."""

    guard: str
    stops: Flags
    decides: Flags
    missing: tuple[MissingCalls, ...]


def leave_one_out(
    rates: PlaceRates, pipeline: PipelineFrame, arm: PipelineArm, ends: Ends
) -> LeaveOneOut | None:
    """Walk an arm without each of its guards, and each of them alone; None where it has but one."""
    guards = list(dict.fromkeys(step.guard for step in arm.steps))
    if len(guards) < 2:
        return None
    alone = [_alone(pipeline, arm, guard) for guard in guards]
    is_attack, asked = rates.is_attack, ends.asked
    by_any, perhaps_by_any = np.zeros((2, len(asked)), dtype=np.bool_)
    by_all, perhaps_by_all = np.ones((2, len(asked)), dtype=np.bool_)
    rows = []
    for one in alone:
        by_any |= one.stops
        perhaps_by_any |= one.stops | ~one.decides
        by_all &= one.stops
        perhaps_by_all &= one.stops | ~one.decides
        others = [other for other in alone if other is not one]
        by_others = _any([other.stops for other in others])
        sure = one.stops & ~by_others & _all([other.decides for other in others])
        possible = (one.stops | ~one.decides) & ~by_others
        only = _between(rates, sure, possible, asked & is_attack)
        rows.append(_without(rates, pipeline, arm, ends, alone=one, only=only))
    return LeaveOneOut(
        together=_between(rates, by_any, perhaps_by_any, asked & is_attack),
        benign_together=_between(rates, by_any, perhaps_by_any, asked & ~is_attack),
        by_all=_between(rates, by_all, perhaps_by_all, asked & is_attack),
        guards=tuple(rows),
    )


def _between(rates: PlaceRates, sure: Flags, possible: Flags, among: Flags) -> ShareBetween:
    return ShareBetween(lowest=rates.of(sure, among), highest=rates.of(possible, among))


def _any(flags: Sequence[Flags]) -> Flags:
    found = flags[0].copy()
    for each in flags[1:]:
        found |= each
    return found


def _all(flags: Sequence[Flags]) -> Flags:
    return ~_any([~each for each in flags])


def _alone(pipeline: PipelineFrame, arm: PipelineArm, guard: str) -> _Alone:
    """Walk an arm that has but one of the guards."""
    kept = [(step.guard, step.place, step.stored) for step in arm.steps if step.guard == guard]
    walked = _walk(pipeline, arm, kept)
    missed = np.zeros(len(walked.decision), dtype=np.bool_)
    missing = []
    for name, flags in _missing(pipeline, walked, to_the_end=False):
        missed |= flags
        missing.append(MissingCalls(part=name, count=int(np.count_nonzero(flags))))
    # Without an answer there is nothing to look at behind the model: an error, and no decision.
    decides = np.isin(walked.decision, (ALLOW, BLOCK, REWRITTEN)) & ~missed
    return _Alone(
        guard=guard,
        stops=decides & ((walked.decision == BLOCK) | walked.is_left_out),
        decides=decides,
        missing=tuple(missing),
    )


def _without(
    rates: PlaceRates,
    pipeline: PipelineFrame,
    arm: PipelineArm,
    ends: Ends,
    *,
    alone: _Alone,
    only: ShareBetween,
) -> GuardLeftOut:
    """Walk an arm without a guard, and hold it against the whole, in pairs."""
    kept = []
    for step in arm.steps:
        if step.guard != alone.guard:
            kept.append((step.guard, step.place, step.stored))
    walked = _walk(pipeline, arm, kept)
    other = find_ends(walked, pipeline.judging)
    missing = []
    for name, flags in _missing(pipeline, walked, to_the_end=True):
        count = int(np.count_nonzero(flags & ends.asked))
        if count:
            missing.append(MissingCalls(part=name, count=count))
    is_attack, asked = rates.is_attack, ends.asked
    both = ends.is_known & other.is_known
    return GuardLeftOut(
        guard=alone.guard,
        attacks_alone=rates.of(alone.stops, asked & alone.decides & is_attack),
        benign_alone=rates.of(alone.stops, asked & alone.decides & ~is_attack),
        attacks_only=only,
        attack_success_rate=rates.of(other.is_unsafe, asked & other.is_known & is_attack),
        over_refusal_rate=rates.of(other.is_refused, asked & other.is_known & ~is_attack),
        attacks_between=_between(
            rates, other.is_unsafe, other.is_unsafe | ~other.is_known, asked & is_attack
        ),
        more_attacks=rates.difference(other.is_unsafe, ends.is_unsafe, both & is_attack),
        more_refusals=rates.difference(other.is_refused, ends.is_refused, both & ~is_attack),
        less_ms=rates.longer_ms(waited_ms(arm), waited_ms(walked)),
        missing=tuple(missing),
        missing_alone=alone.missing,
    )


def _walk(pipeline: PipelineFrame, arm: PipelineArm, kept: Sequence[StatedGuard]) -> PipelineArm:
    """Walk some of the guards of an arm; one behind the model is asked as often as in it."""
    chunks = None
    if arm.chunks is not None and any(place is Place.OUTPUT for _, place, _ in kept):
        chunks = arm.chunks.rule
    return pipeline.reader.arm(arm.name, kept, chunks=chunks)


def _missing(
    pipeline: PipelineFrame, arm: PipelineArm, *, to_the_end: bool
) -> Iterator[tuple[str, Flags]]:
    """Yield whom an arm would have to ask where its walk meets a call that was never made."""
    going = np.ones(len(arm.decision), dtype=np.bool_)
    steps = [step for step in arm.steps if step.place is not Place.OUTPUT]
    behind = [step for step in arm.steps if step.place is Place.OUTPUT]
    for step in steps:
        yield from _where(step.stored, going & (step.decision == MISSING))
        going &= np.isin(step.decision, (ALLOW, REWRITTEN))
    if not (behind or to_the_end):
        return
    yield from _where("model", going & (arm.model == MISSING))
    going &= arm.model == ANSWERED
    for step in behind:
        yield from _where(step.stored, going & (step.decision == MISSING))
        going &= np.isin(step.decision, (ALLOW, REWRITTEN))
    if to_the_end and pipeline.judging is not None:
        label, _ = pipeline.judging.of(arm.came_out)
        yield from _where("judge", going & (label == MISSING))


def _where(part: str, flags: Flags) -> Iterator[tuple[str, Flags]]:
    if flags.any():
        yield part, flags
