"""A defense of a configuration, built anew in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.app.parts.building import build_defenses
from guardmark.core.errors import ConfigError
from guardmark.core.protocols import InlineDefense

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.app.parts.building import Parts
    from guardmark.app.parts.loading import LoadedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """Builds one defense from the settings it was built from before; can be sent to a process."""

    loaded: LoadedConfig
    name: str

    def __call__(self) -> InlineDefense:
        """Build it."""
        part = build_defenses(self.loaded, None, only=(self.name,))[0].part
        if not isinstance(part, InlineDefense):
            raise ConfigError(f"{self.name} does not answer at once.")
        return part


def rebuilds(loaded: LoadedConfig, parts: Parts) -> Mapping[str, Rebuild]:
    """Return how processes get the defenses that answer at once."""
    return {
        built.manifest.name: Rebuild(loaded=loaded, name=built.manifest.name)
        for built in parts.defenses
        if isinstance(built.part, InlineDefense)
        and ("defenses", built.manifest.name) in loaded.parts
    }
