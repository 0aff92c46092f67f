"""Settings of the defense that cleans texts for another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pydantic import Field, field_validator

from guardmark.canon import CANON_VERSION
from guardmark.config.settings import Settings

if TYPE_CHECKING:
    from guardmark.app.registry import BuildContext
    from guardmark.core.protocols import BatchDefense, Defense, InlineDefense

    AnyDefense = Defense | InlineDefense | BatchDefense


class CanonicalSettings(Settings):
    """Cleans the text under test, then asks another defense of the configuration."""

    of: str = Field(min_length=1)
    steps: list[str] = Field(default=["canon"], min_length=1)
    canon: str = CANON_VERSION

    @field_validator("steps")
    @classmethod
    def _known_steps(cls, value: list[str]) -> list[str]:
        from guardmark.canon import Step
        from guardmark.core.errors import did_you_mean, listed
        from guardmark.defenses.canonical import WHOLE

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
        from guardmark.core.errors import ConfigError, UnknownName
        from guardmark.defenses.canonical import Cleaning, canonical_of, steps_of
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
            cast("AnyDefense", inner), name=name, cleaning=Cleaning(steps=steps_of(self.steps))
        )
