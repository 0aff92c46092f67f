"""Definitions of tools on a row, in the forms of OpenAI's two protocols, Anthropic and MCP."""

from __future__ import annotations

import json
from typing import Any, Final

from guardmark.core.sample import ToolDefinition
from guardmark.datasets.formats.messages import UnreadMessage

_SCHEMAS: Final = ("parameters", "input_schema", "inputSchema")
"""Where the JSON Schema of the arguments stands."""
_NEEDS: Final = (
    "is not a list of tool definitions, each with a name, a description and parameters (JSON "
    "Schema)"
)


def defines_tools(stated: object) -> bool:
    """Tell whether a value looks like definitions of tools, and not like their bare names."""
    tools = _listed(stated)
    return bool(tools) and all(isinstance(each, dict) and _is_definition(each) for each in tools)


def _is_definition(stated: dict[str, Any]) -> bool:
    return isinstance(stated.get("function"), dict) or "name" in stated


def read_tools(stated: object) -> tuple[ToolDefinition, ...]:
    """Read definitions, as a list or as the JSON text of one."""
    tools = _listed(stated)
    if not tools:
        raise UnreadMessage(_NEEDS)
    read = tuple(_tool(number, each) for number, each in enumerate(tools, start=1))
    names = [each.name for each in read]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UnreadMessage(f"defines the tool {twice!r} twice")
    return read


def _listed(stated: object) -> list[Any]:
    """Return the list that a value is, or that it is the JSON of; empty for anything else."""
    if isinstance(stated, str):
        try:
            stated = json.loads(stated)
        except (ValueError, RecursionError):
            return []
    return stated if isinstance(stated, list) else []


def _tool(number: int, stated: object) -> ToolDefinition:
    """Read one definition; the inner object of the chat protocol holds the same fields."""
    inner = stated.get("function") if isinstance(stated, dict) else None
    fields = inner if isinstance(inner, dict) else stated
    if not isinstance(fields, dict):
        raise UnreadMessage(_NEEDS)
    name, description = fields.get("name"), fields.get("description") or ""
    schema: Any = next((fields[key] for key in _SCHEMAS if fields.get(key) is not None), {})
    if not isinstance(name, str) or not name or not isinstance(description, str):
        raise UnreadMessage(f"holds a tool, number {number}, whose name or description is no text")
    if not isinstance(schema, dict):
        raise UnreadMessage(f"defines the tool {name!r} with parameters that are no JSON Schema")
    return ToolDefinition(name=name, description=description, parameters=schema)
