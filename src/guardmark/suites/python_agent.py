"""An agent of one's own: a function that gets the task and the tools as callables."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Final, Literal, Optional, Union

from pydantic import Field

from guardmark.config.settings import Settings
from guardmark.suites.bridge import CallBridge

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.config.settings import BuildContext
    from guardmark.core.case import Conversation, World
    from guardmark.core.sample import ToolDefinition


class PythonAgentSettings(Settings):
    """A function of yours: `async def run(task, tools)` that returns the answer.

    `tools` maps the name of each tool to an async function with its description as docstring; a
    function that is not async gets functions that are not.
    """

    name: str = ""
    target: str = Field(pattern=r"^[^:]+:[A-Za-z_][A-Za-z0-9_]*$")
    timeout_s: float = Field(120.0, gt=0)

    def build(self, name: str, context: BuildContext) -> PythonAgents:
        """Load the function."""
        from guardmark.defenses.function import load_target, source_of

        function = load_target(self.target, folder=context.folder)
        files = source_of(self.target, folder=context.folder)
        return PythonAgents(name, function, timeout_s=self.timeout_s, files=files)


class PythonAgents:
    """Starts the function for each case."""

    def __init__(
        self, name: str, function: Any, *, timeout_s: float, files: tuple[Path, ...] = ()
    ) -> None:
        self.name = name
        self.files = files
        self._function = function
        self._timeout_s = timeout_s

    def make(self, world: World, repeat: int) -> CallBridge:  # noqa: ARG002 - it sees tools only
        """Return the agent of one case."""
        return CallBridge(self._run, timeout_s=self._timeout_s)

    async def _run(self, conversation: Conversation, bridge: CallBridge) -> str:
        task = conversation.messages[0].content
        if inspect.iscoroutinefunction(self._function):
            tools = {tool.name: _async_tool(tool, bridge) for tool in conversation.tools}
            answer: str = await self._function(task, tools)
            return answer
        loop = asyncio.get_running_loop()
        plain = {tool.name: _plain_tool(tool, bridge, loop) for tool in conversation.tools}
        return await asyncio.to_thread(self._function, task, plain)


def _async_tool(tool: ToolDefinition, bridge: CallBridge) -> Any:
    async def call(**arguments: Any) -> str:
        return await bridge.call(tool.name, _given(tool, arguments))

    return _described(call, tool)


def _plain_tool(tool: ToolDefinition, bridge: CallBridge, loop: asyncio.AbstractEventLoop) -> Any:
    def call(**arguments: Any) -> str:
        waiting = bridge.call(tool.name, _given(tool, arguments))
        return asyncio.run_coroutine_threadsafe(waiting, loop).result()

    return _described(call, tool)


def _given(tool: ToolDefinition, arguments: dict[str, Any]) -> dict[str, Any]:
    """Leave out what was not stated: agent libraries hand the default of an argument over."""
    required: Any = tool.parameters.get("required", ())
    given = {}
    for name, value in arguments.items():
        if value is not None or name in required:
            given[name] = value
    return given


def _described(function: Any, tool: ToolDefinition) -> Any:
    """Give a function the name, words and arguments of its tool, as agent libraries read them."""
    function.__name__ = function.__qualname__ = tool.name
    function.__doc__ = tool.description
    properties: Any = tool.parameters.get("properties", {})
    required: Any = tool.parameters.get("required", ())
    parameters = []
    for name, stated in properties.items():
        kind = _kind_of(stated)
        default: Any = inspect.Parameter.empty
        if name not in required:
            kind, default = Optional[kind], None  # noqa: UP045 - of a value
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
            )
        )
    function.__signature__ = inspect.Signature(parameters, return_annotation=str)
    annotations = {parameter.name: parameter.annotation for parameter in parameters}
    function.__annotations__ = {**annotations, "return": str}
    return function


_KINDS: Final = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict[str, Any],
    "null": None,
}


def _kind_of(stated: Any) -> Any:
    """Return the type that an argument has by its JSON Schema; Any where it says none."""
    if not isinstance(stated, dict):
        return Any
    if stated.get("enum"):
        return Literal[tuple(stated["enum"])]
    kind = stated.get("type")
    alternatives = stated.get("anyOf") or stated.get("oneOf")
    if isinstance(kind, list):
        alternatives = [{**stated, "type": name} for name in kind]
    if alternatives:
        return Union[tuple(map(_kind_of, alternatives))]  # noqa: UP007 - of a list
    if kind == "array":
        return list[_kind_of(stated.get("items"))]  # type: ignore[misc]
    if isinstance(kind, str):
        return _KINDS.get(kind, Any)
    return Any
