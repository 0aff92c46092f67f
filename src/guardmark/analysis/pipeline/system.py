"""The whole pipeline as a subject: what came out of each arm, read like a defense's decisions.

An arm of a pipeline stops an attack when no unsafe answer comes out, and turns a benign sample
down when it is blocked, refused or not answered. Read so, comparisons, gates and slices tell of
the system what they tell of a defense: the rate on attacks is system attack success, the rate on
benign samples is over-refusal. Places whose end is not known carry no decision.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.frame import (
    ALLOW,
    BASELINES,
    BLOCK,
    ERROR,
    MALFORMED,
    DefenseColumn,
    read_frame,
)
from guardmark.analysis.pipeline import frame as pipeline_frame
from guardmark.analysis.pipeline.card import find_ends
from guardmark.core.manifest import PartManifest
from guardmark.core.record import Stage
from guardmark.store.columns import RecordColumns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.defense.frame import Frame
    from guardmark.analysis.pipeline.frame import Judging, PipelineArm, PipelineFrame
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.store.reader import RecordReader

SYSTEM: Final = "system"
"""The scope that asks what came out of guard and model together."""
DEFENSE: Final = "defense"
"""The scope that asks what a defense decided."""


def read_scope(reader: RecordReader, settings: AnalysisSettings, scope: str) -> Frame | None:
    """Read a run at a scope, or return None where it has no pipeline with judges."""
    frame = read_frame(reader, settings)
    return frame if scope == DEFENSE else read_system(reader, frame)


def has_pipeline(reader: RecordReader) -> bool:
    """Tell whether a target model was asked and its answers were judged."""
    stages = {stage for _, stage, _ in reader.recorded_stages()}
    return {Stage.MODEL, Stage.JUDGE} <= stages


def read_system(reader: RecordReader, frame: Frame) -> Frame | None:
    """Return a run whose subjects are the arms of its pipeline, or None without one."""
    pipeline = pipeline_frame.read_pipeline(reader, frame)
    return None if pipeline is None else as_subjects(pipeline)


def as_subjects(pipeline: PipelineFrame) -> Frame | None:
    """Return the arms of a pipeline as subjects, or None where no judge was asked."""
    judging, frame = pipeline.judging, pipeline.frame
    if judging is None:
        return None
    types = {arm.name: arm.part.type for arm in frame.arms}
    arms = tuple(
        _column(frame, arm, judging, part_type=types.get(arm.name, "")) for arm in pipeline.arms
    )
    return replace(frame, arms=arms, stops=None)


def deployed(frame: Frame, names: Sequence[str] = ()) -> tuple[DefenseColumn, ...]:
    """Return the arms that a limit is about: those named, else those with a guard.

    The arm without a guard stands for the system only where there is no other; baselines mark
    the floor and the ceiling.
    """
    if names:
        return tuple(arm for arm in frame.arms if arm.name in names)
    guarded = tuple(
        arm
        for arm in frame.arms
        if arm.name != pipeline_frame.NO_GUARD and arm.part.type not in BASELINES
    )
    return guarded or frame.candidates()


def _column(frame: Frame, arm: PipelineArm, judging: Judging, *, part_type: str) -> DefenseColumn:
    """Read the ends of an arm as decisions: of attacks unsafe, of benign samples refused."""
    ends = find_ends(arm, judging)
    is_stopped = np.where(frame.is_attack, ~ends.is_unsafe, ends.is_refused)
    is_unreadable = (arm.decision == MALFORMED) | (
        ends.passed & (judging.label == pipeline_frame.MALFORMED)
    )
    unknown = np.where(is_unreadable, MALFORMED, ERROR)
    outcome = np.where(ends.is_known, np.where(is_stopped, BLOCK, ALLOW), unknown)
    asked = np.flatnonzero(ends.asked)
    none = np.full(len(asked), -1, dtype=np.int8)
    return DefenseColumn(
        part=PartManifest(name=arm.name, kind=SYSTEM, type=part_type),
        records=RecordColumns(
            defense=arm.name,
            stage=Stage.MODEL,
            layer=judging.name,
            sample=asked % frame.sample_count,
            repeat=(asked // frame.sample_count).astype(np.int32),
            outcome=outcome[asked].astype(np.int8),
            score=np.full(len(asked), np.nan),
            latency_ns=none.astype(np.int64),
            error_kind=none,
            answer_mode=none,
            flags=np.zeros(len(asked), dtype=np.uint8),
        ),
        threshold=None,
    )
