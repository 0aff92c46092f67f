"""One way to ask any kind of defense: about one prompt, or about a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guardmark.core.outcome import ErrorKind
from guardmark.core.protocols import Defense, InlineDefense
from guardmark.engine.calls import ALWAYS_SHOWN, SKIPPED, Failure, as_decision, attempt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from guardmark.core.outcome import Decision
    from guardmark.core.protocols import BatchDefense
    from guardmark.core.sample import Prompt
    from guardmark.engine.plan import AnyDefense


def asking(defense: AnyDefense) -> Callable[[Prompt], Awaitable[Decision]]:
    """Return the coroutine function that asks a defense."""
    view = defense.view
    if isinstance(defense, InlineDefense):
        ask = _at_once(defense)
    else:
        ask = defense.decide if isinstance(defense, Defense) else _alone(defense)
    if view in ALWAYS_SHOWN:
        return ask

    async def shown(prompt: Prompt) -> Decision:
        return SKIPPED if prompt.shown(view) is None else await ask(prompt)

    return shown


def _at_once(defense: InlineDefense) -> Callable[[Prompt], Awaitable[Decision]]:
    async def ask(prompt: Prompt) -> Decision:
        return defense.decide_now(prompt)

    return ask


def _alone(defense: BatchDefense) -> Callable[[Prompt], Awaitable[Decision]]:
    async def ask(prompt: Prompt) -> Decision:
        return (await decide_batch(defense, [prompt]))[0]

    return ask


async def decide_batch(defense: BatchDefense, prompts: Sequence[Prompt]) -> list[Decision]:
    """Ask a defense about a batch; a batch that fails is asked one by one.

    One input that crashes a batch must not turn its neighbours into errors.
    """
    view = defense.view
    if view not in ALWAYS_SHOWN:
        shown = [prompt for prompt in prompts if prompt.shown(view) is not None]
        answers = iter(await _decide(defense, shown)) if shown else iter(())
        return [SKIPPED if prompt.shown(view) is None else next(answers) for prompt in prompts]
    return await _decide(defense, prompts)


async def _decide(defense: BatchDefense, prompts: Sequence[Prompt]) -> list[Decision]:
    answer: Any = await attempt(defense.decide_batch, prompts)
    if isinstance(answer, list) and len(answer) == len(prompts):
        return [as_decision(each) for each in answer]
    if len(prompts) > 1:
        return [(await _decide(defense, [prompt]))[0] for prompt in prompts]
    if not isinstance(answer, Failure):
        said = f"expected 1 decision, got {answer!r:.100}"
        answer = Failure(ErrorKind.CONTRACT, said)
    return [answer.as_decision()]
