"""A defense that is shown texts after cleaning: a repair, as something one can measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.canon import CANON_STEPS, Step, apply_steps
from guardmark.core.protocols import BatchDefense, InlineDefense, SampleBound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.core.outcome import Decision
    from guardmark.core.protocols import BatchLimits, Defense
    from guardmark.core.sample import Prompt, Sample, View

    AnyDefense = Defense | InlineDefense | BatchDefense

WHOLE: Final = "canon"
"""In a list of steps: all those of the canonical form."""


def steps_of(names: Iterable[str]) -> tuple[Step, ...]:
    """Return the steps that some names stand for.

    Args:
        names: Of steps, or `canon` for all steps of the canonical form.

    Returns:
        The steps in the order in which they are run, each once.

    Raises:
        ValueError: If a name is no step.
    """
    wanted: set[Step] = set()
    for name in names:
        wanted.update(CANON_STEPS if name == WHOLE else (Step(name),))
    return tuple(step for step in Step if step in wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """How a text is cleaned before a defense sees it.

    Attributes:
        steps: At least one; their own order does not matter.
    """

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        """Refuse to clean by nothing."""
        if not self.steps:
            raise ValueError("cleaning needs at least one step")

    def of(self, prompt: Prompt) -> Prompt:
        """Clean the text under test; what stands around it is left as it is.

        Args:
            prompt: As the sample has it.

        Returns:
            The same prompt when there is nothing to clean.
        """
        text = prompt.text
        cleaned = apply_steps(text, self.steps)
        return prompt if cleaned == text else prompt.with_text(cleaned)


class InlineCanonical:
    """Cleans for a defense that answers at once; the time of cleaning is part of its own.

    Args:
        name: Name in the configuration.
        inner: What is asked about the cleaned text.
        cleaning: How it is cleaned.
    """

    __slots__ = ("_cleaning", "_inner", "name", "threshold", "view")

    def __init__(self, name: str, inner: InlineDefense, cleaning: Cleaning) -> None:
        self.name = name
        self.view: View = inner.view
        self.threshold: float | None = getattr(inner, "threshold", None)
        self._inner = inner
        self._cleaning = cleaning

    def bind(self, samples: Iterable[Sample]) -> None:
        """Tell the defense within of the samples, if it wants to know.

        Args:
            samples: Every sample of the run.
        """
        if isinstance(self._inner, SampleBound):
            self._inner.bind(samples)

    def decide_now(self, prompt: Prompt) -> Decision:
        """Ask about a prompt whose text under test was cleaned.

        Args:
            prompt: As the sample has it.

        Returns:
            What the defense within says, unaltered.
        """
        return self._inner.decide_now(self._cleaning.of(prompt))


class Canonical:
    """Cleans for a defense that is awaited. Arguments are those of `InlineCanonical`."""

    __slots__ = ("_cleaning", "_inner", "name", "threshold", "view")

    def __init__(self, name: str, inner: Defense, cleaning: Cleaning) -> None:
        self.name = name
        self.view: View = inner.view
        self.threshold: float | None = getattr(inner, "threshold", None)
        self._inner = inner
        self._cleaning = cleaning

    def bind(self, samples: Iterable[Sample]) -> None:
        """Tell the defense within of the samples, if it wants to know.

        Args:
            samples: Every sample of the run.
        """
        if isinstance(self._inner, SampleBound):
            self._inner.bind(samples)

    async def decide(self, prompt: Prompt) -> Decision:
        """Ask about a prompt whose text under test was cleaned.

        Args:
            prompt: As the sample has it.

        Returns:
            What the defense within says, unaltered.
        """
        return await self._inner.decide(self._cleaning.of(prompt))


class BatchCanonical:
    """Cleans for a defense asked in batches. Arguments are those of `InlineCanonical`."""

    __slots__ = ("_cleaning", "_inner", "name", "threshold", "view")

    def __init__(self, name: str, inner: BatchDefense, cleaning: Cleaning) -> None:
        self.name = name
        self.view: View = inner.view
        self.threshold: float | None = getattr(inner, "threshold", None)
        self._inner = inner
        self._cleaning = cleaning

    @property
    def batch_limits(self) -> BatchLimits:
        """Limits of the defense within."""
        return self._inner.batch_limits

    def bind(self, samples: Iterable[Sample]) -> None:
        """Tell the defense within of the samples, if it wants to know.

        Args:
            samples: Every sample of the run.
        """
        if isinstance(self._inner, SampleBound):
            self._inner.bind(samples)

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Ask about prompts whose texts under test were cleaned.

        Args:
            prompts: As the samples have them.

        Returns:
            What the defense within says, in the order of the prompts.
        """
        return await self._inner.decide_batch([self._cleaning.of(prompt) for prompt in prompts])


def canonical_of(
    inner: AnyDefense, *, name: str, cleaning: Cleaning
) -> InlineCanonical | Canonical | BatchCanonical:
    """Show a defense cleaned texts, asked the way it is asked without.

    Args:
        inner: The defense.
        name: Name of what comes out.
        cleaning: How texts are cleaned.

    Returns:
        A defense of the same protocol as `inner`.
    """
    if isinstance(inner, InlineDefense):
        return InlineCanonical(name, inner, cleaning)
    if isinstance(inner, BatchDefense):
        return BatchCanonical(name, inner, cleaning)
    return Canonical(name, inner, cleaning)
