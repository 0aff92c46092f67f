"""A guard that stands as an MCP proxy: started between the agent's calls and the suite's tools.

What reaches the tools behind it, and what comes back, is the truth: nothing is judged.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from guardmark.config.settings import Settings
from guardmark.core.case import PassedGuard, ToolResult
from guardmark.core.place import Place
from guardmark.core.sample import View

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aiohttp import web

    from guardmark.config.settings import BuildContext
    from guardmark.core.case import AgentCall, World, WorldCheck
    from guardmark.core.sample import ToolDefinition

UPSTREAM_VARIABLE: Final = "GUARDMARK_MCP_URL"
"""Variable that holds the address of the tools; `{upstream}` in the command stands for it, too."""
_VERSION: Final = "2025-06-18"
_LONGEST_LINE: Final = 1 << 24
_QUOTED: Final = 200


class McpProxySettings(Settings):
    """An MCP proxy that is started as a command and speaks MCP on its standard streams."""

    command: list[str] = Field(min_length=1)
    approve: Literal["never", "always"] = "never"
    timeout_s: float = Field(10.0, gt=0)

    def build(self, name: str, context: BuildContext) -> McpProxy:
        """Return what starts the proxy for each case."""
        return McpProxy(
            name=name,
            command=tuple(self.command),
            folder=context.folder,
            approves=self.approve == "always",
            timeout_s=self.timeout_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class McpProxy:
    """How a proxy is started."""

    name: str
    command: tuple[str, ...]
    folder: Path
    approves: bool
    timeout_s: float
    view: View = View.TEXT

    def around(self, world: World) -> ProxiedWorld:
        """Return a world whose tools are called through the proxy."""
        return ProxiedWorld(proxy=self, world=world)


class _ProxyFault(Exception):
    """What a proxy did in place of an answer."""

    def __init__(self, action: str, message: str) -> None:
        self.action = action
        super().__init__(message)


@dataclass(slots=True, kw_only=True, eq=False)
class ProxiedWorld:
    """One case's world behind a proxy of its own, which ends with the case."""

    proxy: McpProxy
    world: World
    _reached: list[tuple[AgentCall, ToolResult]] = field(default_factory=list)
    _present: AgentCall | None = None
    _process: asyncio.subprocess.Process | None = None
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

    async def call(self, call: AgentCall) -> ToolResult:
        """Call a tool through the proxy, and see what reached it and what came back."""
        before, approvals = len(self._reached), self._asked_approval
        self._present = call
        start = perf_counter_ns()
        fault: _ProxyFault | None = None
        answer: dict[str, Any] = {}
        try:
            async with asyncio.timeout(self.proxy.timeout_s):
                answer = await self._ask(
                    "tools/call", {"name": call.name, "arguments": dict(call.arguments)}
                )
        except TimeoutError:
            fault = _ProxyFault("error", f"no answer within {self.proxy.timeout_s:g} s")
        except _ProxyFault as error:
            fault = error
        took = perf_counter_ns() - start
        arrived = self._reached[before:]
        note = "it asked for approval" if self._asked_approval > approvals else ""
        text, is_error = _text_of(answer)
        return self._told(call, arrived, text, is_error=is_error, fault=fault, took=took, note=note)

    def _told(
        self,
        call: AgentCall,
        arrived: Sequence[tuple[AgentCall, ToolResult]],
        text: str,
        *,
        is_error: bool,
        fault: _ProxyFault | None,
        took: int,
        note: str,
    ) -> ToolResult:
        """Say what the proxy did: let through, changed, blocked, or failed, and at which place."""
        name = self.proxy.name
        if not arrived:
            action = fault.action if fault else "block"
            reason = str(fault) if fault else (note or text[:_QUOTED])
            seen = PassedGuard(
                place=Place.TOOL_CALL, guard=name, action=action, reason=reason, latency_ns=took
            )
            return ToolResult(text=text, is_error=True, is_kept_back=True, passed=(seen,))
        reached, result = arrived[0]
        is_same = (reached.name, dict(reached.arguments)) == (call.name, dict(call.arguments))
        first = PassedGuard(
            place=Place.TOOL_CALL,
            guard=name,
            action="allow" if is_same else "rewrite",
            text="" if is_same else json.dumps(dict(reached.arguments), ensure_ascii=False),
            reason=note,
        )
        action = "allow"
        if fault is not None:
            action = fault.action
        elif text != result.text:
            action = "block" if is_error and not result.is_error else "rewrite"
        second = PassedGuard(
            place=Place.TOOL_RESULT,
            guard=name,
            action=action,
            text=text if action == "rewrite" else "",
            reason=str(fault) if fault else "",
            latency_ns=took,
        )
        return ToolResult(
            text=text,
            is_error=is_error,
            is_kept_back=action not in {"allow", "rewrite"},
            passed=(first, second),
            original=result.text,
        )

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        process = await self._started()
        self._number += 1
        number = self._number
        await self._send(process, {"id": number, "method": method, "params": params})
        while True:
            message = await self._read(process)
            if "method" in message:
                await self._serve(process, message)
                continue
            if message.get("id") != number:
                raise _ProxyFault(
                    "malformed", f"it answered the id {message.get('id')!r} in place of {number}"
                )
            if "error" in message:
                told = message["error"]
                words = told.get("message", "") if isinstance(told, dict) else str(told)
                return {"content": [{"type": "text", "text": str(words)}], "isError": True}
            result = message.get("result")
            return result if isinstance(result, dict) else {}

    async def _serve(self, process: asyncio.subprocess.Process, message: dict[str, Any]) -> None:
        """Answer what the proxy asks of its client: an approval, as the settings say."""
        if "id" not in message:
            return
        if message["method"] == "elicitation/create":
            self._asked_approval += 1
            action = "accept" if self.proxy.approves else "decline"
            await self._send(process, {"id": message["id"], "result": {"action": action}})
            return
        error = {"code": -32601, "message": "Method not found"}
        await self._send(process, {"id": message["id"], "error": error})

    async def _send(self, process: asyncio.subprocess.Process, message: dict[str, Any]) -> None:
        if process.stdin is None:
            raise _ProxyFault("error", "it has no input")
        try:
            process.stdin.write((json.dumps({"jsonrpc": "2.0", **message}) + "\n").encode())
            await process.stdin.drain()
        except ConnectionError as error:
            raise _ProxyFault("error", "it ended") from error

    async def _read(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        if process.stdout is None:
            raise _ProxyFault("error", "it has no output")
        try:
            line = await process.stdout.readline()
        except ValueError as error:
            raise _ProxyFault("malformed", "it wrote a line that is too long") from error
        if not line:
            raise _ProxyFault("error", "it ended")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _ProxyFault("malformed", f"it wrote {line[:_QUOTED]!r}") from error
        return message if isinstance(message, dict) else {}

    async def _started(self) -> asyncio.subprocess.Process:
        """Start the tools and the proxy before them, once a case."""
        if self._process is not None:
            return self._process
        address = await self._serve_tools()
        command = [part.replace("{upstream}", address) for part in self.proxy.command]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd=self.proxy.folder,
                env={**os.environ, UPSTREAM_VARIABLE: address},
                limit=_LONGEST_LINE,
                start_new_session=True,
            )
        except OSError as error:
            raise _ProxyFault("error", f"it cannot be started: {error.strerror}") from error
        hello = {
            "protocolVersion": _VERSION,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "guardmark", "version": "1"},
        }
        await self._ask("initialize", hello)
        await self._send(self._process, {"method": "notifications/initialized"})
        return self._process

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
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if self._runner is not None:
            await self._runner.cleanup()
        await self.world.close()


def _text_of(answer: dict[str, Any]) -> tuple[str, bool]:
    """Return the words of a result of a tool, and whether it says that it failed."""
    content = answer.get("content")
    rows = content if isinstance(content, list) else []
    texts = [str(row.get("text", "")) for row in rows if isinstance(row, dict)]
    return "\n".join(texts), bool(answer.get("isError"))
