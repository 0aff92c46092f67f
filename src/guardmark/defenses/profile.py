"""Profiles: named guard models, services and classifiers, as data with their source."""

from __future__ import annotations

import tomllib
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from guardmark.config.mistakes import describe_mistakes
from guardmark.config.settings import Name, Settings
from guardmark.config.source import Source
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guardmark.config.source import Keys

ProfileKind = Literal["guard-model", "service", "classifier"]

_FOLDER: Final = Path(__file__).with_name("profiles")
TYPES: Final[dict[ProfileKind, str]] = {
    "service": "http",
    "guard-model": "guard-model",
    "classifier": "classifier",
}
"""Kind of profile to the type of defense that takes it."""


class ProfileSource(Settings):
    """Where the facts of a profile come from, and when they were read there."""

    title: str = Field(min_length=1)
    url: str = Field(pattern=r"^(https://\S+|guardmark)$")
    read: date | None = None

    @model_validator(mode="after")
    def _dated(self) -> ProfileSource:
        if self.url != "guardmark" and self.read is None:
            raise ValueError("needs the date on which it was read")
        return self


class Profile(Settings):
    """What every profile says of itself."""

    name: Name
    about: str = Field(min_length=1)
    licence: str = Field(min_length=1)  # of the model, or the terms of the service
    source: ProfileSource
    limits: str = Field(min_length=1)
    unconfirmed: list[str] = Field(default_factory=list)  # what no source confirmed
    trained_on: list[str] = Field(default_factory=list)  # says the source: entries, sets of the hub


_Profile = TypeVar("_Profile", bound=Profile)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEntry:
    """What a list of profiles says of one.

    Attributes:
        name: Its name.
        type: Type of the defense.
        about: What it is.
        licence: Licence of the model, or terms of the service.
        variables: Environment variables that it reads, that of the key first.
        source: Where this is documented.
        limits: What it cannot do.
        unconfirmed: What no source confirmed.
        trained_on: Data sets that it was trained on, as its source says.
    """

    name: str
    type: str
    about: str
    licence: str
    variables: tuple[str, ...]
    source: str
    limits: str
    unconfirmed: tuple[str, ...]
    trained_on: tuple[str, ...]


@cache
def profile_names(kind: ProfileKind) -> tuple[str, ...]:
    """Return the names of the profiles that ship with guardmark."""
    folder = _FOLDER / f"{kind}s"
    return tuple(sorted(each.name.removesuffix(".toml") for each in folder.iterdir()))


def kind_of_profile(name: str) -> ProfileKind:
    """Return what a name of a profile names."""
    for kind in TYPES:
        if name in profile_names(kind):
            return kind
    raise UnknownName("profile", name, _every_name())


def list_profiles() -> list[ProfileEntry]:
    """Return every profile, by type of defense and name."""
    return [describe_profile(name) for name in _every_name()]


def _every_name() -> list[str]:
    names: list[str] = []
    for kind in TYPES:
        names.extend(profile_names(kind))
    return names


def describe_profile(name: str) -> ProfileEntry:
    """Return what a list of profiles says of one."""
    kind = kind_of_profile(name)
    file = _FOLDER / f"{kind}s" / f"{name}.toml"
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    return ProfileEntry(
        name=document["name"],
        type=TYPES[kind],
        about=document["about"],
        licence=document["licence"],
        variables=tuple(_variables(document.get("settings"))),
        source=document["source"]["url"],
        limits=document["limits"],
        unconfirmed=tuple(document.get("unconfirmed", ())),
        trained_on=tuple(document.get("trained_on", ())),
    )


def _variables(value: object) -> Iterator[str]:
    """Yield the environment variables that settings name, in their order."""
    if isinstance(value, dict):
        name = value.get("env")
        if isinstance(name, str):
            yield name
        for member in value.values():
            yield from _variables(member)


def load_profile(kind: ProfileKind, name: str, model: type[_Profile]) -> _Profile:
    """Return a profile by name."""
    if name not in profile_names(kind):
        raise UnknownName(f"{kind.replace('-', ' ')} profile", name, profile_names(kind))
    file = _FOLDER / f"{kind}s" / f"{name}.toml"
    return parse_profile(file.read_text(encoding="utf-8"), name, model)


def parse_profile(text: str, name: str, model: type[_Profile]) -> _Profile:
    """Check the text of a profile; its file is called as it is."""
    shown_as = f"profiles/{name}.toml"
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{shown_as} is not TOML: {error}.") from error
    try:
        profile = model.model_validate(document)
    except ValidationError as error:
        # The library of TOML does not say in which line a value stands.
        source = Source(shown_as=shown_as, places=dict.fromkeys(_paths(document, ()), (0, 0)))
        mistakes = describe_mistakes(error, model, (), source)
        raise ConfigError("\n".join(mistakes)) from error
    if profile.name != name:
        raise ConfigError(f"{shown_as}: name is {profile.name!r}, not that of the file.")
    return profile


def with_profile(given: Any, defaults: dict[str, Any], *, merged: tuple[str, ...] = ()) -> Any:
    """Take from a profile what a configuration leaves out; tables named in `merged` key by key."""
    settings = {**defaults, **given}
    for key in merged:
        if isinstance(defaults.get(key), dict) and isinstance(given.get(key), dict):
            settings[key] = {**defaults[key], **given[key]}
    return settings


def _paths(value: object, path: Keys) -> Iterator[Keys]:
    """The path of every value in a document."""
    yield path
    pairs: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    for key, inner in pairs:
        yield from _paths(inner, (*path, str(key)))
