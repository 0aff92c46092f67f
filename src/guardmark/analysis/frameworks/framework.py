"""A framework as its source publishes it, and the codes of our categories and operators in it."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.core.values import dataclass

_FOLDER: Final = Path(__file__).parent

FIGURES: Final = {
    "attack_success_rate": "attack success rate",
    "false_positive_rate": "false positive rate",
    "answered": "share of inputs that got a decision",
    "adaptive": "attack success of an adaptive attacker",
    "agent_attack_success": "attack success in an agent",
    "agent_utility": "tasks of an agent that get done",
    "blind_spots": "slices that are worse than the rest",
    "gate": "limits that were set beforehand, and how they stand",
    "data": "data sets with versions, hashes and counts",
    "policy": "what happens to malformed answers and errors",
}
"""What can be evidence, or relevant, and what each is."""

EVERY_ATTACK: Final = "*"
"""In place of categories: every attack falls under the item."""

SLICED_AS: Final = {"owasp": "owasp-llm"}
"""Short names by which samples can be sliced, and the framework that each means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkItem:
    """One item of a framework.

    Attributes:
        code: As the framework numbers it.
        title: What it is about.
        categories: Categories of attacks whose rates are evidence for it, `NAME` or `NAME/FINER`.
        figures: Figures that are evidence for it: keys of `FIGURES`.
        relevant: Figures or categories that bear on it and prove nothing about it.
        samples: Categories whose attacks fall under it when samples are sliced by the framework;
            `categories` unless stated, `*` for every attack.
        operators: Families of operators of adaptive attacks that are its technique.
    """

    code: str
    title: str
    categories: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    relevant: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A list of items that buyers ask about, as its source publishes it.

    Attributes:
        key: What it is called on the command line.
        name: Its name.
        version: Its version.
        date: When that was published, as YYYY-MM-DD.
        source: Where.
        items: Its items, in its order.
        withdrawn: Since when its publisher has another version, as YYYY-MM-DD; empty where this
            one holds.
        replaced_by: Name of the framework that took its place, or empty.
    """

    key: str
    name: str
    version: str
    date: str
    source: str
    items: tuple[FrameworkItem, ...]
    withdrawn: str = ""
    replaced_by: str = ""

    def item(self, code: str) -> FrameworkItem:
        """Return an item by its code.

        Raises:
            UnknownName: The framework has no such item.
        """
        for item in self.items:
            if item.code == code:
                return item
        known = [item.code for item in self.items]
        raise UnknownName(f"item of {self.name} {self.version}", code, known)


@cache
def framework_names() -> tuple[str, ...]:
    """Name the frameworks that ship with guardmark, withdrawn versions included."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def is_framework(name: str) -> bool:
    """Tell whether samples can be sliced by a name because it is that of a framework."""
    return SLICED_AS.get(name, name) in framework_names()


def sliced_by(name: str) -> Framework:
    """Return the framework that a name means among `stats.slices`."""
    return read_framework(SLICED_AS.get(name, name))


@cache
def current_frameworks() -> tuple[Framework, ...]:
    """Return the frameworks that hold today, by name."""
    frameworks = [read_framework(name) for name in framework_names()]
    return tuple(each for each in frameworks if not each.withdrawn)


@cache
def read_framework(key: str) -> Framework:
    """Read a framework: one that ships with guardmark, or a TOML file of the same form.

    Raises:
        UnknownName: There is none of that name.
        ConfigError: The file cannot be read, or names a figure or category that does not exist.
    """
    if key.endswith(".toml"):
        return _parsed(Path(key).stem, Path(key).expanduser())
    if key not in framework_names():
        raise UnknownName("framework", key, framework_names())
    return _parsed(key, _FOLDER / f"{key}.toml")


def _parsed(key: str, path: Path) -> Framework:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"The framework {path} cannot be read as TOML: {error}.") from error
    stated = tree.pop("items", [])
    try:
        items = tuple(_item(each) for each in stated)
        framework = Framework(key=key, items=items, **tree)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"The framework {path} is not built as one: {error}.\n"
            "Next: it needs name, version, date, source and [[items]] with code and title."
        ) from error
    codes = [item.code for item in items]
    doubled = sorted({code for code in codes if codes.count(code) > 1})
    if doubled:
        raise ConfigError(f"The framework {path} has the code {doubled[0]!r} twice.")
    return framework


def _item(stated: dict[str, Any]) -> FrameworkItem:
    """Read an item; what it names has to exist."""
    values: dict[str, Any] = {}
    for key, value in stated.items():
        values[key] = tuple(value) if isinstance(value, list) else value
    values.setdefault("samples", values.get("categories", ()))
    item = FrameworkItem(**values)
    known = known_categories()
    for name in item.categories:
        if name not in known:
            raise ValueError(f"{item.code} names the category {name!r}, which does not exist")
    for name in item.samples:
        if name not in known and name != EVERY_ATTACK:
            raise ValueError(f"{item.code} names the category {name!r}, which does not exist")
    for name in item.figures:
        if name not in FIGURES:
            raise ValueError(f"{item.code} names the figure {name!r}, which does not exist")
    for name in item.relevant:
        if name not in FIGURES and name not in known:
            raise ValueError(f"{item.code} names {name!r}, which is no figure and no category")
    return item


@cache
def known_categories() -> frozenset[str]:
    """Name the categories of the built-in taxonomy and their finer ones, as `NAME/FINER`."""
    names = set(DEFAULT_TAXONOMY)
    for category, finer in DEFAULT_TAXONOMY.items():
        names.update(f"{category}/{name}" for name in finer)
    return frozenset(names)


def code_of(framework: Framework, category: str, subcategory: str = "") -> str:
    """Return the code of an attack in a framework; empty where no item is about it.

    The narrowest item counts: one that names the finer category before one that names the
    category, one of few categories before one of many, one for every attack last. Data that carry
    codes themselves, such as the hazards of AILuminate, keep them.
    """
    for word in (subcategory, category):
        for item in framework.items:
            if word == item.code or word.startswith(f"{item.code}_"):
                return item.code
    for name in (f"{category}/{subcategory}", category, EVERY_ATTACK):
        holding = [item for item in framework.items if name in item.samples]
        if holding:
            return min(holding, key=lambda item: len(item.samples)).code
    return ""


def codes_of_family(framework: Framework, family: str) -> tuple[str, ...]:
    """Return the items whose technique the operators of a family are."""
    return tuple(item.code for item in framework.items if family in item.operators)
