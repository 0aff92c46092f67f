"""The study of agent guards: its entries, its page, and that the page says what was counted."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from agents_configs import BASELINES, PASSES_ALL, write_errands, write_proxy
from agents_counts import BARE, counted
from agents_entries import read_entries
from agents_page import DONE_BY, agents_page
from agents_picture import agents_picture
from tests.journeys.command_line import guardmark

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "examples" / "field-study"
DOCS = ROOT / "docs" / "field-study"
RESULTS = json.loads((DOCS / "agents.json").read_text(encoding="utf-8"))
ENTRIES = read_entries(STUDY / "guards", STUDY / "agent-guards")
TABLES = {
    **{f"errands, {place}": each for place, each in RESULTS["places"].items()},
    **{f"agentdojo, {place}": each for place, each in RESULTS["agentdojo"].items()},
    "proxies": RESULTS["proxies"],
}
ARMS = [
    pytest.param(table, arm, id=f"{table}, {arm['name']}")
    for table, each in TABLES.items()
    for arm in each["arms"]
]


def test_the_page_is_what_the_results_say() -> None:
    """Not a figure of the table is written by hand."""
    assert (DOCS / "agents.md").read_text(encoding="utf-8") == agents_page(RESULTS)
    picture = agents_picture(RESULTS, plain={BARE, *DONE_BY})
    assert (DOCS / "agents.svg").read_text(encoding="utf-8") == picture


def test_a_page_of_one_part_tells_that_part_alone() -> None:
    """One row is repeated by a study of one guard, which has no table for the others."""
    proxies = {**RESULTS, "places": {}, "one_word": {}, "agentdojo": {}, "spelt": {}}
    heads = [line for line in agents_page(proxies).splitlines() if line.startswith("## ")]
    assert heads[0] == "## Proxies between the agent and its tools"
    texts = {**RESULTS, "agentdojo": {}, "spelt": {}, "proxies": {}}
    page = agents_page({**texts, "places": {"tool_result": RESULTS["places"]["tool_result"]}})
    assert "## Guards of calls" not in page
    assert "### On AgentDojo" not in page


def test_every_entry_is_measured_or_left_out_with_a_reason() -> None:
    """No guard disappears because its figures were bad."""
    measured = {arm.values[1]["name"] for arm in ARMS if isinstance(arm.values[1], dict)}
    left_out = {each["package"] for each in RESULTS["left_out"]}
    for guard in ENTRIES.values():
        assert guard.name in measured or guard.package in left_out
    assert {guard["name"] for guard in RESULTS["guards"]} <= measured
    listed = tomllib.loads((STUDY / "agent-guards" / "left-out.toml").read_text("utf-8"))
    assert all(len(each["reason"]) > 10 for each in listed["package"])


def test_what_is_measured_is_what_is_locked() -> None:
    """The version of a row is that of its entry."""
    stated = {guard.name: guard for guard in ENTRIES.values()}
    for row in RESULTS["guards"]:
        assert (row["package"], row["version"]) == (
            stated[row["name"]].package,
            stated[row["name"]].version,
        )


def test_a_guard_of_texts_or_calls_was_measured_on_both_suites() -> None:
    """A row that stands in one table alone would be one that somebody chose."""
    for place in ("tool_result", "tool_call"):
        names = {guard["name"] for guard in RESULTS["guards"] if guard["place"] == place}
        for part in ("places", "agentdojo"):
            assert names <= {arm["name"] for arm in RESULTS[part][place]["arms"]}


@pytest.mark.parametrize(
    "folder", [f for f in ENTRIES if f.parent.name == "agent-guards"], ids=lambda f: f.name
)
def test_an_entry_is_locked_by_hash_and_its_adapter_is_short(folder: Path) -> None:
    """Foreign code is pinned; the adapter holds no rules of ours."""
    guard = ENTRIES[folder]
    lock = (folder / "requirements.lock").read_text(encoding="utf-8")
    assert f"{guard.package}=={guard.version} " in lock
    assert "--hash=sha256:" in lock
    assert "://" not in lock
    if guard.place == "proxy":
        assert any(word.startswith("{env}/bin/") for word in guard.command)
        assert [path.name for path in folder.glob("*.py")] == []
    else:
        assert len((folder / "worker.py").read_text(encoding="utf-8").splitlines()) <= 30


@pytest.mark.parametrize(("table", "arm"), ARMS)
def test_counts_and_intervals_belong_together(table: str, arm: dict[str, Any]) -> None:
    """A rate lies in its interval, and the parts add up to the whole."""
    for figure in ("utility", "utility_under_attack", "attack_success"):
        each = arm[figure]
        if each["trials"]:
            rate = each["successes"] / each["trials"]
            assert each["low"] - 1e-4 <= rate <= each["high"] + 1e-4
    parts = {"by_wording": arm["by_wording"], "by_hidden": arm.get("by_hidden", {})}
    suites = arm.get("by_suite", {})
    parts["by_suite"] = {name: each["attack_success"] for name, each in suites.items()}
    for name, rates in parts.items():
        for key in ("successes", "trials"):
            if rates:
                assert sum(part[key] for part in rates.values()) == arm["attack_success"][key], name
    outside = arm["failed_cases"] + arm["cases_by_policy"]
    trials = arm["utility"]["trials"] + arm["attack_success"]["trials"]
    assert trials + outside == TABLES[table]["tasks"] + TABLES[table]["attacks"]


@pytest.mark.parametrize("table", TABLES)
def test_the_baselines_come_out_as_they_must(table: str) -> None:
    """Without a guard everything gets done; where everything is blocked, much less of both."""
    arms = {arm["name"]: arm for arm in TABLES[table]["arms"]}
    bare = arms[BARE]
    assert bare["utility"]["successes"] == bare["utility"]["trials"] == TABLES[table]["tasks"]
    if table == "proxies":
        for figure in ("utility", "utility_under_attack", "attack_success"):
            assert arms[PASSES_ALL][figure] == bare[figure]
        return
    closed = arms["blocks-all"]
    assert closed["utility"]["successes"] < bare["utility"]["successes"]
    assert closed["attack_success"]["successes"] < bare["attack_success"]["successes"]
    assert {*BASELINES[table.partition(", ")[2]], BARE} <= set(arms)


def test_agentdojo_without_a_guard_is_what_its_reference_says() -> None:
    """97 tasks; in each wording 616 of 629 orders, since 13 cannot be done by their known calls."""
    for place in RESULTS["agentdojo"].values():
        bare = next(arm for arm in place["arms"] if arm["name"] == BARE)
        assert bare["utility"]["successes"] == 97
        for wording in bare["by_wording"].values():
            assert (wording["successes"], wording["trials"]) == (616, 629)


@pytest.mark.slow
def test_what_is_counted_of_a_run_is_what_is_published_of_the_baselines(tmp_path: Path) -> None:
    """The rules of one line are measured anew, and come out as in the table."""
    config = write_errands("tool_result", [], tmp_path)
    done = guardmark("run", config.name, "-o", "out", cwd=tmp_path)
    assert "summary.json" in done.out + done.err
    found = counted([tmp_path / "out"], baselines=tuple(BASELINES["tool_result"]))
    published = {arm["name"]: arm for arm in RESULTS["places"]["tool_result"]["arms"]}
    assert [arm["name"] for arm in found["arms"]] == [BARE, *BASELINES["tool_result"]]
    for arm in found["arms"]:
        for key in ("utility", "utility_under_attack", "attack_success", "by_wording", "calls"):
            assert arm[key] == published[arm["name"]][key], (arm["name"], key)


@pytest.mark.slow
def test_the_proxy_that_hands_everything_on_changes_nothing(tmp_path: Path) -> None:
    """Lists, calls and results go through the bridge that stands for a server."""
    config = write_proxy(None, tmp_path, wordings=["plain"])
    guardmark("run", config.name, "-o", "out", "--limit", "1", cwd=tmp_path)
    lines = (tmp_path / "out" / "results.jsonl").read_text("utf-8").splitlines()
    cases: dict[str, list[Any]] = {BARE: [], PASSES_ALL: []}
    for case in map(json.loads, lines):
        cases[case["arm"]].append((case["id"], case["task_done"], case["injection_done"]))
        actions = {step["action"] for step in case["steps"] if step["kind"] == "guard"}
        assert actions == ({"allow"} if case["arm"] == PASSES_ALL else set())
    assert cases[BARE] == cases[PASSES_ALL]
    assert {injected for _, _, injected in cases[BARE]} == {None, True}


@pytest.mark.slow
def test_a_guard_that_cannot_be_asked_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    """One lacks what it imports, one is not what its lock says: neither ends the study of a third."""
    kept = {"package": "kept", "version": "1.0", "registry": "pypi", "licence": "MIT"}
    stated = kept | {"kind": "rules", "purpose": "injection", "decides": "by one phrase"}
    stated |= {"claim": "none", "source": "this test"}
    phrase = 'return "ignore all previous instructions" in text.lower()'
    workers = {
        "good": f"def check(text):\n    {phrase}\n",
        "broken": f"import not_there_any_more\n\n\ndef check(text):\n    {phrase}\n",
        "gone": f"def check(text):\n    {phrase}\n",
    }
    for name, worker in workers.items():
        folder = tmp_path / "guards" / name
        folder.mkdir(parents=True)
        lines = [f'{key} = "{value}"' for key, value in (stated | {"package": name}).items()]
        (folder / "guard.toml").write_text("\n".join(lines), encoding="utf-8")
        (folder / "worker.py").write_text(worker, encoding="utf-8")
        lock = "./not-there.whl --hash=sha256:00\n" if name == "gone" else ""
        (folder / "requirements.lock").write_text(lock, encoding="utf-8")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "left-out.toml").write_text("package = []\n", encoding="utf-8")
    results, page = tmp_path / "new" / "agents.json", tmp_path / "new" / "agents.md"
    options = {
        "--cache": tmp_path / "cache",
        "--guards": tmp_path / "guards",
        "--more": tmp_path / "more",
        "--results": results,
        "--page": page,
        "--part": "errands",
    }
    words = [str(STUDY / "agents.py")]
    for name, value in options.items():
        words += [name, str(value)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    told = json.loads(results.read_text(encoding="utf-8"))
    assert [guard["name"] for guard in told["guards"]] == ["good"]
    reasons = {each["package"]: each["reason"] for each in told["left_out"]}
    assert "not_there_any_more" in reasons["broken"]
    assert "ended with 1" in reasons["gone"]
    names = [arm["name"] for arm in told["places"]["tool_result"]["arms"]]
    assert "good" in names
    assert not {"broken", "gone"}.intersection(names)
    assert "not_there_any_more" in page.read_text(encoding="utf-8")
