"""The study of agent guards: its entries, its page, and that the page says what was counted."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import agents
import pytest
from agents_page import DONE_BY, agents_page
from agents_picture import agents_picture

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "examples" / "field-study"
DOCS = ROOT / "docs" / "field-study"
RESULTS = json.loads((DOCS / "agents.json").read_text(encoding="utf-8"))
ENTRIES = agents.read_entries(STUDY / "guards", STUDY / "agent-guards")
ARMS = [
    pytest.param(place, arm, id=f"{place}-{arm['name']}")
    for place, counted in RESULTS["places"].items()
    for arm in counted["arms"]
]


def test_the_page_is_what_the_results_say() -> None:
    """Not a figure of the table is written by hand."""
    assert (DOCS / "agents.md").read_text(encoding="utf-8") == agents_page(RESULTS)
    picture = agents_picture(RESULTS, plain={"no-guard", *DONE_BY})
    assert (DOCS / "agents.svg").read_text(encoding="utf-8") == picture


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
    assert len((folder / "worker.py").read_text(encoding="utf-8").splitlines()) <= 30


@pytest.mark.parametrize(("place", "arm"), ARMS)
def test_counts_and_intervals_belong_together(place: str, arm: dict[str, Any]) -> None:
    """A rate lies in its interval, and wordings add up to the whole."""
    counted = RESULTS["places"][place]
    for figure in ("utility", "utility_under_attack", "attack_success"):
        each = arm[figure]
        if each["trials"]:
            rate = each["successes"] / each["trials"]
            assert each["low"] - 1e-4 <= rate <= each["high"] + 1e-4
    parts = [arm["by_wording"][wording] for wording in RESULTS["wordings"]]
    for key in ("successes", "trials"):
        assert sum(part[key] for part in parts) == arm["attack_success"][key]
    outside = arm["failed_cases"] + arm["cases_by_policy"]
    trials = arm["utility"]["trials"] + arm["attack_success"]["trials"]
    assert trials + outside == counted["tasks"] + counted["attacks"]


@pytest.mark.parametrize("place", RESULTS["places"])
def test_the_baselines_come_out_as_they_must(place: str) -> None:
    """Without a guard everything gets done; where everything is blocked, much less of both."""
    arms = {arm["name"]: arm for arm in RESULTS["places"][place]["arms"]}
    bare, closed = arms["no-guard"], arms["blocks-all"]
    assert bare["utility"]["successes"] == bare["utility"]["trials"] == 20
    assert bare["attack_success"]["successes"] == bare["attack_success"]["trials"]
    assert closed["utility"]["successes"] < bare["utility"]["successes"]
    assert closed["attack_success"]["successes"] < bare["attack_success"]["successes"]
    assert {*agents.BASELINES[place], "no-guard"} <= set(arms)
