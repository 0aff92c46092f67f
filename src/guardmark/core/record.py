"""Everything observed for one sample at one stage of one run."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from guardmark.core.outcome import ScoreKind
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from guardmark.core.outcome import AnswerMode, ErrorKind, Evidence


class Stage(StrEnum):
    """Where in the pipeline a record was made."""

    DEFENSE = "defense"
    MODEL = "model"
    JUDGE = "judge"
    TRY = "try"
    WARMUP = "warmup"
    CASE = "case"


FIRST_LAYER = "run"
"""Layer of everything a run writes itself; later judgings add layers of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKey:
    """What makes a record unique in a run.

    Attributes:
        defense: Name of the defense (of the arm, in a pipeline).
        sample: Position of the sample in the run's data, from 0.
        repeat: Which repetition, from 0 (which try, at stage `try`).
        stage: Where in the pipeline.
        layer: `run`, or the name of a later judging.
    """

    defense: str
    sample: int
    repeat: int = 0
    stage: Stage = Stage.DEFENSE
    layer: str = FIRST_LAYER


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row of the records.

    Attributes:
        key: What makes it unique.
        outcome: Value of `Outcome` (defense, try), `VerdictLabel` (judge), or
            `answered` / `error` (model).
        score: In [0, 1], or None.
        score_kind: What the score means.
        error_kind: Why there is no answer, or None.
        answer_mode: A judge's word on how the response met the request, or None.
        latency_ns: Service time, or None when nothing was timed.
        amortised: Whether the latency is a share of a batch's time.
        text: A model's answer; None at other stages.
        evidence: What lies behind it, or None.
    """

    key: RecordKey
    outcome: str
    score: float | None = None
    score_kind: ScoreKind = ScoreKind.NONE
    error_kind: ErrorKind | None = None
    answer_mode: AnswerMode | None = None
    latency_ns: int | None = None
    amortised: bool = False
    text: str | None = None
    evidence: Evidence | None = None
