"""Profiles of guard models: how each is asked, and in which words it answers; data, no code."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from guardmark.config.mistakes import describe_mistakes
from guardmark.config.settings import Name, Settings
from guardmark.config.source import Source
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.sample import Role, View
from guardmark.parsing.guard import READERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guardmark.config.source import Place
    from guardmark.core.sample import Prompt
    from guardmark.parsing.guard import GuardReading

ChatMessages = list[dict[str, str]]
ScoreMethod = Literal["two_token_softmax", "ibm_sum", "none"]

_FOLDER: Final = files("guardmark.defenses") / "profiles"


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


class GuardProfile(Settings):
    """How one kind of guard model is asked and read."""

    name: Name
    about: str = Field(min_length=1)
    models: list[str]
    licence: str = Field(min_length=1)
    source: str = Field(pattern=r"^(https://\S+|guardmark)$")
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


def profile_names() -> list[str]:
    """Return the names of the profiles that ship with guardmark."""
    return sorted(each.name.removesuffix(".toml") for each in _FOLDER.iterdir())


@cache
def guard_profile(name: str) -> GuardProfile:
    """Return a profile by name."""
    if name not in profile_names():
        raise UnknownName("guard profile", name, profile_names())
    file = _FOLDER / f"{name}.toml"
    return parse_profile(file.read_text(encoding="utf-8"), name)


def parse_profile(text: str, name: str) -> GuardProfile:
    """Check the text of a profile; its file is called as it is."""
    shown_as = f"profiles/{name}.toml"
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{shown_as} is not TOML: {error}.") from error
    try:
        profile = GuardProfile.model_validate(document)
    except ValidationError as error:
        # The library of TOML does not say in which line a value stands.
        source = Source(shown_as=shown_as, places=dict.fromkeys(_paths(document, ()), (0, 0)))
        mistakes = describe_mistakes(error, GuardProfile, (), source)
        raise ConfigError("\n".join(mistakes)) from error
    if profile.name != name:
        raise ConfigError(f"{shown_as}: name is {profile.name!r}, not that of the file.")
    return profile


def _paths(value: object, path: Place) -> Iterator[Place]:
    """The path of every value in a document."""
    yield path
    pairs: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    for key, inner in pairs:
        yield from _paths(inner, (*path, str(key)))
