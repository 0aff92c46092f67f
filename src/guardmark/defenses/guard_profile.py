"""Profiles of guard models: how each is asked, and in which words it answers; data, no code."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from guardmark.config.settings import Settings
from guardmark.core.errors import UnknownName
from guardmark.core.sample import Role, View
from guardmark.defenses.profile import Profile, load_profile
from guardmark.parsing.guard import READERS

if TYPE_CHECKING:
    from guardmark.core.sample import Prompt
    from guardmark.parsing.guard import GuardReading

ChatMessages = list[dict[str, str]]
ScoreMethod = Literal["two_token_softmax", "ibm_sum", "none"]


class ProfileLabels(Settings):
    """The words that decide, as the tokens of the answer show them."""

    risky: str = Field(pattern=r"^[a-z-]+$")
    harmless: str = Field(pattern=r"^[a-z-]+$")

    @model_validator(mode="after")
    def _distinct(self) -> ProfileLabels:
        if self.risky.startswith(self.harmless) or self.harmless.startswith(self.risky):
            raise ValueError("risky and harmless are not distinct")
        return self


class RecordedAnswer(Settings):
    """A native answer, and what the reader must make of it."""

    output: str
    outcome: Literal["allow", "block", "malformed"]
    reason: str = ""
    confidence: str = ""
    categories: list[str] = Field(default_factory=list)


class GuardProfile(Profile):
    """How one kind of guard model is asked and read."""

    models: list[str]
    view: View
    instruction: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    risk_option: list[str] = Field(default_factory=list)
    max_tokens: int = Field(ge=1)
    reader: str
    score: ScoreMethod
    labels: ProfileLabels
    examples: list[RecordedAnswer] = Field(min_length=2)

    @field_validator("reader")
    @classmethod
    def _known_reader(cls, value: str) -> str:
        if value not in READERS:
            raise ValueError(str(UnknownName("reader", value, READERS)))
        return value

    def read(self, text: str) -> GuardReading:
        """Read an answer by the contract of the profile."""
        return READERS[self.reader](text)

    def messages(self, prompt: Prompt, view: View, *, policy: str = "") -> ChatMessages | None:
        """Write the conversation the guard is sent."""
        shown = prompt.shown(view)
        if shown is None:
            return None
        instruction = policy or self.instruction
        before = [{"role": "system", "content": instruction}] if instruction else []
        if view is View.RESPONSE:
            asked = [m.content for m in prompt.messages[:-1] if m.role is Role.USER]
            before.extend({"role": "user", "content": content} for content in asked[-1:])
            return [*before, {"role": "assistant", "content": shown}]
        return [*before, {"role": "user", "content": shown}]

    def request_options(self, risk: str) -> dict[str, object]:
        """Return the fields of a request."""
        asked: dict[str, object] = {"max_tokens": self.max_tokens, **self.options}
        if self.risk_option and risk:
            value: object = risk
            for key in reversed(self.risk_option[1:]):
                value = {key: value}
            asked[self.risk_option[0]] = value
        return asked


@cache
def guard_profile(name: str) -> GuardProfile:
    """Return a profile by name."""
    return load_profile("guard-model", name, GuardProfile)
