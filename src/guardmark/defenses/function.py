"""A plain function from text to bool, float or decision as a defense."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, cast

from guardmark.core.outcome import (
    ALLOWED,
    BLOCKED,
    Decision,
    Evidence,
    Outcome,
    ScoreKind,
)
from guardmark.core.sample import Prompt, View
from guardmark.defenses.skipping import NOTHING_SHOWN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


class FunctionDefense:
    """A function that answers at once."""

    __slots__ = ("_function", "_whole_prompt", "files", "name", "threshold", "view")

    def __init__(
        self,
        name: str,
        function: Callable[..., object],
        *,
        threshold: float | None = None,
        view: View = View.TEXT,
        whole_prompt: bool = False,
        files: tuple[Path, ...] = (),
    ) -> None:
        self.name = name
        self.files = files
        self.threshold = threshold
        self.view = view
        self._function = function
        self._whole_prompt = whole_prompt

    def decide_now(self, prompt: Prompt) -> Decision:
        """Call the function on one prompt."""
        shown = prompt if self._whole_prompt else prompt.shown(self.view)
        if shown is None:
            return NOTHING_SHOWN[self.view]
        return read_answer(self._function(shown), threshold=self.threshold)


class AsyncFunctionDefense:
    """A function that has to be awaited."""

    __slots__ = ("_function", "_whole_prompt", "files", "name", "threshold", "view")

    def __init__(
        self,
        name: str,
        function: Callable[..., Awaitable[object]],
        *,
        threshold: float | None = None,
        view: View = View.TEXT,
        whole_prompt: bool = False,
        files: tuple[Path, ...] = (),
    ) -> None:
        self.name = name
        self.files = files
        self.threshold = threshold
        self.view = view
        self._function = function
        self._whole_prompt = whole_prompt

    async def decide(self, prompt: Prompt) -> Decision:
        """Await the function on one prompt."""
        shown = prompt if self._whole_prompt else prompt.shown(self.view)
        if shown is None:
            return NOTHING_SHOWN[self.view]
        return read_answer(await self._function(shown), threshold=self.threshold)


def defense_from(
    function: Callable[..., object],
    *,
    name: str = "",
    threshold: float | None = None,
    view: View = View.TEXT,
    files: tuple[Path, ...] = (),
) -> FunctionDefense | AsyncFunctionDefense:
    """Make a defense of a plain function."""
    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"threshold must be in [0, 1], got {threshold}")
    wants_prompt = _takes_prompt(function)
    called = name or str(getattr(function, "__name__", type(function).__name__))
    if _is_async(function):
        return AsyncFunctionDefense(
            called,
            cast("Callable[..., Awaitable[object]]", function),
            threshold=threshold,
            view=view,
            whole_prompt=wants_prompt,
            files=files,
        )
    return FunctionDefense(
        called,
        function,
        threshold=threshold,
        view=view,
        whole_prompt=wants_prompt,
        files=files,
    )


def read_answer(answer: object, *, threshold: float | None) -> Decision:
    """Read what a function returned."""
    if isinstance(answer, Decision):
        return answer
    if not isinstance(answer, bool | int | float) and hasattr(answer, "item"):
        answer = _unwrapped(answer)
    if isinstance(answer, bool):
        return BLOCKED if answer else ALLOWED
    if isinstance(answer, int | float):
        return _from_score(float(answer), threshold)
    if inspect.iscoroutine(answer):
        answer.close()  # or Python would warn, far from here, that it was never awaited
    return _malformed(
        f"the function returned {type(answer).__name__}; "
        "expected True (block), False (allow), a risk in [0, 1] or a Decision"
    )


def _from_score(score: float, threshold: float | None) -> Decision:
    if not 0 <= score <= 1:  # also true of not-a-number
        return _malformed(f"the function returned {score!r}; a risk lies in [0, 1]")
    if threshold is None:
        return _malformed(f"the function returned the risk {score!r}, but no threshold is set")
    outcome = Outcome.BLOCK if score >= threshold else Outcome.ALLOW
    return Decision(outcome=outcome, score=score, score_kind=ScoreKind.SELF_REPORTED)


def _malformed(message: str) -> Decision:
    return Decision(outcome=Outcome.MALFORMED, evidence=Evidence(message=message))


def _unwrapped(answer: object) -> object:
    try:
        return answer.item()  # type: ignore[attr-defined]  # a NumPy scalar, or an array of one
    except (TypeError, ValueError):
        return answer


def _is_async(function: Callable[..., object]) -> bool:
    if inspect.iscoroutinefunction(function):
        return True
    # An object with an async __call__ is no coroutine function itself.
    return inspect.iscoroutinefunction(getattr(type(function), "__call__", None))  # noqa: B004


def _takes_prompt(function: Callable[..., object]) -> bool:
    """Whether the one parameter is annotated as a Prompt."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-ins do not tell their parameters
        return False
    try:
        signature.bind("text")
    except TypeError as error:
        raise TypeError(f"a defense is called with one argument, but: {error}") from error
    first = next(iter(signature.parameters.values()))
    annotation = first.annotation
    if isinstance(annotation, str):
        return annotation.strip("\"'").rpartition(".")[2] == "Prompt"
    return annotation is Prompt
