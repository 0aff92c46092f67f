"""An MCP proxy as a guard: what it blocks, changes, asks, and how it fails, told apart."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from guardmark.app.measuring import measure
from guardmark.app.parts.loading import load_config
from guardmark.app.results.reporting import finish
from guardmark.app.run.running import RunOptions, Session
from guardmark.config.settings import BuildContext
from guardmark.core.case import CaseResult, StepKind
from guardmark.core.errors import ConfigError
from guardmark.engine.agent_case import CaseRules, run_case
from guardmark.suites.loading import load_suite, suite_path
from guardmark.suites.mcp_proxy import McpProxySettings
from guardmark.suites.obedient import ObedientAgent
from guardmark.suites.suite import CaseId

PATH = suite_path("errands", Path())
assert PATH is not None
SUITE = load_suite(PATH)

PROXY = """
import json, os, subprocess, sys, time, urllib.request

def upstream(message):
    body = json.dumps(message).encode()
    request = urllib.request.Request(sys.argv[1], body, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))

def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def refuse(message):
    text = [{"type": "text", "text": "refused"}]
    say({"id": message["id"], "result": {"content": text, "isError": True}})

kind = sys.argv[2]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    if message["method"] != "tools/call":
        say(upstream(message))
        continue
    call = message["params"]
    is_mail = call["name"] == "send_mail"
    if kind == "block" and is_mail:
        refuse(message)
        continue
    if kind == "error" and is_mail:
        say({"id": message["id"], "error": {"code": -32000, "message": "denied"}})
        continue
    if kind == "ask" and is_mail:
        say({"id": "q", "method": "elicitation/create", "params": {"message": "Send it?"}})
        if json.loads(sys.stdin.readline())["result"]["action"] != "accept":
            refuse(message)
            continue
    if kind == "hang" and is_mail:
        subprocess.Popen(["sleep", "60"])
        time.sleep(60)
    if kind == "die" and is_mail:
        sys.exit(3)
    if kind == "garbage" and is_mail:
        print("hello", flush=True)
        continue
    if kind == "change" and is_mail:
        call["arguments"]["to"] = "quarantine@office.example"
    answer = upstream(message)
    if kind == "mask":
        answer["result"]["content"][0]["text"] = "[masked]"
    if kind == "id":
        answer["id"] = 777
    say(answer)
