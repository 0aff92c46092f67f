"""What a case takes: calls, tokens and money of a model agent and of priced guards, hand-counted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.app.agents.house import CASES, write_bench
from tests.conftest import Serve

from guardmark.analysis.agents.figures import AgentAnalysis
from guardmark.app.measuring import measure
from guardmark.app.parts.loading import load_config
from guardmark.app.results.arm_comparison import compare_agent_runs
from guardmark.app.results.cases import CaseSelection, read_cases
from guardmark.app.results.reporting import report
from guardmark.app.run.running import RunOptions, RunResult, Session
from guardmark.core.errors import BudgetReached, ConfigError
from guardmark.engine.runner import Ending
from guardmark.reports.chapters.agents import comparison_document

READ, WRITTEN, PER_CALL = 100, 10, 0.002
TASKS = 3


class Looking:
    """A model that looks where the user asks about, then answers: two calls a case."""

    def __init__(self, *, tells_tokens: bool = True) -> None:
        self.asked = 0
        self.tells_tokens = tells_tokens

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        self.asked += 1
        messages = (await request.json())["messages"]
        where = next(w for w in ("hall", "desk", "shelf") if w in messages[1]["content"])
        function = {"name": "look", "arguments": json.dumps({"where": where})}
        call = {"id": "1", "type": "function", "function": function}
        message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
        if messages[-1]["role"] == "tool":
            message = {"role": "assistant", "content": "A lamp, a pen and a jar."}
        answer: dict[str, Any] = {"choices": [{"message": message}]}
        if self.tells_tokens:
            answer["usage"] = {"prompt_tokens": READ, "completion_tokens": WRITTEN}
        return web.json_response(answer)


def _bench(folder: Path, url: str, arms: dict[str, Any], **sections: Any) -> Path:
    path = write_bench(folder, arms, **sections)
    document = json.loads(path.read_text())
    model = {"name": "small", "type": "chat", "base_url": f"{url}/v1", "model": "small-1"}
    document["agent"] |= {"agents": [model], "injections": ["plain"]}
    path.write_text(json.dumps(document))
    return path


async def _measured(path: Path) -> RunResult:
    def work() -> RunResult:
        return measure(load_config(path), RunOptions(out=path.parent / "out"), Session())

    return await asyncio.to_thread(work)


def _agent(path: Path) -> AgentAnalysis:
    analysis = report(path.parent / "out").analysis.agent
    assert analysis is not None
    return analysis


ARMS = {"bare": {}, "words": {"tool_result": "phrases"}}
PRICES = {"small": {"per_call": PER_CALL}, "phrases": {"per_call": 0.5}}


async def test_figures_are_those_of_a_hand_count(tmp_path: Path, serve: Serve) -> None:
    """9 cases of 2 calls in each arm; the first is shared, and counts in both as if run alone."""
    model = Looking()
    server = await serve(model.respond)
    path = _bench(tmp_path, server.url, ARMS, prices=PRICES)
    await _measured(path)
    cases = TASKS + CASES
    by = {(each.arm, each.of): each for each in _agent(path).spending}
    assert set(by) == {("bare", "agent"), ("words", "agent"), ("words", "guards")}
    for arm in ("bare", "words"):
        each = by[arm, "agent"]
        assert (each.cases, each.calls, each.cases_with_tokens) == (cases, 2 * cases, cases)
        assert (each.tokens_read, each.tokens_written) == (2 * cases * READ, 2 * cases * WRITTEN)
        assert each.tokens[0].value == 2 * (READ + WRITTEN)
        assert each.cost == pytest.approx(2 * cases * PER_CALL)
    guards = by["words", "guards"]
    assert (guards.cases, guards.calls, guards.tokens_read) == (cases, cases, None)
    assert guards.cost == pytest.approx(0.5 * cases)
    # One call of each case is shared by both arms, and where nothing was kept back both are.
    assert model.asked == cases + cases + CASES


async def test_a_case_and_a_comparison_tell_it(tmp_path: Path, serve: Serve) -> None:
    """One line of the story, a table of the report and of `compare`."""
    server = await serve(Looking().respond)
    path = _bench(tmp_path, server.url, ARMS, prices=PRICES)
    await _measured(path)
    _agent(path)
    out = tmp_path / "out"
    (told, *_) = read_cases(out, CaseSelection(case_id="house/lamp", arm="words")) or []
    assert ("model took", "2 calls, 200 tokens read, 20 written, cost 0.004") in told.story
    assert ("guards took", "1 call, cost 0.5") in told.story
    assert "What a case takes" in (out / "report.md").read_text("utf-8")
    compared = compare_agent_runs([out])
    assert compared is not None
    assert {each.arm for each in compared.spending} == {"bare", "words"}
    assert compared.pairs == _agent(path).pairs
    document = comparison_document(compared.runs, compared.pairs, compared.spending)
    shown = [block.id for block in document.blocks if not getattr(block, "collapsed", False)]
    assert "agent-more" in shown


async def test_two_arms_differ_by_what_a_hand_counts(tmp_path: Path, serve: Serve) -> None:
    """Both ask the model twice a case; a guard adds one call and its price to each."""
    server = await serve(Looking().respond)
    path = _bench(tmp_path, server.url, ARMS, prices=PRICES)
    await _measured(path)
    (pair,) = _agent(path).pairs
    assert (pair.first, pair.second) == ("bare", "words")
    more = {(each.of, each.what): each for each in pair.spending}
    assert set(more) == {
        ("agent", "calls"),
        ("agent", "tokens"),
        ("agent", "money"),
        ("guards", "calls"),
        ("guards", "money"),
        ("guards", "time_ms"),
    }
    calls = more["agent", "calls"]
    assert (calls.benign.value, calls.benign.first, calls.benign.second) == (0.0, 2.0, 2.0)
    assert (calls.benign.pairs, calls.attacks.pairs) == (TASKS, CASES)
    money = more["guards", "money"]
    assert (money.benign.value, money.attacks.value) == pytest.approx((-0.5, -0.5))
    assert (money.benign.first, money.benign.second) == (0.0, 0.5)
    # Three tasks carry no limits, and both figures say why.
    assert (money.benign.low, money.attacks.low) == (None, None)
    assert money.benign.reason == "limits of amounts need 10 groups, and these are 3"
    assert money.attacks.reason == money.benign.reason
    told = (tmp_path / "out" / "report.md").read_text("utf-8")
    assert "What a case takes more in one arm than in another" in told
    assert "-0.5, no interval (0 against 0.5)" in told.replace("&#45;", "-")
    (stored,) = json.loads((tmp_path / "out" / "summary.json").read_text())["agent"]["pairs"]
    assert {each["what"] for each in stored["spending"]} == {"calls", "tokens", "money", "time_ms"}


async def test_what_was_not_told_is_undefined_and_not_zero(tmp_path: Path, serve: Serve) -> None:
    """A service that reports no tokens, without a price: calls are counted, nothing else is."""
    server = await serve(Looking(tells_tokens=False).respond)
    path = _bench(tmp_path, server.url, {"bare": {}})
    await _measured(path)
    (each,) = _agent(path).spending
    assert (each.calls, each.cases_with_tokens, each.cases_with_price) == (18, 0, 0)
    assert (each.tokens_read, each.tokens_written, each.cost) == (None, None, None)
    text = (tmp_path / "out" / "report.md").read_text("utf-8")
    assert "undefined" in text.split("What a case takes")[1].split("##")[0]


def test_nobody_counts_what_a_scripted_agent_takes(tmp_path: Path) -> None:
    """No table, and no zeros."""
    path = write_bench(tmp_path, ARMS)
    measure(load_config(path), RunOptions(out=tmp_path / "out"), Session())
    agent = _agent(path)
    assert agent.spending == ()
    assert {each.of for each in agent.pairs[0].spending} == {"guards"}  # calls and time are seen
    text = (tmp_path / "out" / "report.md").read_text("utf-8")
    assert "**What a case takes**" not in text


async def test_the_limit_of_money_holds_over_calls_of_agents(tmp_path: Path, serve: Serve) -> None:
    """No request that could pass the limit is sent; the same command goes on."""
    model = Looking()
    server = await serve(model.respond)
    limits = {"max_cost": 5 * PER_CALL, "concurrency": 1}
    path = _bench(tmp_path, server.url, {"bare": {}}, prices={"small": PRICES["small"]}, run=limits)
    for _ in range(4):  # two cases of two calls each time; the fifth call begins a third case
        before = model.asked
        with pytest.raises(BudgetReached, match=r"0\.01 of 0\.01 cost are used up"):
            await _measured(path)
        assert model.asked == before + 5
    done = await _measured(path)
    assert done.summary.ending is Ending.COMPLETE
    assert model.asked == 4 * 5 + 2


async def test_a_limit_that_nobody_can_hold_is_refused(tmp_path: Path, serve: Serve) -> None:
    """Money without a price of the agent, and a price of nobody, before anything is asked."""
    model = Looking()
    server = await serve(model.respond)
    path = _bench(tmp_path, server.url, {"bare": {}}, run={"max_cost": 1})
    with pytest.raises(ConfigError, match="small calls a service and has no price"):
        await _measured(path)
    path = _bench(tmp_path, server.url, {"bare": {}}, prices={"tiny": {"per_call": 1}})
    with pytest.raises(ConfigError, match="'tiny'"):
        await _measured(path)
    assert model.asked == 0
