"""Calling a part: what it answers, raises or cannot be shown becomes an answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, TypeVar

from guardmark.config.deadline import CallAlarm, Overrun
from guardmark.core.errors import BudgetReached, StorageError
from guardmark.core.outcome import (
    AnswerMode,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
    Verdict,
    VerdictLabel,
)
from guardmark.core.sample import View
from guardmark.defenses.calls.failure import Failure, failure_of, not_a
from guardmark.defenses.guard import awaited_call, inline_call
from guardmark.engine.supervision import Abandoned

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from guardmark.core.protocols import Guard
    from guardmark.core.sample import Prompt
    from guardmark.engine.supervision import StopSignal


ALWAYS_SHOWN: Final = (View.TEXT, View.CONVERSATION)  # views that every prompt of text can show
SKIPPED: Final = Decision(
    outcome=Outcome.ERROR,
    error_kind=ErrorKind.SKIPPED,
    evidence=Evidence(message="the sample has nothing for this defense's view"),
)
NOT_TEXT: Final = replace(
    SKIPPED, evidence=Evidence(message="the sample has an image, and this defense takes texts only")
)
NOTHING_TO_JUDGE: Final = Verdict(
    label=VerdictLabel.SAFE,
    answer_mode=AnswerMode.NON_ANSWER,
    evidence=Evidence(reason="the answer is empty", parse_method="empty"),
)
"""Verdict on an answer without a word, such as a refusal that a service only marks."""
T = TypeVar("T")
Answers = tuple[list[Decision], list[int]]
"""Decisions and their latencies in nanoseconds, in the order of the prompts."""


def decide_all(
    decide: Callable[[Prompt], object],
    prompts: Sequence[Prompt],
    *,
    is_over: Callable[[], bool] | None = None,
    timeout_s: float | None = None,
    stop: StopSignal | None = None,
) -> Answers:
    """Ask a defense that answers at once; with a signal, in the main thread, until it is set."""
    decisions, latencies, begun = list[Decision](), list[int](), 0
    look = None if stop is None else stop.abandon_call

    def finished_s() -> float:
        return sum(latencies[begun:]) / 1e9

    try:
        if stop is not None:
            stop.is_calling = True
        while True:
            begun = len(decisions)
            try:
                with CallAlarm(timeout_s, finished_s=finished_s, look=look):
                    _decide_into((decisions, latencies), decide, prompts[begun:], is_over)
            except Overrun as error:  # it met the end of the call
                del latencies[len(decisions) :]
                decisions.append(failure_of(error).as_decision())
                latencies.append(int((timeout_s or 0.0) * 1e9))
            else:
                break
    except Abandoned:
        del latencies[len(decisions) :]
    finally:
        if stop is not None:
            stop.is_calling = False
    return decisions, latencies


def _decide_into(
    answers: Answers,
    decide: Callable[[Prompt], object],
    prompts: Sequence[Prompt],
    is_over: Callable[[], bool] | None,
) -> None:
    decisions, latencies = answers
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
    except BaseException as error:  # noqa: BLE001 - the edge to foreign code: a record
        return failure_or_raise(error)


def failure_or_raise(error: BaseException) -> Failure:
    """Return what a part raised as its answer; raise what is ours, such as a task cancelled."""
    if isinstance(error, KeyboardInterrupt | GeneratorExit | StorageError | BudgetReached):
        raise error
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise error
    return failure_of(error)


def refusal_of(guard: Guard) -> Callable[[Prompt], Decision | None]:
    """Return what says which prompts cannot be shown to a guard, and why."""
    view, takes_images = guard.capabilities.view, guard.capabilities.takes_images
    if view in ALWAYS_SHOWN and takes_images:
        return lambda _prompt: None

    def refuse(prompt: Prompt) -> Decision | None:
        if view is View.TEXT and not prompt.messages[prompt.under_test].images:
            return None
        if prompt.shown(view, beside_images=takes_images) is not None:
            return None
        return SKIPPED if prompt.shown(view, beside_images=True) is None else NOT_TEXT

    return refuse


def inline_decide(guard: Guard, *, has_images: bool = True) -> Callable[[Prompt], Decision]:
    """Return what asks an inline guard, and keeps prompts from it that cannot be shown to it."""
    decide = inline_call(guard)
    if guard.capabilities.view in ALWAYS_SHOWN and not has_images:
        return decide
    refuse = refusal_of(guard)
    return lambda prompt: refuse(prompt) or decide(prompt)


def as_decision(answer: Any) -> Decision:
    """Return an answer or failure as a decision."""
    if isinstance(answer, Decision):
        return answer
    failure = answer if isinstance(answer, Failure) else not_a("Decision", answer)
    return failure.as_decision()


def as_coroutine(guard: Guard) -> Callable[[Prompt], Awaitable[Decision]]:
    """Return the coroutine function that asks a guard about one prompt."""
    refuse = refusal_of(guard)
    if guard.capabilities.is_inline:
        ask = _within_its_time(guard)
    elif guard.capabilities.batch is not None:
        ask = _one_by_one(guard)
    else:
        ask = awaited_call(guard)

    async def shown(prompt: Prompt) -> Decision:
        refusal = refuse(prompt)
        if refusal is not None:
            return refusal
        return await ask(prompt)

    return shown


def _within_its_time(guard: Guard) -> Callable[[Prompt], Awaitable[Decision]]:
    decide, timeout_s = inline_call(guard), guard.capabilities.timeout_s

    async def ask(prompt: Prompt) -> Decision:
        with CallAlarm(timeout_s):
            return decide(prompt)

    return ask


def _one_by_one(guard: Guard) -> Callable[[Prompt], Awaitable[Decision]]:
    async def ask(prompt: Prompt) -> Decision:
        return (await decide_batch(guard, [prompt]))[0]

    return ask


async def decide_batch(
    guard: Guard,
    prompts: Sequence[Prompt],
    *,
    on_failure: Callable[[Failure], None] = lambda _failure: None,
) -> list[Decision]:
    """Ask a guard about a batch; a batch that fails is asked one by one.

    One input must not turn its neighbours into errors. `on_failure` may raise to do better.
    """
    refused = [*map(refusal_of(guard), prompts)]
    shown = [prompt for prompt, refusal in zip(prompts, refused, strict=True) if not refusal]
    answers = iter(await _decide(guard, shown, on_failure) if shown else ())
    return [refusal or next(answers) for refusal in refused]


async def _decide(
    guard: Guard, prompts: Sequence[Prompt], on_failure: Callable[[Failure], None]
) -> list[Decision]:
    answer: Any = await attempt(guard.decide_all, prompts)
    if isinstance(answer, list) and len(answer) == len(prompts):
        return [as_decision(each) for each in answer]
    if len(prompts) > 1:
        if isinstance(answer, Failure):
            on_failure(answer)
        return [(await _decide(guard, [prompt], on_failure))[0] for prompt in prompts]
    if not isinstance(answer, Failure):
        answer = Failure(ErrorKind.CONTRACT, f"expected 1 decision, got {answer!r:.100}")
    return [answer.as_decision()]


def as_response(answer: Any) -> Response:
    """Return an answer or failure as a response whose text can be stored as UTF-8."""
    if isinstance(answer, Response):
        text: object = answer.text
        if text is None:
            return answer
        if isinstance(text, str):
            text = text.encode("utf-8", "replace").decode()
            return answer if text == answer.text else replace(answer, text=text)
        answer = not_a("text in the response", text)
    failure = answer if isinstance(answer, Failure) else not_a("Response", answer)
    return Response(text=None, error_kind=failure.kind, evidence=failure.evidence)


def as_verdict(answer: Any) -> Verdict:
    """Return an answer or failure as a verdict."""
    if isinstance(answer, Verdict):
        return answer
    failure = answer if isinstance(answer, Failure) else not_a("Verdict", answer)
    return Verdict(label=VerdictLabel.ERROR, error_kind=failure.kind, evidence=failure.evidence)
