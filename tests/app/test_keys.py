"""Each key of a configuration is explained in a sentence, and no sentence is about a key of old."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from guardmark.app.parts.loading import config_schema

WORDS: dict[str, dict[str, str]] = tomllib.loads(
    (files("guardmark.app") / "keys.toml").read_text(encoding="utf-8")
)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "configuration.md"


def known_keys() -> dict[str, dict[str, Any]]:
    """Every kind of settings that a configuration holds, with its keys."""
    schema = config_schema()
    kinds = {"Config": schema, **schema["$defs"]}
    shown = [name for name in kinds if name.endswith("Settings") or "." in name or name == "Config"]
    return {name: kinds[name].get("properties", {}) for name in shown}


def test_no_key_lacks_its_sentence() -> None:
    """Editors show it beside the key, and so does the reference; it stands in `app/keys.toml`."""
    unsaid = [
        f"{kind}.{key}"
        for kind, keys in known_keys().items()
        for key, said in keys.items()
        if not str(said.get("description", "")).endswith(".")
    ]
    assert unsaid == [], "each needs a sentence in src/guardmark/app/keys.toml"
    page = PAGE.read_text(encoding="utf-8")
    assert f"| `error_limit` | {WORDS['RunSettings']['error_limit']} |" in page


def test_no_sentence_is_about_a_key_that_is_gone() -> None:
    """What is shared is used by somebody, and what has a place has a key there."""
    keys = known_keys()
    anywhere = {key for each in keys.values() for key in each}
    gone = [
        f"{kind}.{key}"
        for kind, sentences in WORDS.items()
        for key in sentences
        if key not in (anywhere if kind == "common" else keys.get(kind, {}))
    ]
    assert gone == []
