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
    return bool(tools) and all(map(_is_definition, tools))


def _is_definition(stated: object) -> bool:
    if not isinstance(stated, dict):
        return False
    return isinstance(stated.get("function"), dict) or "name" in stated


def read_tools(stated: object) -> tuple[ToolDefinition, ...]:
    """Read definitions, as a list or as the JSON text of one."""
    tools = _listed(stated)
    if not tools:
        raise UnreadMessage(_NEEDS)
    read: dict[str, ToolDefinition] = {}
    for number, definition in enumerate(tools, start=1):
        tool = _tool(number, definition)
        if tool.name in read:
            raise UnreadMessage(f"defines the tool {tool.name!r} twice")
        read[tool.name] = tool
    return tuple(read.values())


def _listed(stated: object) -> list[Any]:
    """Return the list that a value is, or that it is the JSON of; empty for anything else."""
    if isinstance(stated, str):
        try:
            stated = json.loads(stated)
        except (ValueError, RecursionError):
            return []
    if not isinstance(stated, list):
        return []
    return stated


def _tool(number: int, stated: object) -> ToolDefinition:
    """Read one definition; the inner object of the chat protocol holds the same fields."""
    if not isinstance(stated, dict):
        raise UnreadMessage(_NEEDS)
    fields = stated
    if isinstance(stated.get("function"), dict):
        fields = stated["function"]
    name = fields.get("name")
    description = fields.get("description") or ""
    schema: Any = {}
    for key in _SCHEMAS:
        if fields.get(key) is not None:
            schema = fields[key]
            break
    if not isinstance(name, str) or not name or not isinstance(description, str):
        raise UnreadMessage(f"holds a tool, number {number}, whose name or description is no text")
    if not isinstance(schema, dict):
        raise UnreadMessage(f"defines the tool {name!r} with parameters that are no JSON Schema")
    return ToolDefinition(name=name, description=description, parameters=schema)
