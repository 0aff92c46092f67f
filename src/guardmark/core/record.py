"""Everything observed for one sample at one stage of one run."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from guardmark.core.outcome import ScoreKind

if TYPE_CHECKING:
    from contextvars import Token

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


Question = tuple[str, int, int]
"""Name of the part that is asked, repeat, and position of the sample."""

_PRESENT: ContextVar[AskingAbout | None] = ContextVar("_PRESENT", default=None)


def present_question() -> Question | None:
    """Return the question that the present task asks, or None outside of any."""
    asking = _PRESENT.get()
    return None if asking is None else asking.question


def present_call() -> AskingAbout | None:
    """Return the call of a part that the present task makes, or None outside of any."""
    return _PRESENT.get()


class AskingAbout:
    """Lets everything that is called in a block belong to a question; one for each call.

    The client of services counts here what it sent for the call, and what that cost.
    """

    __slots__ = ("_token", "beside", "cost", "question", "requests", "unpriced")

    def __init__(self, part: str | None = None, repeat: int = 0, position: int = 0) -> None:
        self.question = None if part is None else (part, repeat, position)
        self.requests = 0
        self.cost = 0.0
        self.beside = 0.0  # what parts in this process cost for it, such as members of a chain
        self.unpriced = 0  # requests whose cost is not known, or not yet
        self._token: Token[AskingAbout | None] | None = None

    def __enter__(self) -> Self:
        """Take the place of the question that was asked before."""
        self._token = _PRESENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        if self._token is not None:
            _PRESENT.reset(self._token)
