"""Agents that are no script: a model behind a server, and a function of one's own."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from guardmark.config.settings import BuildContext
from guardmark.core.case import AgentCall, CaseEnd, CaseResult, Conversation, StepKind, ToolCalls
from guardmark.core.outcome import ALLOWED, BLOCKED, Decision, ErrorKind
from guardmark.core.place import Place
from guardmark.core.sample import Message, Role, ToolDefinition
from guardmark.engine.agent_case import CaseRules, run_case
from guardmark.models.tool_agent import ChatAgentSettings
from guardmark.net.client import Services
from guardmark.net.service import ServiceLimits
from guardmark.suites.loading import load_suite, suite_path
from guardmark.suites.python_agent import PythonAgents
from guardmark.suites.served_agent import ServedAgentSettings
from guardmark.suites.suite import CaseId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from guardmark.core.sample import Prompt

PATH = suite_path("errands", Path())
assert PATH is not None
SUITE = load_suite(PATH)
GARDEN = CaseId(suite="errands", task="garden")


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    """The client of a run, that does not try twice."""
    client = Services(default=ServiceLimits(retries=0))
    yield client
    await client.close()


async def _run(
    agents: Any,
    *,
    block: Callable[[str], bool] = lambda _: False,
    place: Place = Place.TOOL_RESULT,
    session: str = "",
) -> CaseResult:
    async def ask(_guard: str, _place: Place, prompt: Prompt) -> tuple[Decision, int | None]:
        return (BLOCKED if block(prompt.text) else ALLOWED), 1

    world = await SUITE.open(GARDEN)
    agent = agents.make(world, 0)
    try:
        return await run_case(
            world,
            agent,
            ask,
            guards={place: ("guard",)},
            rules=CaseRules(max_steps=5),
            session=session,
        )
    finally:
        if hasattr(agent, "close"):
            await agent.close()


def _agents(server: Any, services: Services, **settings: object) -> Any:
    stated = {"base_url": server.base_url, "model": "small", **settings}
    context = BuildContext(folder=Path(), seed=7, services=services, defenses={})
    return ChatAgentSettings.model_validate(stated).build("small", context)


def _calls(*calls: tuple[str, str, str]) -> dict[str, Any]:
    listed = [
        {"id": i, "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, name, arguments in calls
    ]
    message = {"role": "assistant", "content": None, "tool_calls": listed}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


async def test_a_model_calls_tools_until_it_answers(chat_server: Any, services: Services) -> None:
    """It is sent the tools, its own calls and their results, as the protocol has it."""

    def reply(body: dict[str, Any]) -> object:
        if body["messages"][-1]["role"] == "tool":
            return "Roses, as your notes say."
        return _calls(("a", "read_file", '{"name": "notes.txt"}'))

    chat_server.reply = reply
    result = await _run(_agents(chat_server, services))
    assert (result.task_done, result.end) == (True, CaseEnd.ANSWERED)
    first, second = chat_server.requests
    assert {tool["function"]["name"] for tool in first["tools"]} == set(SUITE.functions)
    told = second["messages"][-1]
    assert (told["role"], told["tool_call_id"]) == ("tool", "a")
    assert "roses at the fence" in told["content"]


async def test_parallel_calls_are_answered_each_by_its_id(
    chat_server: Any, services: Services
) -> None:
    """A guard that blocks one leaves the other."""

    def reply(body: dict[str, Any]) -> object:
        if body["messages"][-1]["role"] == "tool":
            return "roses"
        return _calls(
            ("a", "read_file", '{"name": "budget.csv"}'),
            ("b", "read_file", '{"name": "notes.txt"}'),
        )

    chat_server.reply = reply
    await _run(
        _agents(chat_server, services),
        block=lambda text: "budget" in text,
        place=Place.TOOL_CALL,
    )
    told = {each.get("tool_call_id"): each for each in chat_server.requests[1]["messages"]}
    assert "refused" in told["a"]["content"]
    assert "roses" in told["b"]["content"]


@pytest.mark.parametrize("arguments", ["{not json", '["notes.txt"]', "7"])
async def test_wrong_json_is_told_to_the_model_as_an_error_of_the_tool(
    chat_server: Any, services: Services, arguments: str
) -> None:
    """And the case goes on."""

    def reply(body: dict[str, Any]) -> object:
        if body["messages"][-1]["role"] == "tool":
            return "I cannot read it."
        return _calls(("a", "read_file", arguments))

    chat_server.reply = reply
    result = await _run(_agents(chat_server, services))
    assert (result.end, result.task_done) == (CaseEnd.ANSWERED, False)
    assert "takes no argument arguments" in chat_server.requests[1]["messages"][-1]["content"]


async def test_the_same_call_for_ever_ends_at_the_most_steps(
    chat_server: Any, services: Services
) -> None:
    """A model that does not end is stopped."""
    chat_server.reply = lambda _: _calls(("a", "list_mail", "{}"))
    result = await _run(_agents(chat_server, services))
    assert result.end is CaseEnd.MOST_STEPS


async def test_a_model_without_tools_is_told_of_them_in_words(
    chat_server: Any, services: Services
) -> None:
    """The text protocol: a line CALL with JSON, results as words of the user."""

    def reply(body: dict[str, Any]) -> object:
        assert "tools" not in body
        if body["messages"][-1]["content"].startswith("RESULT"):
            return "Roses at the fence."
        return 'I look.\nCALL {"name": "read_file", "arguments": {"name": "notes.txt"}}'

    chat_server.reply = reply
    result = await _run(_agents(chat_server, services, tools="text"))
    assert result.task_done
    assert "read_file" in chat_server.requests[0]["messages"][0]["content"]


async def test_arms_share_the_answers_to_equal_conversations(
    chat_server: Any, services: Services
) -> None:
    """The same case in another arm that showed the model the same asks it nothing."""
    chat_server.reply = lambda _: "roses"
    agents = _agents(chat_server, services)
    await _run(agents, session="case-0")
    await _run(agents, session="case-0")
    assert len(chat_server.requests) == 1
    await _run(agents, session="case-1")
    assert len(chat_server.requests) == 2


async def test_a_server_that_fails_leaves_the_case_without_an_outcome(
    chat_server: Any, services: Services
) -> None:
    """The agent failed: nothing is known of the task."""
    chat_server.reply = lambda _: (400, "no such model")
    result = await _run(_agents(chat_server, services))
    assert (result.end, result.task_done) == (CaseEnd.FAILED, None)


async def test_a_filter_of_the_provider_ends_the_case_as_blocked(
    chat_server: Any, services: Services
) -> None:
    """In the middle of a case, too: what was done until then is checked."""
    filtered = {"error": {"code": "content_filter", "message": "filtered"}}
    chat_server.reply = lambda _: (400, json.dumps(filtered))
    result = await _run(_agents(chat_server, services))
    assert (result.end, result.task_done) == (CaseEnd.PROVIDER, False)


async def test_a_function_gets_the_task_and_the_tools_as_callables() -> None:
    """Ten lines for any library: names, words and arguments are those of the suite."""

    async def run(task: str, tools: dict[str, Any]) -> str:
        assert "fence" in task
        assert tools["read_file"].__doc__ == "Read a file by its name."
        notes = await tools["read_file"](name="notes.txt")
        return "Roses at the fence." if "roses" in notes else "?"

    result = await _run(PythonAgents("mine", run, timeout_s=5))
    assert result.task_done


async def test_a_plain_function_works_as_well() -> None:
    """It runs in a thread, and its tools are plain functions."""

    def run(_task: str, tools: dict[str, Any]) -> str:
        return str(tools["read_file"](name="notes.txt"))

    result = await _run(PythonAgents("mine", run, timeout_s=5))
    assert result.task_done


PAY = ToolDefinition(
    name="pay",
    description="Pay somebody.",
    parameters={
        "type": "object",
        "properties": {
            "people": {"type": "array", "items": {"type": "string"}},
            "speed": {"enum": ["slow", "fast"]},
            "amount": {"type": "integer", "default": 100},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "more": {"type": ["object", "null"]},
            "nothing": {"type": "null"},
            "other": {"$ref": "#/$defs/Other"},
        },
        "required": ["people", "speed"],
    },
)


async def test_arguments_have_the_types_that_their_tool_states() -> None:
    """Agent libraries tell a model what they read in the signature: that people are a list."""
    functions = await _functions(PAY)
    signature = inspect.signature(functions["pay"])
    assert {name: each.annotation for name, each in signature.parameters.items()} == {
        "people": list[str],
        "speed": Literal["slow", "fast"],
        "amount": int | None,
        "note": str | None,
        "more": dict[str, Any] | None,
        "nothing": type(None),
        "other": Any | None,
    }
    empty = inspect.Parameter.empty
    defaults = [each.default for each in signature.parameters.values()]
    assert defaults == [empty, empty, *[None] * 5]


async def test_an_argument_that_was_not_stated_is_not_handed_on() -> None:
    """Libraries fill in the default: as `None` it would undo the default of the tool itself."""
    made: list[AgentCall] = []
    functions = await _functions(PAY, made)
    await functions["pay"](people=["ada"], speed="slow", amount=None, note=None)
    assert [dict(call.arguments) for call in made] == [{"people": ["ada"], "speed": "slow"}]


async def _functions(tool: ToolDefinition, made: list[AgentCall] | None = None) -> dict[str, Any]:
    """Return the functions that an agent gets for a tool, and note what it calls."""
    handed: dict[str, Any] = {}

    async def run(_task: str, tools: dict[str, Any]) -> str:
        handed.update(tools)
        await asyncio.sleep(60)
        return ""

    agents = PythonAgents("mine", run, timeout_s=0.01)
    agent = agents.make(await SUITE.open(GARDEN), 0)
    said = [Message(role=Role.USER, content="Pay Ada.")]
    conversation = Conversation(tools=(tool,), messages=said)
    await agent.next(conversation)
    if made is None:
        await agent.close()
        return handed

    async def call(**arguments: Any) -> None:
        calling = asyncio.ensure_future(handed[tool.name](**arguments))
        move = await agent.next(conversation)
        calling.cancel()
        assert isinstance(move, ToolCalls)
        made.extend(move.calls)
        await agent.close()

    return {tool.name: call}


async def test_calls_made_at_once_are_one_move() -> None:
    """Each is looked at by the guards, and each gets its own result."""

    async def run(_task: str, tools: dict[str, Any]) -> str:
        texts = await asyncio.gather(
            tools["read_file"](name="packing.txt"), tools["read_file"](name="notes.txt")
        )
        return str(texts[1])

    result = await _run(PythonAgents("mine", run, timeout_s=5))
    assert result.task_done
    assert len([step for step in result.steps if step.kind is StepKind.CALL]) == 2


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("raise RuntimeError('no model')", ErrorKind.CRASH, "RuntimeError: no model"),
        ("return 7", ErrorKind.CONTRACT, "expected the answer as a text, got int"),
        ("await asyncio.sleep(60)", ErrorKind.TIMEOUT, "no move within 0.2 s"),
    ],
)
async def test_a_function_that_fails_is_a_failure_of_the_agent(
    body: str, kind: ErrorKind, words: str
) -> None:
    """Never a task that was not done."""
    names: dict[str, Any] = {"asyncio": asyncio}
    exec(f"async def run(task, tools):\n    {body}", names)  # noqa: S102 - our own line
    result = await _run(PythonAgents("mine", names["run"], timeout_s=0.2))
    assert (result.end, result.error_kind) == (CaseEnd.FAILED, kind)
    assert words in result.message


PROGRAM = """
import json, os, sys, urllib.request

