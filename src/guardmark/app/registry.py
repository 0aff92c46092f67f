"""Names to lazily imported factories: one table a kind, and entry points of other packages."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, cast

from guardmark.core.errors import ConfigError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pydantic import BaseModel

    from guardmark.app.settings import PriceSettings
    from guardmark.net.client import Services

_DEFENSES = "guardmark.app.parts.defense_settings"
_MODELS = "guardmark.app.parts.model_settings"
_EMBEDDINGS = "guardmark.app.parts.embedding_settings"

BUILTIN_PARTS: dict[str, dict[str, str]] = {
    "defense": {
        "allow-all": f"{_DEFENSES}:AllowAllSettings",
        "block-all": f"{_DEFENSES}:BlockAllSettings",
        "canonical": "guardmark.app.parts.canonical_settings:CanonicalSettings",
        "chain": f"{_DEFENSES}:ChainSettings",
        "classifier": f"{_DEFENSES}:ClassifierSettings",
        "coin": f"{_DEFENSES}:CoinSettings",
        "decisions": f"{_DEFENSES}:DecisionsSettings",
        "guard-model": "guardmark.app.parts.guard_settings:GuardModelSettings",
        "http": "guardmark.app.parts.http_settings:HttpSettings",
        "ngram": f"{_DEFENSES}:NgramSettings",
        "pattern": f"{_DEFENSES}:PatternSettings",
        "python": f"{_DEFENSES}:PythonSettings",
    },
    "model": {
        "chat": f"{_MODELS}:ChatModelSettings",
        "local": f"{_MODELS}:LocalModelSettings",
        "scripted": f"{_MODELS}:ScriptedModelSettings",
    },
    "judge": {
        "chat": "guardmark.app.parts.judge_settings:LlmJudgeSettings",
        "panel": "guardmark.app.parts.judge_settings:PanelSettings",
        "rules": "guardmark.app.parts.judge_settings:RulesJudgeSettings",
    },
    "embedding": {
        "embedding": f"{_EMBEDDINGS}:EmbeddingSettings",
        "local-embedding": f"{_EMBEDDINGS}:LocalEmbeddingSettings",
    },
    "gradient": {
        "hotflip": "guardmark.app.parts.gradient_settings:HotFlipSettings",
    },
}
"""Kind, then type as written in a configuration, to `module:name` of its settings."""

GROUPS = {
    "defense": "guardmark.defenses",
    "model": "guardmark.models",
    "judge": "guardmark.judges",
    "embedding": "guardmark.embeddings",
    "gradient": "guardmark.gradient_attacks",
}
"""Kind to the entry-point group under which other packages add theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """What a part may ask for while it is built."""

    folder: Path
    seed: int
    services: Services | None
    defenses: Mapping[str, object]
    prices: Mapping[str, PriceSettings] = field(default_factory=dict)
    system_prompt: str = ""
    where: str = ""


class PartSettings(Protocol):
    """Checked settings that know how to build their part."""

    def build(self, name: str, context: BuildContext) -> object:
        """Build the part; heavy imports happen here."""
        ...


def settings_model(kind: str, part_type: str) -> type[BaseModel]:
    """Return the settings of a registered type."""
    table = known_types(kind)
    if part_type not in table:
        # A judge of sameness may be a model as well.
        others = known_types("model") if kind == "embedding" else {}
        raise UnknownName(f"{kind} type", part_type, [*others, *table])
    module_name, _, attribute = table[part_type].partition(":")
    try:
        return cast("type[BaseModel]", getattr(import_module(module_name), attribute))
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"The {kind} type {part_type!r} cannot be loaded from {table[part_type]}: {error}."
        ) from error


@cache
def known_types(kind: str) -> Mapping[str, str]:
    """Return every type of a kind with the place it is loaded from."""
    table = dict(BUILTIN_PARTS[kind])
    for entry in entry_points(group=GROUPS[kind]):
        owner = table.get(entry.name)
        if owner is not None and owner != entry.value:
            raise ConfigError(
                f"Two packages provide a {kind} type called {entry.name!r}: {owner} and "
                f"{entry.value}.\nUninstall one of them."
            )
        table[entry.name] = entry.value
    return table


def helper_kind(name: str, settings: Mapping[str, object]) -> str:
    """Return of which kind a part is that helps an attacker."""
    is_model = name != "equivalence" or settings.get("type") in known_types("model")
    return "model" if is_model else "embedding"


def build_part(settings: Any, name: str, context: BuildContext) -> object:
    """Build a part from its checked settings."""
    return cast("PartSettings", settings).build(name, context)
