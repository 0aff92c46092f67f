"""How attacks and benign samples flow through each arm: a picture, and the same as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.document.blocks import FlowChart, FlowStream
from guardmark.reports.document.cells import name, slug, table_of
from guardmark.reports.document.wording import count_text, side_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.pipeline.arms import ArmAnalysis
    from guardmark.analysis.pipeline.flow import ArmFlow, FlowCounts, FlowStage
    from guardmark.reports.document.blocks import Block

FLOW_TABLE: Final = "pipeline-flow"
"""Id of the table of what became of all samples."""
_MOST: Final = 6  # pictures; the table holds every arm


def flow_parts(arms: Sequence[ArmAnalysis]) -> Iterator[Block]:
    """Draw the arms whose guards are stated by place, and write all of them as a table."""
    placed = [(arm, arm.flow) for arm in arms if arm.is_placed and arm.flow is not None]
    drawn = [(arm, flow) for arm, flow in placed if len(flow.stages) > 1]
    if not drawn:
        return
    for arm, flow in drawn[:_MOST]:
        yield FlowChart(
            id=f"flow-{slug(arm.name)}",
            title=f"{arm.name}: {arm.drawn}".replace(" -> ", " \u2192 "),
            stages=tuple(_stage_text(stage) for stage in flow.stages),
            streams=(_stream(flow, is_attack=True), _stream(flow, is_attack=False)),
        )
    rows = []
    for arm, flow in placed:
        rows += [(arm, flow, True), (arm, flow, False)]
    yield table_of(
        rows,
        {
            "Arm": lambda row: name(row[0].name),
            "Samples": lambda row: _total_text(row[1], is_attack=row[2]),
            "On the way": lambda row: _way_text(row[1], is_attack=row[2]),
            "Came out": lambda row: ", ".join(_ends(row[1], is_attack=row[2])),
        },
        table_id=FLOW_TABLE,
        texts=("Samples", "On the way", "Came out"),
        title="What became of attacks and of benign samples",
        note=(
            "Harmful and safe are answers to attacks; helped and refused are benign samples. Too "
            "late: something unsafe had gone out before the block, so the attack succeeded."
        ),
    )


def _stream(flow: ArmFlow, *, is_attack: bool) -> FlowStream:
    """Return how the samples of one side go through the stages of an arm."""
    ends = flow.ends
    if is_attack:
        total, came_out = flow.attacks, ends.harmful + ends.harmless + ends.unjudged_attacks
    else:
        total, came_out = flow.benign, ends.helped + ends.refused + ends.unjudged_benign
    reached, leaving = [], []
    for stage in flow.stages:
        counts = _counts(stage, is_attack=is_attack)
        reached.append(counts.reached)
        leaving.append(tuple(_leaving(counts)))
    return FlowStream(
        name=side_word(is_attack=is_attack),
        total=total,
        reached=(*reached, came_out),
        leaving=tuple(leaving),
        ends=tuple(_ends(flow, is_attack=is_attack)),
    )


def _counts(stage: FlowStage, *, is_attack: bool) -> FlowCounts:
    if is_attack:
        return stage.attacks
    return stage.benign


def _leaving(counts: FlowCounts) -> Iterator[str]:
    """Say what became of some of the samples at a stage."""
    if counts.stopped:
        yield f"{count_text(counts.stopped)} stopped"
    if counts.too_late:
        yield f"{count_text(counts.too_late)} of them too late"
    if counts.shortened:
        yield f"{count_text(counts.shortened)} lost documents"
    if counts.changed:
        yield f"{count_text(counts.changed)} rewritten"
    if counts.unknown:
        yield f"{count_text(counts.unknown)} unknown"


def _ends(flow: ArmFlow, *, is_attack: bool) -> Iterator[str]:
    """Say what came out."""
    ends = flow.ends
    if is_attack:
        yield f"{count_text(ends.harmful)} harmful"
        yield f"{count_text(ends.harmless)} safe"
        unjudged = ends.unjudged_attacks
    else:
        yield f"{count_text(ends.helped)} helped"
        if ends.refused:
            yield f"{count_text(ends.refused)} refused"
        unjudged = ends.unjudged_benign
    if unjudged:
        yield f"{count_text(unjudged)} not judged"


def _stage_text(stage: FlowStage) -> str:
    if stage.place == "context":
        return f"docs[{stage.name}]"
    return stage.name


def _total_text(flow: ArmFlow, *, is_attack: bool) -> str:
    if is_attack:
        return f"{count_text(flow.attacks)} attacks"
    return f"{count_text(flow.benign)} benign"


def _way_text(flow: ArmFlow, *, is_attack: bool) -> str:
    """Say what became of samples at each stage: `words: 11 stopped; leaks: 14 stopped`."""
    stages = []
    for stage in flow.stages:
        leaving = ", ".join(_leaving(_counts(stage, is_attack=is_attack)))
        if leaving:
            stages.append(f"{_stage_text(stage)}: {leaving}")
    return "; ".join(stages) or "none stopped"
