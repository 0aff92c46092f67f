"""A defense of a configuration, built anew in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.app.parts import build_defenses
from guardmark.core.errors import ConfigError
from guardmark.core.protocols import InlineDefense

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.app.config import LoadedConfig
    from guardmark.app.parts import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """Builds one defense from the settings it was built from before; can be sent to a process.

    Attributes:
        loaded: The checked configuration.
        name: Of the defense.
    """

    loaded: LoadedConfig
    name: str

    def __call__(self) -> InlineDefense:
        """Build it.

        Returns:
            The defense.

        Raises:
            ConfigError: If it cannot be built here, or does not answer at once.
        """
        part = build_defenses(self.loaded, None, only=(self.name,))[0].part
        if not isinstance(part, InlineDefense):
            raise ConfigError(f"{self.name} does not answer at once.")
        return part


def rebuilds(loaded: LoadedConfig, parts: Parts) -> Mapping[str, Rebuild]:
    """Return how processes get the defenses that answer at once.

    Args:
        loaded: The checked configuration.
        parts: What was built from it; parts that came from elsewhere are left out.

    Returns:
        Name to what builds it.
    """
    return {
        built.manifest.name: Rebuild(loaded=loaded, name=built.manifest.name)
        for built in parts.defenses
        if isinstance(built.part, InlineDefense)
        and ("defenses", built.manifest.name) in loaded.parts
    }
