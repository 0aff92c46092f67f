"""The door for defenses: every form that an author may choose becomes a guard, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from guardmark.core.outcome import Decision
from guardmark.core.protocols import (
    BatchDefense,
    Capabilities,
    Closable,
    Defense,
    Guard,
    SampleBound,
)
from guardmark.core.sample import Prompt, View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guardmark.core.sample import Sample

T = TypeVar("T")
AnyDefense = Guard | Defense | BatchDefense
"""A guard, or a form of which `as_guard` makes one."""
DecideAll = Callable[[Sequence[Prompt]], Coroutine[Any, Any, list[Decision]]]
_FORMS: Final = "decide() or decide_batch() with batch_limits"


class AdaptedGuard:
    """A guard made of a form that its author wrote.

    Attributes:
        name: Name of the defense.
        capabilities: What it states, and what is seen of its form.
        decide_all: Asks it about some prompts.
        source: What the author wrote.
    """

    __slots__ = ("capabilities", "decide_all", "name", "source")

    def __init__(
        self, source: Defense | BatchDefense, capabilities: Capabilities, decide_all: DecideAll
    ) -> None:
        self.name = source.name
        self.capabilities = capabilities
        self.decide_all = decide_all
        self.source = source

    def bind(self, samples: Iterable[Sample]) -> None:
        """Tell the defense of the samples, where it wants to know."""
        if self.capabilities.needs_samples:
            cast("SampleBound", self.source).bind(samples)

    async def close(self) -> None:
        """Give back what the defense holds."""
        if isinstance(self.source, Closable):
            await self.source.close()


def is_defense(subject: object) -> bool:
    """Tell whether something has a form of which a guard can be made."""
    return isinstance(subject, Guard | Defense | BatchDefense)


def as_guard(defense: AnyDefense) -> Guard:
    """Return a defense in the form in which it is asked; a guard as it is."""
    if isinstance(defense, Guard):
        return defense
    capabilities = replace(_stated(defense), needs_samples=isinstance(defense, SampleBound))
    if isinstance(defense, BatchDefense):
        capabilities = replace(capabilities, batch=defense.batch_limits)
        return AdaptedGuard(defense, capabilities, defense.decide_batch)
    if not isinstance(defense, Defense):
        raise TypeError(f"a {type(defense).__name__} is no defense: it lacks {_FORMS}")
    decide: Callable[[Prompt], Any] = defense.decide
    if iscoroutinefunction(decide):
        return AdaptedGuard(defense, capabilities, _one_after_another(decide))
    return AdaptedGuard(defense, replace(capabilities, is_inline=True), _at_once(decide))


def _stated(defense: Defense | BatchDefense) -> Capabilities:
    """Return what a defense says of itself: its capabilities, its view, or nothing."""
    stated = getattr(defense, "capabilities", None)
    if isinstance(stated, Capabilities):
        return stated
    return Capabilities(view=getattr(defense, "view", View.TEXT))


def _at_once(decide: Callable[[Prompt], Decision]) -> DecideAll:
    async def decide_all(prompts: Sequence[Prompt]) -> list[Decision]:
        return [decide(prompt) for prompt in prompts]

    return decide_all


def _one_after_another(decide: Callable[[Prompt], Awaitable[Decision]]) -> DecideAll:
    async def decide_all(prompts: Sequence[Prompt]) -> list[Decision]:
        return [await decide(prompt) for prompt in prompts]

    return decide_all


def source_of(guard: object) -> object:
    """Return what an author wrote, behind the form in which it is asked."""
    return guard.source if isinstance(guard, AdaptedGuard) else guard


def awaited_call(guard: Guard) -> Callable[[Prompt], Awaitable[Decision]]:
    """Return the coroutine function that asks a guard about one prompt.

    What was adapted from one is called as that: each coroutine in between is woken whenever the
    loop wakes the call.
    """
    if isinstance(guard, AdaptedGuard):
        can = guard.capabilities
        if not can.is_inline and can.batch is None:
            single = cast("Defense", guard.source)
            return cast("Callable[[Prompt], Awaitable[Decision]]", single.decide)

    async def decide(prompt: Prompt) -> Decision:
        return (await guard.decide_all([prompt]))[0]

    return decide


def inline_call(guard: Guard) -> Callable[[Prompt], Decision]:
    """Return the function that asks an inline guard about one prompt, without a loop."""
    if isinstance(guard, AdaptedGuard):
        # What was adapted is a function already: no coroutine a sample, of which there are many.
        return cast("Callable[[Prompt], Decision]", cast("Defense", guard.source).decide)

    decide_all = guard.decide_all

    def decide(prompt: Prompt) -> Decision:
        return finish_at_once(decide_all((prompt,)))[0]

    return decide


def finish_at_once(call: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that waits for nothing."""
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    call.close()
    raise RuntimeError("it waits for something, although it says that it answers at once")
