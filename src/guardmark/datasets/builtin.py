"""The data sets that ship with guardmark."""

from __future__ import annotations

import tomllib
from pathlib import Path

from guardmark.core.errors import UnknownName
from guardmark.core.values import dataclass
from guardmark.datasets.formats.fields import DatasetSpec

_FOLDER = Path(__file__).with_name("builtin")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinSet:
    """A data set that ships with guardmark.

    Attributes:
        name: What it is called.
        version: Its version; a changed set is a new version.
        purpose: What it is for, in a sentence.
        open_categories: Whether its categories need not be declared.
    """

    name: str
    version: str
    purpose: str
    open_categories: bool = False

    @property
    def target(self) -> str:
        """What a person writes for it: the name alone means version 1."""
        return self.name if self.version == "1" else f"{self.name}@{self.version}"

    @property
    def folder(self) -> Path:
        """Where its files lie."""
        return _FOLDER / f"{self.name}-{self.version}"

    @property
    def card(self) -> Path:
        """The data card: how it was made and what it does not cover."""
        return self.folder / "CARD.md"


DEFAULT_SET = "core@2"
"""The data set that is measured where none is named, from the command line and from Python."""

_SETS = tomllib.loads((_FOLDER / "sets.toml").read_text(encoding="utf-8"))["sets"]
BUILTIN_SETS = tuple(BuiltinSet(**known) for known in _SETS)


def builtin_set(target: str) -> BuiltinSet:
    """Return a built-in data set by name, `NAME` or `NAME@VERSION`."""
    known = {builtin.target: builtin for builtin in BUILTIN_SETS}
    if target.removesuffix("@1") not in known:
        raise UnknownName("built-in data set", target, known)
    return known[target.removesuffix("@1")]


def builtin_specs(target: str) -> tuple[DatasetSpec, ...]:
    """Return the files of a built-in data set as data sets to read."""
    builtin = builtin_set(target)
    paths = sorted([*builtin.folder.glob("*.jsonl"), *builtin.folder.glob("pack.json")])
    return tuple(
        DatasetSpec(
            name=builtin.name,
            path=path,
            shown_as=f"{builtin.target}/{path.name}",
            version=builtin.version,
            open_categories=builtin.open_categories,
        )
        for path in paths
    )