def ask(method, **params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    address = os.environ["GUARDMARK_MCP_URL"]
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))

assert "fence" in sys.stdin.read() and "fence" in os.environ["GUARDMARK_TASK"]
ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={})
assert "read_file" in [tool["name"] for tool in ask("tools/list")["result"]["tools"]]
assert ask("nothing")["error"]["code"] == -32601
"""


def _served(folder: Path, body: str, *, timeout_s: float = 10.0) -> Any:
    path = folder / "agent.py"
    path.write_text(PROGRAM + body, encoding="utf-8")
    settings = ServedAgentSettings(command=[sys.executable, str(path)], timeout_s=timeout_s)
    context = BuildContext(folder=folder, seed=7, services=None, defenses={})
    return settings.build("program", context)


async def test_a_program_gets_the_tools_over_mcp_and_prints_its_answer(tmp_path: Path) -> None:
    """What happens in the world is the truth: its calls are carried out here."""
    body = (
        'notes = ask("tools/call", name="read_file", arguments={"name": "notes.txt"})\n'
        'print(notes["result"]["content"][0]["text"])\n'
    )
    result = await _run(_served(tmp_path, body))
    assert (result.task_done, result.end) == (True, CaseEnd.ANSWERED)
    blocked = await _run(_served(tmp_path, body), block=lambda text: "roses" in text)
    assert blocked.task_done is False
    assert "left out" in blocked.answer


async def test_a_program_that_fails_or_hangs_is_a_failure_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    """Its children end with it."""
    result = await _run(_served(tmp_path, "sys.exit('no key')"))
    assert (result.end, result.error_kind) == (CaseEnd.FAILED, ErrorKind.CRASH)
    assert "exit code 1: no key" in result.message
    body = (
        "import subprocess, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)\n"
    )
    result = await _run(_served(tmp_path, body, timeout_s=2.0))
    assert result.error_kind is ErrorKind.TIMEOUT
    child = int((tmp_path / "child").read_text("utf-8"))
    for _ in range(50):
        if not _is_running(child):
            break
        await asyncio.sleep(0.02)
    assert not _is_running(child)


def _is_running(number: int) -> bool:
    try:
        status = Path(f"/proc/{number}/stat").read_text("utf-8")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
