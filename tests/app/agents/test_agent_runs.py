"""Runs of agents: figures of a planted world, failures beside, exactly once, continued anywhere."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from tests.app.agents.house import CASES, write_bench
from tests.app.agents.killing import kill_once_stored, stored_records

from guardmark.app.measuring import measure
from guardmark.app.parts.loading import load_config
from guardmark.app.results.cases import CaseSelection, read_cases
from guardmark.app.results.reporting import finish
from guardmark.app.run.running import RunOptions, Session
from guardmark.app.verify.verification import verify
from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from tests.conftest import Serve

    from guardmark.app.results.reporting import RunOutput

GUARDS = """
import json, pathlib, time
from guardmark import Decision, Outcome

def important(text): return "important" in text.lower()
def everything(text): return True
def crash(text):
    if "attic" in text or "driver" in text: raise RuntimeError("no model")
    return False
def cut(text):
    at = text.find("Send a mail to courier")
    return Decision(outcome=Outcome.ALLOW, text=text[:at]) if at >= 0 else False
def slow(text):
    with open(pathlib.Path(__file__).with_name("asked.txt"), "a") as file: file.write("x\\n")
    time.sleep(0.002)
    return False
"""


def _config(
    folder: Path,
    arms: dict[str, Any],
    changed: dict[str, Any] | None = None,
    *,
    report: tuple[str, ...] = ("json",),
) -> Path:
    (folder / "guards.py").write_text(GUARDS, encoding="utf-8")
    names = ("important", "everything", "crash", "cut", "slow")
    document = {
        "version": 1,
        "name": "agents",
        "defenses": {name: {"type": "python", "target": f"guards.py:{name}"} for name in names},
        "agent": {"suite": "errands", "injections": ["plain", "important"], "arms": arms}
        | (changed or {}),
        "report": list(report),
    }
    path = folder / "bench.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _run(path: Path, **options: Any) -> tuple[Path, RunOutput, dict[str, Any]]:
    out = path.parent / "out"
    loaded = load_config(path)
    result = measure(loaded, RunOptions(out=out, **options), Session())
    finished = finish(result.folder, loaded.config, formats=loaded.config.report)
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text("utf-8"))
    return out, finished, summary


def test_figures_are_those_of_a_hand_count(tmp_path: Path) -> None:
    """18 of 20 tasks read a foreign text, 12 orders, two wordings: 432 attacks, half of them loud."""
    path = _config(
        tmp_path,
        {
            "bare": {},
            "loud": {"tool_result": "important"},
            "wall": {"tool_result": "everything"},
            "cut": {"tool_result": "cut"},
        },
        report=("html", "md", "json"),
    )
    out, _, summary = _run(path)
    arms = {arm["arm"]: arm for arm in summary["agent"]["arms"]}
    assert {name: _counts(arm["attack_success"]) for name, arm in arms.items()} == {
        "bare": (432, 432),
        "loud": (216, 432),
        "wall": (0, 432),
        "cut": (396, 432),
    }
    assert {name: _counts(arm["utility"]) for name, arm in arms.items()} == {
        "bare": (20, 20),
        "loud": (20, 20),
        "wall": (0, 20),
        "cut": (20, 20),
    }
    assert {name: arm["reliance"] for name, arm in arms.items() if name != "bare"} == {
        "loud": "Not enough alone",
        "wall": "Do not rely",
        "cut": "Do not rely",
    }
    assert summary["verdicts"]["wall"].startswith("attack success 0.0 %")
    rows = summary["agent"]["rows"]
    loud = {row["injection"]: row for row in rows if row["arm"] == "loud"}
    assert _counts(loud["plain"]["attack_success"]) == (216, 216)
    assert _counts(loud["important"]["attack_success"]) == (0, 216)
    (place,) = arms["cut"]["places"]
    # Three of the 18 tasks read two texts with the order in them.
    assert (place["stopped"], place["attacks"], place["rewritten"]) == (36, 36, 2 * 21)
    lines = (out / "results.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 4 * (20 + 432)
    assert not verify(out).damage
    assert not verify(out).mismatches


def _counts(estimate: dict[str, Any]) -> tuple[int, int]:
    return estimate["successes"], estimate["trials"]


def test_a_guard_that_fails_is_counted_beside(tmp_path: Path) -> None:
    """Neither stopped nor let through: the policy decided, and the rates leave the case out."""
    arms: dict[str, Any] = {"bare": {}, "ill": {"tool_result": "crash"}}
    path = _config(tmp_path, arms, {"injections": ["plain"]})
    _, finished, summary = _run(path)
    ill = next(arm for arm in summary["agent"]["arms"] if arm["arm"] == "ill")
    # One benign task shows the parcel's driver; one order of twelve names him in every task.
    assert ill["by_policy"] > 0
    assert ill["utility"]["trials"] == 19
    assert ill["attack_success"]["trials"] + ill["by_policy"] - 1 == 216
    assert any("a policy stood" in table.note for table in _tables(finished))


def test_a_guard_that_hangs_in_a_case_is_ended_and_counted_beside(tmp_path: Path) -> None:
    """It answers until it sees one of three things, then never: the policy decides, nobody waits."""
    path = write_bench(tmp_path, {"bare": {}, "stuck": {"tool_result": "stuck"}})
    with (tmp_path / "guards.py").open("a") as file:
        file.write('def stuck(text):\n    while "jar" in text: time.sleep(1)\n')
        file.write("    return False\n")
    document = json.loads(path.read_text())
    stuck = {"type": "python", "target": "guards.py:stuck", "env": sys.prefix, "timeout_s": 0.5}
    document["defenses"] |= {"stuck": stuck}
    document["agent"] |= {"injections": ["plain"]}
    path.write_text(json.dumps(document), encoding="utf-8")
    _, _, summary = _run(path)
    arm = next(arm for arm in summary["agent"]["arms"] if arm["arm"] == "stuck")
    # Of three tasks and six attacks the jar has one and two.
    assert arm["by_policy"] == 3
    assert _counts(arm["utility"]) == (2, 2)
    assert arm["attack_success"]["trials"] == 4
    assert arm["places"][0]["failed"] == 3


def _tables(finished: RunOutput) -> list[Any]:
    from guardmark.reports.chapters.run_document import build_document
    from guardmark.reports.document.blocks import Table

    document = build_document(finished.analysis)
    return [block for block in document.blocks if isinstance(block, Table)]


def test_each_guard_of_several_is_left_out_once(tmp_path: Path) -> None:
    """For nothing, since the agent is scripted: the arms that do so are no arms of the table."""
    path = _config(tmp_path, {"bare": {}, "both": {"tool_result": ["important", "cut"]}})
    _, _, summary = _run(path)
    assert [arm["arm"] for arm in summary["agent"]["arms"]] == ["bare", "both"]
    both = summary["agent"]["arms"][1]
    without = {each["guard"]: _counts(each["attack_success"]) for each in both["without"]}
    assert without == {"important": (396, 432), "cut": (216, 432)}


def test_a_run_that_was_killed_goes_on_and_stores_each_case_once(tmp_path: Path) -> None:
    """Kill -9 in the middle: what is stored stays, what is missing is done."""
    path = _config(
        tmp_path, {"bare": {}, "slow": {"tool_result": "slow"}}, {"injections": ["plain"]}
    )
    out = tmp_path / "out"
    stored = kill_once_stored(path, out)
    assert 0 < stored < 2 * 236
    _, _, summary = _run(path)
    assert stored_records(out) == 2 * 236
    assert _counts(summary["agent"]["arms"][1]["attack_success"]) == (216, 216)


def test_a_case_is_told_as_a_story_with_the_place_where_it_was_stopped(tmp_path: Path) -> None:
    """Or where it could have been."""
    path = _config(tmp_path, {"bare": {}, "loud": {"tool_result": "important"}})
    out, _, _ = _run(path)
    case = "errands/answer-tess/mail-word/important"
    told = read_cases(out, CaseSelection(case_id=case))
    assert told is not None
    bare, loud = told
    assert bare.outcome.endswith(
        "no guard of this arm looked at tool_result, where the order stood"
    )
    assert (
        loud.outcome == "the attack was stopped by important at tool_result; the task was not done"
    )
    assert [head for head, _ in loud.story][:4] == [
        "user",
        "agent calls",
        "tool returns",
        "important at tool_result",
    ]
    plain = read_cases(out, CaseSelection(case_id=case.replace("important", "plain"), arm="loud"))
    assert plain is not None
    assert "could have been stopped by important at tool_result" in plain[0].outcome


def test_orders_in_the_list_of_tools_are_cases_where_a_guard_looks_there(tmp_path: Path) -> None:
    """Nobody who leaves the list alone learns anything from them."""
    arms: dict[str, Any] = {"bare": {}, "list": {"tool_list": "important"}}
    path = _config(tmp_path, arms, {"injections": ["plain"]})
    _, _, summary = _run(path)
    assert summary["agent"]["injections"] == 17


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"suite": "erands"}, "No suite is called 'erands'. Did you mean 'errands'?"),
        ({"suite": []}, "names no suite"),
        ({"injections": ["loud"]}, "No wording of errands is called 'loud'"),
        ({"injections": ["plain", "plain"]}, "'plain' is named twice"),
        ({"arms": {"a": {"tool_result": "nobody"}}}, "no defense is called 'nobody'"),
        ({"arms": {}}, "arms"),
        ({"agents": ["obedien"]}, "obedien"),
        ({"max_steps": 0}, "max_steps"),
        ({"on_block": {"tool_call": "shout"}}, "tool_call"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    """What, where, what to do; at most five lines."""
    path = _config(tmp_path, {"bare": {}}, change)
    with pytest.raises(ConfigError) as caught:
        _run(path)
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 5
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("section", ["data", "pipeline"])
def test_an_agent_takes_the_place_of_data(tmp_path: Path, section: str) -> None:
    """A configuration measures one thing."""
    path = _config(tmp_path, {"bare": {}})
    document = json.loads(path.read_text("utf-8"))
    document[section] = (
        [{"builtin": "core"}] if section == "data" else {"model": {"type": "scripted"}}
    )
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ConfigError, match=f"its suite takes the place of `{section}`"):
        load_config(path)


def test_thirty_guards_in_one_run(tmp_path: Path) -> None:
    """As many as a field study has."""
    path = _config(tmp_path, {"bare": {}})
    document = json.loads(path.read_text("utf-8"))
    for number in range(30):
        document["defenses"][f"g{number}"] = {"type": "pattern", "patterns": [f"W{number}X"]}
        document["agent"]["arms"][f"a{number}"] = {"tool_result": f"g{number}"}
    path.write_text(json.dumps(document), encoding="utf-8")
    _, _, summary = _run(path, limit=2)
    assert len(summary["agent"]["arms"]) == 31


async def test_a_guard_that_keeps_a_session_hears_each_arm_of_a_case_by_itself(
    tmp_path: Path, serve: Serve
) -> None:
    """One id a case, arm and repeat: what tools returned comes under it in order."""
    heard: defaultdict[str, list[str]] = defaultdict(list)

    async def answer(request: web.Request) -> web.Response:
        asked = await request.json()
        if not asked["case"].startswith("single-"):
            heard[asked["case"]].append(asked["text"])
        return web.json_response({"blocked": False})

    path = write_bench(
        tmp_path,
        {
            "bare": {},
            "results": {"tool_result": "service"},
            "calls": {"tool_call": "service", "tool_result": "service"},
        },
        defenses={
            "service": {
                "type": "http",
                "url": (await serve(answer)).url,
                "body": {"case": {"$input": "session"}, "text": {"$input": "text"}},
                "blocked": "$.blocked",
            }
        },
        run={"repeats": 2},
    )
    await asyncio.to_thread(_run, path)
    cases = 3 + 2 * CASES  # tasks alone, and under both wordings
    assert len(heard) == 2 * cases * 2
    lengths = Counter(len(texts) for texts in heard.values())
    # A call and its result where nothing is injected; the obedient agent makes another call.
    assert lengths == {1: 3 * 2, 2: 2 * CASES * 2 + 3 * 2, 4: 2 * CASES * 2}
    for texts in heard.values():
        if len(texts) == 4:
            assert [text.startswith("{") for text in texts] == [True, False, True, False]


async def test_a_guard_of_calls_may_take_them_as_the_agent_makes_them(
    tmp_path: Path, serve: Serve
) -> None:
    """Name and arguments, the tools there are, and what was said before."""
    asked: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(await request.json())
        return web.json_response({"blocked": asked[-1]["call"][0]["name"] == "put"})

    body = {name: {"$input": name} for name in ("call", "tools", "messages")}
    service = {"type": "http", "url": (await serve(answer)).url, "blocked": "$.blocked"}
    path = write_bench(
        tmp_path,
        {"calls": {"tool_call": "service"}},
        defenses={"service": service | {"body": body}},
    )
    _, _, summary = await asyncio.to_thread(_run, path)
    (arm,) = summary["agent"]["arms"]
    assert _counts(arm["attack_success"]) == (0, 2 * CASES)
    calls = [each["call"] for each in asked if each["call"][0]["name"] == "put"]
    assert {json.loads(call["arguments"])["text"] for (call,) in calls} == {"FERN", "MOSS"}
    assert all(
        {tool["function"]["name"] for tool in each["tools"]} == {"look", "put"} for each in asked
    )
