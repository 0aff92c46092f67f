"""The JSON Schema of a configuration, with the settings of every registered part."""

from __future__ import annotations

from typing import Any, Final

from guardmark.app.registry import GROUPS, known_types, settings_model
from guardmark.app.settings import Config

_HELPERS: Final = {
    "attacker": ("model",),
    "equivalence": ("model", "embedding"),
    "critic": ("model",),
    "gradient": ("gradient",),
}
"""Keys of the section `adaptive` that name a part, to the kinds it may be of."""


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a configuration."""
    schema = Config.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "guardmark configuration"
    definitions: dict[str, Any] = schema.setdefault("$defs", {})
    for kind in GROUPS:
        names = []
        for part_type in sorted(known_types(kind)):
            name = f"{kind}.{part_type}"
            definitions[name] = _part_schema(kind, part_type, definitions)
            names.append(name)
        definitions[kind] = {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in names]}
    schema["properties"]["defenses"]["additionalProperties"] = {"$ref": "#/$defs/defense"}
    pipeline = definitions["PipelineSettings"]["properties"]
    pipeline["model"] = {"$ref": "#/$defs/model"}
    pipeline["judges"]["items"] = {"$ref": "#/$defs/judge"}
    adaptive = definitions["AdaptiveSettings"]["properties"]
    for helper, kinds in _HELPERS.items():
        places = [{"$ref": f"#/$defs/{kind}"} for kind in kinds]
        adaptive[helper] = {"anyOf": [*places, {"type": "null"}]}
    return schema


def _part_schema(kind: str, part_type: str, definitions: dict[str, Any]) -> dict[str, Any]:
    part = settings_model(kind, part_type).model_json_schema()
    definitions.update(part.pop("$defs", {}))
    version = {"type": "string", "default": "", "description": "Its version, as reports show it."}
    part["properties"] = {
        "type": {"const": part_type},
        "version": version,
        **part.get("properties", {}),
    }
    part["required"] = ["type", *part.get("required", [])]
    part["title"] = f"{kind} of type {part_type}"
    return part
