"""A defense that is shown texts after cleaning: a repair, as something one can measure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from pydantic import Field, field_validator

from guardmark.canon.steps import CANON_STEPS, CANON_VERSION, Step, apply_steps
from guardmark.config.settings import Settings
from guardmark.core.errors import ConfigError, UnknownName, did_you_mean, listed
from guardmark.core.values import dataclass
from guardmark.defenses.guard import as_guard, source_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.config.settings import BuildContext
    from guardmark.core.outcome import Decision
    from guardmark.core.protocols import Capabilities, SampleBound
    from guardmark.core.sample import Prompt, Sample
    from guardmark.defenses.guard import AnyDefense

WHOLE: Final = "canon"  # in a list of steps: all those of the canonical form


def steps_of(names: Iterable[str]) -> tuple[Step, ...]:
    """Return the steps that some names stand for."""
    wanted: set[Step] = set()
    for name in names:
        if name == WHOLE:
            wanted.update(CANON_STEPS)
        else:
            wanted.add(Step(name))
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
        if cleaned == text:
            return prompt
        return prompt.with_text(cleaned)


class CanonicalDefense:
    """Cleans prompts for a guard, and is asked as that is; the cleaning's time is part of its own.

    Attributes:
        name: Name of the defense.
    """

    __slots__ = ("_clean", "_inner", "name")

    def __init__(self, name: str, inner: AnyDefense, cleaning: Cleaning) -> None:
        self.name = name
        self._inner = as_guard(inner)
        self._clean = cleaning.of

    @property
    def capabilities(self) -> Capabilities:
        """Those of the guard within, as they are now; its files are its own."""
        return replace(self._inner.capabilities, takes_images=False, files=())

    def bind(self, samples: Iterable[Sample]) -> None:
        """Tell the guard within of the samples, where it wants to know."""
        if self._inner.capabilities.needs_samples:
            cast("SampleBound", self._inner).bind(samples)

    async def decide_all(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Ask about prompts whose texts under test were cleaned."""
        return await self._inner.decide_all([self._clean(prompt) for prompt in prompts])


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
        if isinstance(source_of(inner), DecisionsDefense):
            raise ConfigError(
                f"defenses.{name}: {self.of} reads decisions that were made already; no cleaning "
                "can change them.\nNext: name a defense that is asked, for example of type http."
            )
        return CanonicalDefense(
            name, cast("AnyDefense", inner), Cleaning(steps=steps_of(self.steps))
        )
