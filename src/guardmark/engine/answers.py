"""What parts of a pipeline answered, brought into a form that can be stored and passed on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from guardmark.core.outcome import Response, Verdict
from guardmark.core.record import FIRST_LAYER
from guardmark.engine.calls import Failure, not_a

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.core.protocols import Judge

T = TypeVar("T")


def layer_of(judge: Judge, judges: Sequence[Judge]) -> str:
    """Return the layer a judge's verdicts are stored in."""
    return FIRST_LAYER if len(judges) == 1 else f"{FIRST_LAYER}/{judge.name}"


def as_response(answer: Any) -> Response:
    """Return an answer or failure as a response whose text can be stored as UTF-8."""
    if not isinstance(answer, Response):
        failure = answer if isinstance(answer, Failure) else not_a("Response", answer)
        return failure.as_response()
    text: object = answer.text
    if text is None:
        return answer
    if not isinstance(text, str):
        return not_a("text in the response", text).as_response()
    text = text.encode("utf-8", "replace").decode()
    return answer if text == answer.text else replace(answer, text=text)


def as_verdict(answer: Any) -> Verdict:
    """Return an answer or failure as a verdict."""
    if isinstance(answer, Verdict):
        return answer
    failure = answer if isinstance(answer, Failure) else not_a("Verdict", answer)
    return failure.as_verdict()


async def gather(queue: asyncio.Queue[T | None], most: int, wait_s: float) -> tuple[list[T], bool]:
    """Take what waits in a queue, and wait a little for more."""
    first = await queue.get()
    if first is None:
        return [], False
    taken, deadline = [first], asyncio.get_running_loop().time() + wait_s
    while len(taken) < most:
        left = deadline - asyncio.get_running_loop().time()
        try:
            more = queue.get_nowait() if left <= 0 else await asyncio.wait_for(queue.get(), left)
        except (asyncio.QueueEmpty, TimeoutError):
            break
        if more is None:
            return taken, False
        taken.append(more)
    return taken, True
