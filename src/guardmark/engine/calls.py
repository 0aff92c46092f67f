"""Calling a part: its time is taken, and what it raises becomes an answer."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, TypeVar

from guardmark.core.errors import ServiceError, ServiceRefused, ServiceTimeout, StorageError
from guardmark.core.outcome import (
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
    Verdict,
    VerdictLabel,
)
from guardmark.core.sample import View
from guardmark.engine.stop import Abandoned

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from guardmark.core.sample import Prompt
    from guardmark.engine.stop import StopSignal

_MESSAGE: Final = 2000  # characters of an exception's text that are kept
ALWAYS_SHOWN: Final = (View.TEXT, View.CONVERSATION)
"""Views that every prompt can show."""
SKIPPED: Final = Decision(
    outcome=Outcome.ERROR,
    error_kind=ErrorKind.SKIPPED,
    evidence=Evidence(message="the sample has nothing for this defense's view"),
)
T = TypeVar("T")
Answers = tuple[list[Decision], list[int]]
"""Decisions and their latencies in nanoseconds, in the order of the prompts."""


class Failure:
    """What a call raised, or that it broke its contract."""

    __slots__ = ("kind", "message")

    def __init__(self, kind: ErrorKind, message: str) -> None:
        self.kind = kind
        self.message = message[:_MESSAGE]

    def as_decision(self) -> Decision:
        """Return the failure as a defense's decision."""
        evidence = Evidence(message=self.message)
        return Decision(outcome=Outcome.ERROR, error_kind=self.kind, evidence=evidence)

    def as_response(self) -> Response:
        """Return the failure as a model's response."""
        return Response(text=None, error_kind=self.kind, evidence=Evidence(message=self.message))

    def as_verdict(self) -> Verdict:
        """Return the failure as a judge's verdict."""
        evidence = Evidence(message=self.message)
        return Verdict(label=VerdictLabel.ERROR, error_kind=self.kind, evidence=evidence)


def failure_of(error: BaseException) -> Failure:
    """Name what a part raised."""
    kind = ErrorKind.CRASH
    for known, meaning in (
        (ServiceTimeout, ErrorKind.TIMEOUT),
        (TimeoutError, ErrorKind.TIMEOUT),
        (ServiceRefused, ErrorKind.REFUSED),
        (ServiceError, ErrorKind.CONNECTION),
    ):
        if isinstance(error, known):
            kind = meaning
            break
    return Failure(kind, f"{type(error).__name__}: {error}")


def not_a(wanted: str, answer: object) -> Failure:
    """Name an answer of the wrong type."""
    return Failure(ErrorKind.CONTRACT, f"expected a {wanted}, got {type(answer).__name__}")


def decide_all(
    decide: Callable[[Prompt], object],
    prompts: Sequence[Prompt],
    *,
    is_over: Callable[[], bool] | None = None,
) -> Answers:
    """Ask a defense that answers at once about several prompts."""
    decisions, latencies = list[Decision](), list[int]()
    _decide_into(decisions, latencies, decide=decide, prompts=prompts, is_over=is_over)
    return decisions, latencies


def decide_unless_abandoned(
    decide: Callable[[Prompt], object], prompts: Sequence[Prompt], stop: StopSignal
) -> Answers:
    """Ask as `decide_all`, in the main thread, where a call may be abandoned."""
    decisions, latencies = list[Decision](), list[int]()
    try:
        stop.is_calling = True
        _decide_into(decisions, latencies, decide=decide, prompts=prompts, is_over=None)
    except Abandoned:
        del latencies[len(decisions) :]
    finally:
        stop.is_calling = False
    return decisions, latencies


def _decide_into(
    decisions: list[Decision],
    latencies: list[int],
    *,
    decide: Callable[[Prompt], object],
    prompts: Sequence[Prompt],
    is_over: Callable[[], bool] | None,
) -> None:
    clock = perf_counter_ns
    for prompt in prompts:
        if is_over is not None and is_over():
            return
        start = clock()
        try:
            decision = decide(prompt)
        except KeyboardInterrupt:
            raise
        # A part that calls sys.exit, or a native library that panics, must not end the run of
        # all the others.
        except BaseException as error:  # noqa: BLE001 - the edge to foreign code: a record
            decision = failure_of(error).as_decision()
        latencies.append(clock() - start)
        decisions.append(
            decision
            if isinstance(decision, Decision)
            else not_a("Decision", decision).as_decision()
        )


async def attempt(call: Callable[..., Awaitable[T]], *about: Any) -> T | Failure:
    """Ask a part and wait for its answer, or for what it raises."""
    try:
        return await call(*about)
    except (KeyboardInterrupt, GeneratorExit, StorageError):
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return failure_of(error)
    except BaseException as error:  # noqa: BLE001 - the edge to foreign code: a record
        return failure_of(error)


def skipping(decide: Callable[[Prompt], Decision], view: View) -> Callable[[Prompt], Decision]:
    """Keep prompts from a defense that cannot be shown to it."""
    if view in ALWAYS_SHOWN:
        return decide

    def shown(prompt: Prompt) -> Decision:
        return SKIPPED if prompt.shown(view) is None else decide(prompt)

    return shown


def as_decision(answer: Any) -> Decision:
    """Return an answer or failure as a decision."""
    if isinstance(answer, Decision):
        return answer
    failure = answer if isinstance(answer, Failure) else not_a("Decision", answer)
    return failure.as_decision()
