"""A defense that is shown texts after cleaning: a repair, as something one can measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from pydantic import Field, field_validator

from guardmark.canon.steps import CANON_STEPS, CANON_VERSION, Step, apply_steps
from guardmark.config.deadline import holds_interpreter, timeout_of
from guardmark.config.settings import Settings
from guardmark.core.errors import ConfigError, UnknownName, did_you_mean, listed
from guardmark.core.protocols import BatchDefense, Defense, InlineDefense, SampleBound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.config.settings import BuildContext
    from guardmark.core.outcome import Decision
    from guardmark.core.protocols import BatchLimits
    from guardmark.core.sample import Prompt, Sample

Inner = Defense | InlineDefense | BatchDefense
AnyInner = TypeVar("AnyInner", bound=Inner)

WHOLE: Final = "canon"  # in a list of steps: all those of the canonical form


def steps_of(names: Iterable[str]) -> tuple[Step, ...]:
    """Return the steps that some names stand for."""
    wanted: set[Step] = set()
    for name in names:
        wanted.update(CANON_STEPS if name == WHOLE else (Step(name),))
    return tuple(step for step in Step if step in wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """How a text is cleaned before a defense sees it."""

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        """Refuse to clean by nothing."""
        if not self.steps:
            raise ValueError("cleaning needs at least one step")

    def of(self, prompt: Prompt) -> Prompt:
        """Clean the text under test; what stands around it is left as it is."""
        text = prompt.text
        cleaned = apply_steps(text, self.steps)
        return prompt if cleaned == text else prompt.with_text(cleaned)


class _Cleaned(Generic[AnyInner]):
    """Who is asked, and how texts are cleaned before: what all three ways to be asked share."""

    __slots__ = ("_clean", "_inner", "name", "threshold", "view")

    def __init__(self, name: str, inner: AnyInner, cleaning: Cleaning) -> None:
        self.name, self.view = name, inner.view
        self.threshold: float | None = getattr(inner, "threshold", None)
        self._inner, self._clean = inner, cleaning.of

    def bind(self, samples: Iterable[Sample]) -> None:
        """Tell the defense within of the samples, if it wants to know."""
        inner: object = self._inner
        if isinstance(inner, SampleBound):
            inner.bind(samples)


class InlineCanonical(_Cleaned[InlineDefense]):
    """Cleans for a defense that answers at once; the time of cleaning is part of its own."""

    __slots__ = ("holds_interpreter", "timeout_s")

    def __init__(self, name: str, inner: InlineDefense, cleaning: Cleaning) -> None:
        super().__init__(name, inner, cleaning)
        self.timeout_s, self.holds_interpreter = timeout_of(inner), holds_interpreter(inner)

    def decide_now(self, prompt: Prompt) -> Decision:
        """Ask about a prompt whose text under test was cleaned."""
        return self._inner.decide_now(self._clean(prompt))


class Canonical(_Cleaned[Defense]):
    """Cleans for a defense that is awaited."""

    __slots__ = ()

    async def decide(self, prompt: Prompt) -> Decision:
        """Ask about a prompt whose text under test was cleaned."""
        return await self._inner.decide(self._clean(prompt))


class BatchCanonical(_Cleaned[BatchDefense]):
    """Cleans for a defense asked in batches."""

    __slots__ = ()

    @property
    def batch_limits(self) -> BatchLimits:
        """Limits of the defense within."""
        return self._inner.batch_limits

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Ask about prompts whose texts under test were cleaned."""
        return await self._inner.decide_batch([self._clean(prompt) for prompt in prompts])


def canonical_of(
    inner: Inner, *, name: str, cleaning: Cleaning
) -> InlineCanonical | Canonical | BatchCanonical:
    """Show a defense cleaned texts, asked the way it is asked without."""
    if isinstance(inner, InlineDefense):
        return InlineCanonical(name, inner, cleaning)
    if isinstance(inner, BatchDefense):
        return BatchCanonical(name, inner, cleaning)
    return Canonical(name, inner, cleaning)


class CanonicalSettings(Settings):
    """Cleans the text under test, then asks another defense of the configuration."""

    of: str = Field(min_length=1)
    steps: list[str] = Field(default=["canon"], min_length=1)
    canon: str = CANON_VERSION

    @field_validator("steps")
    @classmethod
    def _known_steps(cls, value: list[str]) -> list[str]:
        known = [WHOLE, *(step.value for step in Step)]
        for name in value:
            if name not in known:
                hint = did_you_mean(name, known)
                raise ValueError(f"no step is called {name!r}.{hint} Known: {listed(known)}")
        return value

    @field_validator("canon")
    @classmethod
    def _this_version(cls, value: str) -> str:
        if value != CANON_VERSION:
            raise ValueError(
                f"this guardmark has version {CANON_VERSION} of the canonical form; "
                "leave the key out to go with it, and measure again"
            )
        return value

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        from guardmark.defenses.decisions import DecisionsDefense

        if self.of not in context.defenses or self.of == name:
            raise UnknownName("defense", self.of, set(context.defenses) - {name})
        inner = context.defenses[self.of]
        if isinstance(inner, DecisionsDefense):
            raise ConfigError(
                f"defenses.{name}: {self.of} reads decisions that were made already; no cleaning "
                "can change them.\nNext: name a defense that is asked, for example of type http."
            )
        return canonical_of(
            cast("Inner", inner), name=name, cleaning=Cleaning(steps=steps_of(self.steps))
        )
