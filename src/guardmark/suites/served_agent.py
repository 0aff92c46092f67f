"""An agent in a process of its own: the tools are served to it over MCP, on loopback alone."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from guardmark.config.settings import Settings
from guardmark.core.case import ToolResult
from guardmark.suites.bridge import CallBridge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from aiohttp import web

    from guardmark.config.settings import BuildContext
    from guardmark.core.case import Conversation, World
    from guardmark.core.sample import ToolDefinition

ADDRESS_VARIABLE: Final = "GUARDMARK_MCP_URL"
"""Variable that holds the address of the tools."""
TASK_VARIABLE: Final = "GUARDMARK_TASK"
"""Variable that holds the task; it is written to the standard input, too."""
_USUAL_VERSION: Final = "2025-06-18"
_UNKNOWN_METHOD: Final = -32601
_QUOTED: Final = 200


class ServedAgentSettings(Settings):
    """A program of yours that does one task: it calls the tools over MCP and prints its answer."""

    name: str = ""
    command: list[str] = Field(min_length=1)
    timeout_s: float = Field(120.0, gt=0)

    def build(self, name: str, context: BuildContext) -> ServedAgents:
        """Return what starts the program for each case."""
        return ServedAgents(name, tuple(self.command), context.folder, timeout_s=self.timeout_s)


class ServedAgents:
    """Starts the program for each case, with the tools of the case at an address of its own."""

    def __init__(
        self, name: str, command: tuple[str, ...], folder: Path, *, timeout_s: float
    ) -> None:
        self.name = name
        self._command = command
        self._folder = folder
        self._timeout_s = timeout_s

    def make(self, world: World, repeat: int) -> CallBridge:  # noqa: ARG002 - it sees tools only
        """Return the agent of one case."""
        return CallBridge(self._run, timeout_s=self._timeout_s)

    async def _run(self, conversation: Conversation, bridge: CallBridge) -> str:
        from aiohttp import web

        token = secrets.token_urlsafe(16)  # nobody else on this machine shall act in the world

        async def call(name: str, arguments: dict[str, Any]) -> ToolResult:
            return ToolResult(text=await bridge.call(name, arguments))

        served = ToolServer(lambda: conversation.tools, call)
        app = web.Application()
        app.router.add_post(f"/{token}/mcp", served.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            address = f"http://127.0.0.1:{port}/{token}/mcp"
            return await self._carry_out(conversation.messages[0].content, address)
        finally:
            await runner.cleanup()

    async def _carry_out(self, task: str, address: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._folder,
            env={**os.environ, ADDRESS_VARIABLE: address, TASK_VARIABLE: task},
            start_new_session=True,
        )
        try:
            output, errors = await process.communicate(task.encode("utf-8", "replace"))
        finally:
            # Whatever it started ends with it, also where the case was over before it was.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if process.returncode:
            told = errors.decode("utf-8", "replace").strip()[-_QUOTED:]
            raise RuntimeError(f"the command ended with exit code {process.returncode}: {told}")
        return output.decode("utf-8", "replace").strip()


class ToolServer:
    """The tools of one case as an MCP server: JSON over HTTP, no session, no streams."""

    def __init__(
        self,
        tools: Callable[[], tuple[ToolDefinition, ...]],
        call: Callable[[str, dict[str, Any]], Awaitable[ToolResult]],
    ) -> None:
        self._tools = tools
        self._call = call

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one message of the client."""
        from aiohttp import web

        message = await request.json()
        if not isinstance(message, dict) or "id" not in message:
            return web.Response(status=202)  # a notification
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        result = await self._result(str(message.get("method")), message.get("params") or {})
        if result is None:
            reply["error"] = {"code": _UNKNOWN_METHOD, "message": "Method not found"}
        else:
            reply["result"] = result
        return web.json_response(reply)

    async def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "initialize":
            return {
                "protocolVersion": params.get("protocolVersion") or _USUAL_VERSION,
                "capabilities": {"tools": {"listChanged": False}},
                "serverInfo": {"name": "guardmark", "version": "1"},
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            tools = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "inputSchema": dict(tool.parameters) or {"type": "object"},
                }
                for tool in self._tools()
            ]
            return {"tools": tools}
        if method == "tools/call":
            arguments = params.get("arguments") or {}
            result = await self._call(str(params.get("name")), arguments)
            content = [{"type": "text", "text": result.text}]
            return {"content": content, "isError": result.is_error}
        return None
