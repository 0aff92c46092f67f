"""How the calls of a model are read: from lines of its text, and as the protocol has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aiohttp import web

from guardmark.config.settings import BuildContext
from guardmark.core.case import Conversation, FinalAnswer, ToolCalls
from guardmark.core.outcome import ErrorKind
from guardmark.core.sample import Message, Role, ToolDefinition
from guardmark.models.tool_agent import ChatAgent, ChatAgentSettings, read_text_calls
from guardmark.net.client import Services
from guardmark.net.service import ServiceLimits


def test_lines_that_are_calls_are_taken_out_of_the_words() -> None:
    """A call stands alone on its line; what else was said stays."""
    words = 'I look.\n  CALL {"name": "read", "arguments": {"file": "a"}}  \nThen: CALL {}\nDone.'
    move = read_text_calls(words, 3)
    assert isinstance(move, ToolCalls)
    assert [(call.id, call.name, call.arguments) for call in move.calls] == [
        ("call-3-0", "read", {"file": "a"})
    ]
    assert move.text == "I look.\n\nThen: CALL {}\nDone."


def test_what_is_no_call_is_an_answer() -> None:
    """No JSON, no name, or nested so deep that nobody could write it again."""
    deep = 'CALL {"name": "x", "arguments": ' + '{"a":' * 500 + "1" + "}" * 500 + "}"
    deeper = "CALL {" + "[" * 100_000 + "}"
    for words in ("CALL {", 'CALL {"arguments": {}}', "RECALL {}", deep, deeper):
        move = read_text_calls(words, 0)
        assert isinstance(move, FinalAnswer)
        assert move.text == words


def test_an_answer_that_calls_hundreds_of_tools_is_an_error() -> None:
    """Each call is shown to guards, which cost money."""
    line = f"CALL {json.dumps({'name': 'read', 'arguments': {}})}\n"
    assert isinstance(read_text_calls(line * 100, 0), ToolCalls)
    move = read_text_calls(line * 101, 0)
    assert isinstance(move, FinalAnswer)
    assert move.error_kind is ErrorKind.CONTRACT
    assert "more than 100 tools" in move.message


async def test_calls_that_stream_in_pieces_are_the_calls_they_are_at_once(serve: Any) -> None:
    """A name once, arguments bit by bit, two calls one within the other."""
    asked = []
    pieces: list[dict[str, Any]] = [
        {"content": "I send both."},
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "send", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"to": '}}]},
        {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "send", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": '{"to": "Ben"}'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"Ann"}'}}]},
    ]

    async def reply(request: web.Request) -> web.Response:
        asked.append(await request.json())
        lines = [json.dumps({"choices": [{"index": 0, "delta": each}]}) for each in pieces]
        lines.append(json.dumps({"choices": [{"index": 0, "finish_reason": "tool_calls"}]}))
        body = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
        return web.Response(text=body, content_type="text/event-stream")

    server = await serve(reply)
    client = Services(default=ServiceLimits(retries=0))
    given = {"base_url": f"{server.url}/v1", "model": "agent", "stream": True}
    context = BuildContext(folder=Path(), seed=7, services=client, defenses={})
    agents = ChatAgentSettings.model_validate(given).build("agent", context)
    user = Message(role=Role.USER, content="Write to Ann and Ben.")
    tools = (ToolDefinition(name="send", description="Sends a mail."),)
    try:
        move = await ChatAgent(agents, 0).next(Conversation(tools=tools, messages=[user]))
    finally:
        await client.close()
    assert isinstance(move, ToolCalls)
    assert move.text == "I send both."
    assert [(call.id, call.arguments) for call in move.calls] == [
        ("a", {"to": "Ann"}),
        ("b", {"to": "Ben"}),
    ]
    assert asked[0]["stream"] is True
