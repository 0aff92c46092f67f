"""A guard that stands as an MCP proxy: started between the agent's calls and the suite's tools.

What reaches the tools behind it, and what comes back, is the truth: nothing is judged.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from contextlib import aclosing
from dataclasses import field, replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field, field_validator

from guardmark.config.settings import Settings
from guardmark.core.case import PassedDefinition, PassedGuard, ToolList, ToolResult
from guardmark.core.place import Place
from guardmark.core.sample import ToolDefinition, View
from guardmark.core.values import dataclass
from guardmark.suites.mcp_connection import (
    VERSION,
    HttpConnection,
    ProxyFault,
    StdioConnection,
    free_port,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aiohttp import web

    from guardmark.config.settings import BuildContext
    from guardmark.core.case import AgentCall, World, WorldCheck
    from guardmark.suites.mcp_connection import Connection

UPSTREAM_VARIABLE: Final = "GUARDMARK_MCP_URL"
"""Variable that holds the address of the tools; `{upstream}` in the command stands for it, too."""
PORT_VARIABLE: Final = "GUARDMARK_MCP_PORT"
"""Variable that holds the port on which a proxy over HTTP listens; `{port}` stands for it, too."""
_MOST_PAGES: Final = 100
"""Pages of a list of tools; a proxy that gives more does not end its list."""
_QUOTED: Final = 200
_LOOPBACK: Final = re.compile(r"http://(127\.0\.0\.1|localhost):\{port\}(/[^\s]*)?")


class McpProxySettings(Settings):
    """An MCP proxy that is started as a command, and speaks MCP on its streams or on loopback."""

    command: list[str] = Field(min_length=1)
    url: str = ""
    approve: Literal["never", "always"] = "never"
    timeout_s: float = Field(10.0, gt=0)
    start_timeout_s: float = Field(30.0, gt=0)

    @field_validator("url")
    @classmethod
    def _on_loopback(cls, value: str) -> str:
        if value and not _LOOPBACK.fullmatch(value):
            raise ValueError(
                f"{value!r} is no address on loopback with a port of its own for each case: "
                "for example http://127.0.0.1:{port}/mcp"
            )
        return value

    def build(self, name: str, context: BuildContext) -> McpProxy:
        """Return what starts the proxy for each case."""
        return McpProxy(
            name=name,
            command=tuple(self.command),
            folder=context.folder,
            url=self.url,
            approves=self.approve == "always",
            timeout_s=self.timeout_s,
            start_timeout_s=self.start_timeout_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class McpProxy:
    """How a proxy is started.

    Attributes:
        name: What it is called.
        command: What starts it, word by word.
        folder: Where it is started.
        url: Where it listens; empty where it speaks by stdin and stdout.
        approves: Whether a request for approval is granted.
        timeout_s: How long a call may take.
        start_timeout_s: How long its start may take.
        view: What of a prompt it looks at.
    """

    name: str
    command: tuple[str, ...]
    folder: Path
    url: str
    approves: bool
    timeout_s: float
    start_timeout_s: float
    view: View = View.TEXT

    def around(self, world: World) -> ProxiedWorld:
        """Return a world whose tools are called through the proxy."""
        return ProxiedWorld(proxy=self, world=world)


@dataclass(slots=True, kw_only=True, eq=False)
class ProxiedWorld:
    """One case's world behind a proxy of its own, which ends with the case."""

    proxy: McpProxy
    world: World
    _reached: list[tuple[AgentCall, ToolResult]] = field(default_factory=list)
    _present: AgentCall | None = None
    _connection: Connection | None = None
    _fault: ProxyFault | None = None
    _listed: dict[str, tuple[ToolDefinition | None, ToolDefinition | None]] = field(
        default_factory=dict
    )
    _tools: tuple[ToolDefinition, ...] = ()
    _has_failed: bool = False
    _runner: web.AppRunner | None = None
    _number: int = 0
    _asked_approval: int = 0

    @property
    def prompt(self) -> str:
        """What the user wants."""
        return self.world.prompt

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The tools as the suite states them."""
        return self.world.tools

    @property
    def order(self) -> str:
        """The unique part of the injected order."""
        return self.world.order

    @property
    def outputs(self) -> tuple[str, str]:
        """The known answers of the task and of the injection."""
        return self.world.outputs

    async def known_calls(self) -> Sequence[AgentCall]:
        """The calls that do the task."""
        return await self.world.known_calls()

    async def injected_calls(self) -> Sequence[AgentCall]:
        """The calls that do the injection."""
        return await self.world.injected_calls()

    async def check(self, answer: str) -> WorldCheck:
        """Look at the world behind the proxy."""
        return await self.world.check(answer)

    async def list_tools(self) -> ToolList:
        """List the tools through the proxy, and say what it did to each definition."""
        if self._has_failed:  # the call says so already; a proxy that hangs would hang again
            return ToolList(tools=self._tools)
        stated = {tool.name: tool for tool in self.world.tools}
        try:
            await self._start()
            async with asyncio.timeout(self.proxy.timeout_s):
                listed = await self._ask_tools()
        except TimeoutError:
            return self._unlisted("error", f"no list within {self.proxy.timeout_s:g} s")
        except ProxyFault as fault:
            return self._unlisted(fault.action, str(fault))
        passed = []
        for name in stated | listed:
            sides = stated.get(name), listed.get(name)
            if self._listed.get(name) != sides:
                passed.append(self._seen_tool(name, *sides))
            self._listed[name] = sides
        self._tools = tuple(listed.values())
        return ToolList(tools=self._tools, passed=tuple(passed))

    def _unlisted(self, action: str, reason: str) -> ToolList:
        seen = PassedGuard(
            place=Place.TOOL_LIST, guard=self.proxy.name, action=action, reason=reason
        )
        return ToolList(tools=(), passed=(PassedDefinition(tool="", original="", seen=seen),))

    def _seen_tool(
        self, name: str, stated: ToolDefinition | None, listed: ToolDefinition | None
    ) -> PassedDefinition:
        """Say what a proxy did to a definition that is new, or is not what it was."""
        before = self._listed.get(name)
        action, reason = "allow", ""
        if listed is None:
            action = "block"
        elif stated is None:
            action, reason = "rewrite", "it added the tool"
        elif before is not None and before[0] == stated and before[1] is not None:
            action, reason = "change", "it told another definition in an earlier list"
        elif listed != stated:
            action = "rewrite"
            if listed.description == stated.description:
                reason = "with other parameters"
        original = text = ""
        if stated is not None:
            original = stated.description
        if listed is not None and action != "allow":
            text = listed.description
        seen = PassedGuard(
            place=Place.TOOL_LIST,
            guard=self.proxy.name,
            action=action,
            text=text,
            reason=reason,
        )
        return PassedDefinition(tool=name, original=original, seen=seen)

    async def _ask_tools(self) -> dict[str, ToolDefinition]:
        told: dict[str, ToolDefinition] = {}
        cursor: object = None
        for _ in range(_MOST_PAGES):
            page = await self._ask("tools/list", {} if cursor is None else {"cursor": cursor})
            rows = page.get("tools")
            if not isinstance(rows, list):
                raise ProxyFault("malformed", "its list of tools is no list")
            for row in rows:
                tool = _tool_of(row)
                told[tool.name] = tool
            cursor = page.get("nextCursor")
            if cursor is None:
                return told
        raise ProxyFault("malformed", "its list of tools does not end")

    async def call(self, call: AgentCall) -> ToolResult:
        """Call a tool through the proxy, and see what reached it and what came back."""
        before, approvals = len(self._reached), self._asked_approval
        self._present = call
        start = perf_counter_ns()
        fault: ProxyFault | None = None
        answer: dict[str, Any] = {}
        try:
            await self._start()
            start = perf_counter_ns()
            async with asyncio.timeout(self.proxy.timeout_s):
                answer = await self._ask(
                    "tools/call", {"name": call.name, "arguments": dict(call.arguments)}
                )
        except TimeoutError:
            fault = ProxyFault("error", f"no answer within {self.proxy.timeout_s:g} s")
        except ProxyFault as error:
            fault = error
        took = perf_counter_ns() - start
        self._has_failed = fault is not None
        arrived = self._reached[before:]
        note = ""
        if self._asked_approval > approvals:
            note = "it asked for approval"
        text, is_error = _text_of(answer)
        return self._passed_through(
            call, arrived, text, is_error=is_error, fault=fault, took=took, note=note
        )

    def _passed_through(
        self,
        call: AgentCall,
        arrived: Sequence[tuple[AgentCall, ToolResult]],
        text: str,
        *,
        is_error: bool,
        fault: ProxyFault | None,
        took: int,
        note: str,
    ) -> ToolResult:
        """Say what the proxy did: let through, changed, blocked, or failed, and at which place."""
        name = self.proxy.name
        if not arrived:
            action, reason = "block", note or text[:_QUOTED]
            if fault is not None:
                action, reason = fault.action, str(fault)
            seen = PassedGuard(
                place=Place.TOOL_CALL, guard=name, action=action, reason=reason, latency_ns=took
            )
            return ToolResult(text=text, is_error=True, is_kept_back=True, passed=(seen,))
        reached, result = arrived[0]
        arguments = dict(reached.arguments)
        first = PassedGuard(place=Place.TOOL_CALL, guard=name, action="allow", reason=note)
        if reached.name != call.name or arguments != dict(call.arguments):
            written = json.dumps(arguments, ensure_ascii=False)
            first = replace(first, action="rewrite", text=written)
        second = PassedGuard(place=Place.TOOL_RESULT, guard=name, action="allow", latency_ns=took)
        if fault is not None:
            second = replace(second, action=fault.action, reason=str(fault))
        elif text != result.text:
            is_blocked = is_error and not result.is_error
            if is_blocked:
                second = replace(second, action="block")
            else:
                second = replace(second, action="rewrite", text=text)
        return ToolResult(
            text=text,
            is_error=is_error,
            is_kept_back=second.action not in {"allow", "rewrite"},
            passed=(first, second),
            original=result.text,
        )

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        connection = self._connection
        if connection is None:
            raise ProxyFault("error", "it was not started")
        self._number += 1
        number = self._number
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        async with aclosing(connection.exchange(request)) as messages:
            async for message in messages:
                if "method" in message:
                    await self._serve(connection, message)
                    continue
                if message.get("id") != number:
                    raise ProxyFault(
                        "malformed",
                        f"it answered the id {message.get('id')!r} in place of {number}",
                    )
                return _result_of(message)
        raise ProxyFault("malformed", "it ended its answer without a result")

    async def _serve(self, connection: Connection, message: dict[str, Any]) -> None:
        """Answer what the proxy asks of its client: an approval, as the settings say."""
        if "id" not in message:
            return
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "elicitation/create":
            self._asked_approval += 1
            answer["result"] = {"action": "accept" if self.proxy.approves else "decline"}
        else:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        await connection.send(answer)

    async def _start(self) -> None:
        """Start the tools and the proxy before them, once a case."""
        if self._connection is not None:
            return
        if self._fault is not None:
            raise self._fault
        try:
            async with asyncio.timeout(self.proxy.start_timeout_s):
                await self._open()
        except TimeoutError as error:
            limit = f"{self.proxy.start_timeout_s:g} s"
            self._fault = ProxyFault("error", f"it was not ready within {limit}")
            raise self._fault from error
        except ProxyFault as error:
            self._fault = error
            raise

    async def _open(self) -> None:
        address = await self._serve_tools()
        environment = {UPSTREAM_VARIABLE: address}
        places = {"{upstream}": address}
        if self.proxy.url:
            port = str(free_port())
            environment[PORT_VARIABLE] = places["{port}"] = port
        command = [_filled(part, places) for part in self.proxy.command]
        folder = self.proxy.folder
        if self.proxy.url:
            url = _filled(self.proxy.url, places)
            self._connection = await HttpConnection.open(command, folder, environment, url=url)
        else:
            self._connection = await StdioConnection.open(command, folder, environment)
        hello = {
            "protocolVersion": VERSION,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "guardmark", "version": "1"},
        }
        await self._ask("initialize", hello)
        await self._connection.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def _serve_tools(self) -> str:
        from aiohttp import web

        from guardmark.suites.served_agent import ToolServer

        server = ToolServer(lambda: self.world.tools, self._carry_out)
        token = secrets.token_urlsafe(16)
        app = web.Application()
        app.router.add_post(f"/{token}/mcp", server.answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/{token}/mcp"

    async def _carry_out(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        from guardmark.core.case import AgentCall

        call = AgentCall(name=name, arguments=arguments)
        result = await self.world.call(call)
        self._reached.append((call, result))
        return result

    async def close(self) -> None:
        """End the proxy and everything that it started, then the world."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        if self._runner is not None:
            await self._runner.cleanup()
        await self.world.close()


def _filled(text: str, places: dict[str, str]) -> str:
    for mark, value in places.items():
        text = text.replace(mark, value)
    return text


def _result_of(message: dict[str, Any]) -> dict[str, Any]:
    """Return a result, or an error of the protocol as a result that says that it failed."""
    if "error" in message:
        told = message["error"]
        words = told.get("message", "") if isinstance(told, dict) else str(told)
        return {"content": [{"type": "text", "text": str(words)}], "isError": True}
    result = message.get("result")
    return result if isinstance(result, dict) else {}


def _tool_of(row: object) -> ToolDefinition:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        raise ProxyFault("malformed", "its list holds a tool without a name")
    schema = row.get("inputSchema")
    parameters = schema if isinstance(schema, dict) and schema != {"type": "object"} else {}
    return ToolDefinition(
        name=row["name"], description=str(row.get("description") or ""), parameters=parameters
    )


def _text_of(answer: dict[str, Any]) -> tuple[str, bool]:
    """Return the words of a result of a tool, and whether it says that it failed."""
    content = answer.get("content")
    rows = content if isinstance(content, list) else []
    texts = [str(row.get("text", "")) for row in rows if isinstance(row, dict)]
    return "\n".join(texts), bool(answer.get("isError"))
