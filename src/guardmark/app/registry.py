"""Names to lazily imported factories: one table a kind, and entry points of other packages."""

from __future__ import annotations

import re
import tomllib
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from guardmark.config.deadline import CallAlarm
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from guardmark.config.settings import BuildContext


_IMPORT_TIMEOUT_S: Final = 60.0  # a library of models may take long
_MOST_REASON: Final = 200  # characters

GROUPS = {
    "defense": "guardmark.defenses",
    "model": "guardmark.models",
    "judge": "guardmark.judges",
    "embedding": "guardmark.embeddings",
    "gradient": "guardmark.gradient_attacks",
    "agent": "guardmark.agents",
}
"""Kind to the entry-point group under which other packages add theirs."""


def settings_model(
    kind: str, part_type: str, *, patience_s: float = _IMPORT_TIMEOUT_S
) -> type[BaseModel]:
    """Return the settings of a registered type; its package has so long to be imported."""
    table = known_types(kind)
    if part_type not in table:
        # A judge of sameness may be a model as well.
        others = known_types("model") if kind == "embedding" else {}
        raise UnknownName(f"{kind} type", part_type, [*others, *table])
    _require_one_owner(kind, part_type)
    module_name, _, attribute = table[part_type].partition(":")
    try:
        with CallAlarm(patience_s):
            found = getattr(import_module(module_name), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        reason = str(error) or type(error).__name__
        if isinstance(error, SystemExit):
            reason = "it ends the process while it is imported (sys.exit)"
        raise _unusable(kind, part_type, table[part_type], reason) from error
    if not (isinstance(found, type) and hasattr(found, "model_validate")):
        raise _unusable(kind, part_type, table[part_type], "it is no class of settings")
    return cast("type[BaseModel]", found)


def _unusable(kind: str, part_type: str, target: str, reason: str) -> ConfigError:
    """Say which package provides a type that cannot be loaded."""
    package = package_of(kind, part_type) or "the package that provides it"
    return ConfigError(
        f"The {kind} type {part_type!r} cannot be loaded from {target}: {reason[:_MOST_REASON]}.\n"
        f"Next: repair or uninstall {package}."
    )


@cache
def builtin_parts() -> dict[str, dict[str, str]]:
    """Return the types of each kind that come with guardmark, and where they are loaded from."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Who provides a type, and where it is loaded from.

    Attributes:
        target: Module and attribute.
        package: Name and version of the package; empty for what comes with guardmark.
    """

    target: str
    package: str = ""

    @property
    def owner(self) -> str:
        """The owner in words."""
        return f"{self.package or 'guardmark'} ({self.target})"


@cache
def providers(kind: str) -> Mapping[str, tuple[Provider, ...]]:
    """Return who provides each type of a kind; more than one where packages are at odds."""
    table = {name: [Provider(target=target)] for name, target in builtin_parts()[kind].items()}
    for entry in entry_points(group=GROUPS[kind]):
        package = ""
        if entry.dist is not None:
            package = f"{entry.dist.name} {entry.dist.version}"
        known = table.setdefault(entry.name, [])
        if all(provider.target != entry.value for provider in known):
            known.append(Provider(target=entry.value, package=package))
    return {name: tuple(known) for name, known in table.items()}


@cache
def known_types(kind: str) -> Mapping[str, str]:
    """Return every type of a kind with the place it is loaded from."""
    return {name: known[0].target for name, known in providers(kind).items()}


def _require_one_owner(kind: str, part_type: str) -> None:
    """Refuse a type that two packages provide, since it is open which one was measured."""
    known = providers(kind)[part_type]
    if len(known) > 1:
        owners = " and ".join(provider.owner for provider in known)
        raise ConfigError(
            f"Two packages provide a {kind} type called {part_type!r}: {owners}.\n"
            "Next: uninstall one of them."
        )


@cache
def package_of(kind: str, part_type: str, target: str = "") -> str:
    """Return the package that adds a type, or that a target is imported from, with its version."""
    for provider in providers(kind).get(part_type, ()):
        if provider.package:
            return provider.package
    if target and ".py:" not in target:
        with suppress(PackageNotFoundError):
            package = distribution(re.split("[.:]", target)[0])
            return f"{package.name} {package.version}"
    return ""


def helper_kind(name: str, settings: Mapping[str, object]) -> str:
    """Return of which kind a part is that helps an attacker."""
    is_model = name != "equivalence" or str(settings.get("type")) in known_types("model")
    if is_model:
        return "model"
    return "embedding"


def build_part(settings: Any, name: str, context: BuildContext) -> object:
    """Build a part from its checked settings; heavy imports happen there."""
    return settings.build(name, context)