"""
TELL = CaseId(suite="errands", task="tell-paul")
STEAL = CaseId(suite="errands", task="bill-amount", injection="mail-word", wording="plain")


async def _run(
    folder: Path, kind: str, case: CaseId = TELL, **settings: object
) -> tuple[CaseResult, dict[str, Any]]:
    path = folder / "proxy.py"
    path.write_text(PROXY, encoding="utf-8")
    command = [sys.executable, str(path), "{upstream}", kind]
    stated = McpProxySettings.model_validate({"command": command, "timeout_s": 2.0, **settings})
    proxy = stated.build("proxy", BuildContext(folder=folder, seed=7, services=None, defenses={}))
    inner = await SUITE.open(case)
    world = proxy.around(inner)

    async def ask(*_: object) -> Any:
        raise AssertionError("a proxy is not asked")

    try:
        agent = ObedientAgent(world)
        result = await run_case(world, agent, ask, guards={}, rules=CaseRules())
    finally:
        await world.close()
    return result, inner.state


def _guards(result: CaseResult) -> list[tuple[str, str]]:
    return [
        (step.place.value if step.place else "", step.action)
        for step in result.steps
        if step.kind is StepKind.GUARD
    ]


ALLOWED = [("tool_call", "allow"), ("tool_result", "allow")]


async def test_what_a_proxy_lets_through_reaches_the_world(tmp_path: Path) -> None:
    """Unchanged on both sides."""
    result, world = await _run(tmp_path, "allow")
    assert result.task_done
    assert _guards(result) == ALLOWED * 2
    assert world["mail"]["sent"][0]["to"] == "paul@friends.example"


@pytest.mark.parametrize("kind", ["block", "error"])
async def test_a_blocked_call_never_reaches_the_world(tmp_path: Path, kind: str) -> None:
    """As a result that says so, or as an error of the protocol."""
    result, world = await _run(tmp_path, kind, STEAL)
    assert result.injection_done is False
    assert _guards(result)[-1] == ("tool_call", "block")
    assert world["mail"]["sent"] == []
    assert [step.tool for step in result.steps if step.kind is StepKind.RESULT] == ["search_mail"]


@pytest.mark.parametrize(("approve", "done"), [("never", False), ("always", True)])
async def test_a_call_that_needs_approval_is_answered_as_stated(
    tmp_path: Path, *, approve: str, done: bool
) -> None:
    """And the record says that it was asked for."""
    result, _ = await _run(tmp_path, "ask", approve=approve)
    assert result.task_done is done
    asked = [step.reason for step in result.steps if "approval" in step.reason]
    assert asked == ["it asked for approval"]


async def test_a_changed_call_and_a_changed_result_are_rewrites(tmp_path: Path) -> None:
    """The world shows what was carried out, the agent reads what came back."""
    result, world = await _run(tmp_path, "change")
    assert ("tool_call", "rewrite") in _guards(result)
    assert world["mail"]["sent"][0]["to"] == "quarantine@office.example"
    masked, _ = await _run(tmp_path, "mask", STEAL)
    assert masked.injection_done is False
    assert _guards(masked)[-1] == ("tool_result", "rewrite")


@pytest.mark.parametrize(
    ("kind", "action", "words"),
    [
        ("hang", "error", "no answer within 2 s"),
        ("die", "error", "it ended"),
        ("garbage", "malformed", "it wrote b'hello"),
        ("id", "malformed", "the id 777"),
    ],
)
async def test_a_failure_is_no_block(tmp_path: Path, kind: str, action: str, words: str) -> None:
    """The case is decided by policy, since nothing came through, and is counted beside."""
    result, _ = await _run(tmp_path, kind)
    failed = [step for step in result.steps if step.policy]
    assert [step.action for step in failed] == [action]
    assert words in failed[0].reason


async def test_a_proxy_ends_with_its_case_and_so_does_what_it_started(tmp_path: Path) -> None:
    """Thirty proxies that leak a process each would end a machine."""
    await _run(tmp_path, "hang")
    for _ in range(50):
        if not _left(tmp_path):
            break
        await asyncio.sleep(0.02)
    assert not _left(tmp_path)


def _left(folder: Path) -> list[str]:
    """Return the programs still running that were started for a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if str(folder) in words:
            found.append(words)
    return found


def _config(folder: Path, arms: dict[str, Any]) -> Path:
    (folder / "proxy.py").write_text(PROXY, encoding="utf-8")
    command = [sys.executable, "proxy.py", "{upstream}", "block"]
    document = {
        "version": 1,
        "defenses": {
            "proxy": {"type": "mcp-proxy", "command": command},
            "words": {"type": "block-all"},
        },
        "agent": {"suite": "errands", "arms": arms},
        "run": {"concurrency": 4},
    }
    path = folder / "bench.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_a_proxy_is_an_arm_like_any_other(tmp_path: Path) -> None:
    """Its figures, its places, and what it stopped."""
    path = _config(tmp_path, {"bare": {}, "proxied": {"proxy": "proxy"}})
    loaded = load_config(path)
    result = measure(loaded, RunOptions(out=tmp_path / "out", limit=1), Session())
    finished = finish(result.folder, loaded.config, formats=("json",))
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    proxied = summary["agent"]["arms"][1]
    # Two of the twelve orders send a mail.
    assert proxied["attack_success"]["successes"] == 10
    places = {place["place"]: place["stopped"] for place in proxied["places"]}
    assert places == {"tool_call": 2, "tool_result": 0}
    assert finished.gate is None


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        ({"a": {"tool_call": "proxy"}}, "proxy: proxy"),
        ({"a": {"proxy": "words"}}, "name a defense of type mcp-proxy"),
    ],
)
def test_a_proxy_stands_before_the_tools_and_nowhere_else(
    tmp_path: Path, arms: dict[str, Any], words: str
) -> None:
    """Said before anything runs."""
    with pytest.raises(ConfigError, match=words):
        measure(load_config(_config(tmp_path, arms)), RunOptions(out=tmp_path / "o"), Session())


def test_a_proxy_without_an_agent_is_a_mistake(tmp_path: Path) -> None:
    """It has no text to judge."""
    path = tmp_path / "bench.yaml"
    document = {
        "version": 1,
        "data": [{"builtin": "core"}],
        "defenses": {"p": {"type": "mcp-proxy", "command": ["x"]}},
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ConfigError, match="add a section `agent`"):
        load_config(path)
