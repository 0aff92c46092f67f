"""The configuration of `guardmark run` without a file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from guardmark.app.parts.loading import LoadedConfig, parse_config


def builtin_config() -> LoadedConfig:
    """Return the built-in defenses on the built-in data."""
    text = (files("guardmark.app") / "templates" / "builtin.yaml").read_text(encoding="utf-8")
    return parse_config(text, folder=Path.cwd(), shown_as="built-in")
