"""Mistakes that show only when a part is built, told with their place in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.core.errors import BadSettings, ConfigError

if TYPE_CHECKING:
    from guardmark.app.parts.loading import LoadedConfig


def placed(error: ConfigError, loaded: LoadedConfig, path: tuple[str, ...]) -> ConfigError:
    """Say where in the configuration the mistake stands that kept a part from being built."""
    if isinstance(error, BadSettings):
        told = [_told(loaded, (*path, *below), message) for below, message in error.mistakes]
        return ConfigError("\n".join([*told, *error.more]))
    message = str(error)
    # Many messages begin with the dotted setting they are about; the deepest is the place.
    named = [
        known
        for known in loaded.source.places
        if known[: len(path)] == path and message.startswith(".".join(known))
    ]
    return ConfigError(_told(loaded, max(named, key=len, default=path), message))


def _told(loaded: LoadedConfig, path: tuple[str, ...], message: str) -> str:
    dotted = ".".join(path)
    told = message if message.startswith(dotted) else f"{dotted}: {message}"
    return f"{loaded.source.where(path)}: {told}"
