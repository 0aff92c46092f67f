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


def settings_model(kind: str, part_type: str) -> type[BaseModel]:
    """Return the settings of a registered type."""
    table = known_types(kind)
    if part_type not in table:
        # A judge of sameness may be a model as well.
        others = known_types("model") if kind == "embedding" else {}
        raise UnknownName(f"{kind} type", part_type, [*others, *table])
    module_name, _, attribute = table[part_type].partition(":")
    try:
        with CallAlarm(_IMPORT_TIMEOUT_S):
            found = getattr(import_module(module_name), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        reason = str(error) or type(error).__name__
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


@cache
def known_types(kind: str) -> Mapping[str, str]:
    """Return every type of a kind with the place it is loaded from."""
    table = dict(builtin_parts()[kind])
    for entry in entry_points(group=GROUPS[kind]):
        owner = table.get(entry.name)
        if owner is not None and owner != entry.value:
            raise ConfigError(
                f"Two packages provide a {kind} type called {entry.name!r}: {owner} and "
                f"{entry.value}.\nUninstall one of them."
            )
        table[entry.name] = entry.value
    return table


@cache
def package_of(kind: str, part_type: str, target: str = "") -> str:
    """Return the package that adds a type, or that a target is imported from, with its version."""
    packages = [each.dist for each in entry_points(group=GROUPS[kind], name=part_type)]
    if target and ".py:" not in target:
        with suppress(PackageNotFoundError):
            packages.append(distribution(re.split("[.:]", target)[0]))
    return next((f"{each.name} {each.version}" for each in packages if each), "")


def helper_kind(name: str, settings: Mapping[str, object]) -> str:
    """Return of which kind a part is that helps an attacker."""
    is_model = name != "equivalence" or str(settings.get("type")) in known_types("model")
    return "model" if is_model else "embedding"


def build_part(settings: Any, name: str, context: BuildContext) -> object:
    """Build a part from its checked settings; heavy imports happen there."""
    return settings.build(name, context)
