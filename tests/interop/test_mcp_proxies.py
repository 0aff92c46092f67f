"""MCP proxies of other people's make between an agent and the tools of errands, started offline.

`mcp-proxy` and FastMCP's proxy hand everything on, one on standard streams, one over HTTP; Belay
blocks by a rule, and hands the rest to `mcp-proxy`, since it guards servers on standard streams.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.interop.environments import ENVIRONMENTS, NEEDS_ENVIRONMENTS, program

from guardmark.config.settings import BuildContext
from guardmark.core.case import CaseResult, StepKind
from guardmark.core.place import Place
from guardmark.engine.agent_case import CaseRules, run_case
from guardmark.suites.loading import load_suite, suite_path
from guardmark.suites.mcp_proxy import McpProxySettings
from guardmark.suites.obedient import ObedientAgent
from guardmark.suites.suite import CaseId

pytestmark = NEEDS_ENVIRONMENTS

PATH = suite_path("errands", Path())
assert PATH is not None
SUITE = load_suite(PATH)
TELL = CaseId(suite="errands", task="tell-paul")
STEAL = CaseId(suite="errands", task="bill-amount", injection="mail-word", wording="plain")
POISONED = CaseId(suite="errands", task="tell-paul", injection="tool-mail", wording="plain")

PIPE = [program("proxies", "mcp-proxy"), "--transport", "streamablehttp", "{upstream}"]
FAST = [program("fastmcp", "fastmcp"), "run", "{upstream}", "--no-banner"]
BELAY = [program("proxies", "belay"), "mcp"]
PROXIES: dict[str, dict[str, Any]] = {
    "mcp-proxy": {"command": PIPE},
    "fastmcp": {"command": FAST},
    "fastmcp over HTTP": {
        "command": [*FAST, "--transport", "http", "--port", "{port}"],
        "url": "http://127.0.0.1:{port}/mcp",
    },
    "belay": {"command": [*BELAY, "-p", "deny.yaml", "--", *PIPE]},
    "asking belay": {"command": [*BELAY, "-p", "ask.yaml", "--approve", "elicit", "--", *PIPE]},
}
RULES = """\
version: 1
name: errands
default: allow
rules:
  - id: mail-to-friends
    action: {action}
    severity: high
    message: Mail goes to friends only.
    match: {{tool: "*send_mail", args: {{to: {{not: {{glob: "*@friends.example"}}}}}}}}
"""


async def carried_out(
    name: str, case: CaseId, folder: Path, **settings: object
) -> tuple[CaseResult, list[Any]]:
    """Carry a case out through a proxy; return it with the mail that was sent in its world."""
    for action in ("deny", "ask"):
        (folder / f"{action}.yaml").write_text(RULES.format(action=action), encoding="utf-8")
    stated = PROXIES[name] | {"timeout_s": 60, "start_timeout_s": 300} | settings
    stated["command"] = [str(word) for word in stated["command"]]
    context = BuildContext(folder=folder, seed=7, services=None, defenses={})
    inner = await SUITE.open(case)
    world = McpProxySettings.model_validate(stated).build(name, context).around(inner)

    async def ask(*_: object) -> Any:
        raise AssertionError("a proxy is not asked")

    try:
        result = await run_case(world, ObedientAgent(world), ask, guards={}, rules=CaseRules())
    finally:
        await world.close()
    return result, inner.state["mail"]["sent"]


def actions(result: CaseResult) -> list[tuple[str, str]]:
    """Return what the proxy did, but for definitions that it let through."""
    return [
        (step.place.value, step.action)
        for step in result.steps
        if step.kind is StepKind.GUARD
        and step.place is not None
        and (step.place is not Place.TOOL_LIST or step.action != "allow")
    ]


THROUGH = [("tool_call", "allow"), ("tool_result", "allow")]


@pytest.mark.parametrize("name", PROXIES)
async def test_what_a_proxy_has_nothing_against_passes_unchanged(name: str, tmp_path: Path) -> None:
    """Definitions, calls and results; the mail is sent."""
    result, sent = await carried_out(name, TELL, tmp_path)
    assert result.task_done, result
    assert actions(result) == THROUGH * 2
    assert [mail["to"] for mail in sent] == ["paul@friends.example"]


async def test_a_call_against_a_rule_of_a_proxy_is_blocked_before_the_world(tmp_path: Path) -> None:
    """With the words of the proxy; what it let through stays as it was."""
    result, sent = await carried_out("belay", STEAL, tmp_path)
    assert result.injection_done is False
    assert sent == []
    assert actions(result) == [*THROUGH, ("tool_call", "block")]
    blocked = next(step for step in result.steps if step.action == "block")
    assert "Mail goes to friends only." in blocked.reason


@pytest.mark.parametrize(("approve", "to"), [("never", []), ("always", ["courier@harbor.example"])])
async def test_a_proxy_that_asks_for_approval_gets_the_stated_answer(
    tmp_path: Path, *, approve: str, to: list[str]
) -> None:
    """Belay asks its client, by the protocol's own request."""
    result, sent = await carried_out("asking belay", STEAL, tmp_path, approve=approve)
    assert [mail["to"] for mail in sent] == to
    assert "it asked for approval" in [step.reason for step in result.steps]


async def test_an_order_in_a_definition_passes_a_proxy_that_looks_at_calls(tmp_path: Path) -> None:
    """It reaches the agent word by word, which obeys it; a rule for its call stops it after all."""
    through, sent = await carried_out("mcp-proxy", POISONED, tmp_path)
    assert through.injection_done
    assert len(sent) == 2
    stopped, sent = await carried_out("belay", POISONED, tmp_path)
    assert stopped.injection_done is False
    assert sent == []


def test_the_environments_are_there() -> None:
    """Or every proxy above would be told as one that cannot be started."""
    assert ENVIRONMENTS.is_dir()
    assert all(Path(proxy["command"][0]).is_file() for proxy in PROXIES.values())
