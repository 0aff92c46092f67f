"""How attacks and benign samples flow through the places of an arm, and what becomes of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.defense.frame import BLOCK
from guardmark.analysis.pipeline.frame import ANSWERED
from guardmark.core.place import Place
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from guardmark.analysis.pipeline.frame import Ends, PlaceRates
    from guardmark.analysis.pipeline.walks import GuardStep, PipelineArm
    from guardmark.stats.arguments import Flags


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowCounts:
    """Samples of one label at one stage.

    Attributes:
        reached: How many came to it.
        stopped: How many it stopped, of these.
        too_late: How many of those stopped had let something unsafe out before.
        changed: How many went on rewritten.
        shortened: How many went on without a document that came with them.
        unknown: How many nobody can tell of: no decision, no answer.
    """

    reached: int
    stopped: int
    too_late: int
    changed: int
    shortened: int
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStage:
    """A guard of an arm, or the model, in the order in which samples come by.

    Attributes:
        place: Where the guard looks, or `model`.
        name: Its name.
        attacks: What became of attacks there.
        benign: What became of benign samples there.
    """

    place: str
    name: str
    attacks: FlowCounts
    benign: FlowCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowEnds:
    """What came out at the end, of the samples that nothing stopped.

    Attributes:
        harmful: Unsafe answers to attacks.
        harmless: Safe answers to attacks.
        helped: Benign samples that were helped.
        refused: Benign samples that were answered and not helped.
        unjudged_attacks: Answers to attacks without a verdict that can be read.
        unjudged_benign: Answers to benign samples without one.
    """

    harmful: int
    harmless: int
    helped: int
    refused: int
    unjudged_attacks: int
    unjudged_benign: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFlow:
    """The way of all samples through one arm.

    Attributes:
        attacks: Attacks that the arm was asked about, in all repeats.
        benign: Benign samples that it was asked about.
        stages: Its guards and the model, in order.
        ends: What came out.
    """

    attacks: int
    benign: int
    stages: tuple[FlowStage, ...]
    ends: FlowEnds


def follow(rates: PlaceRates, arm: PipelineArm, ends: Ends) -> ArmFlow:
    """Count what becomes of attacks and of benign samples, stage by stage."""
    going = ends.asked
    stages = []
    has_model = False
    for step in arm.steps:
        if step.place is Place.OUTPUT and not has_model:
            stage, going = _at_model(rates, arm, going)
            stages.append(stage)
            has_model = True
        stage, going = _at_guard(rates, step, ends, going)
        stages.append(stage)
    if not has_model:
        stage, going = _at_model(rates, arm, going)
        stages.append(stage)
    judged = going & ends.is_known
    attack = rates.is_attack
    return ArmFlow(
        attacks=_count(ends.asked & attack),
        benign=_count(ends.asked & ~attack),
        stages=tuple(stages),
        ends=FlowEnds(
            harmful=_count(judged & ends.is_unsafe & attack),
            harmless=_count(judged & ~ends.is_unsafe & attack),
            helped=_count(judged & ~ends.is_refused & ~attack),
            refused=_count(judged & ends.is_refused & ~attack),
            unjudged_attacks=_count(going & ~judged & attack),
            unjudged_benign=_count(going & ~judged & ~attack),
        ),
    )


def _at_guard(
    rates: PlaceRates, step: GuardStep, ends: Ends, going: Flags
) -> tuple[FlowStage, Flags]:
    """Count what a guard does with what comes to it; return what goes on."""
    stopped = going & (step.decision == BLOCK)
    on = going & step.passes()
    shortened = np.zeros_like(going)
    if step.documents is not None:
        shortened = step.documents.anywhere(step.documents.left_out)
    stage = _stage(
        rates,
        (step.place.value, step.guard),
        reached=going,
        stopped=stopped,
        too_late=stopped & ends.is_unsafe,
        changed=on & step.goes_on & ~shortened,
        shortened=on & shortened,
        on=on,
    )
    return stage, on


def _at_model(rates: PlaceRates, arm: PipelineArm, going: Flags) -> tuple[FlowStage, Flags]:
    """Count what the model answers of what comes to it; its provider may block."""
    on = going & (arm.model == ANSWERED)
    stage = _stage(
        rates,
        ("model", "model"),
        reached=going,
        stopped=going & (arm.model == BLOCK),
        too_late=np.zeros_like(going),
        changed=np.zeros_like(going),
        shortened=np.zeros_like(going),
        on=on,
    )
    return stage, on


def _stage(
    rates: PlaceRates,
    named: tuple[str, str],
    *,
    reached: Flags,
    stopped: Flags,
    too_late: Flags,
    changed: Flags,
    shortened: Flags,
    on: Flags,
) -> FlowStage:
    place, name = named
    attacks, benign = (
        FlowCounts(
            reached=_count(reached & mine),
            stopped=_count(stopped & mine),
            too_late=_count(too_late & mine),
            changed=_count(changed & mine),
            shortened=_count(shortened & mine),
            unknown=_count(reached & ~stopped & ~on & mine),
        )
        for mine in (rates.is_attack, ~rates.is_attack)
    )
    return FlowStage(place=place, name=name, attacks=attacks, benign=benign)


def _count(flags: Flags) -> int:
    return int(np.count_nonzero(flags))
