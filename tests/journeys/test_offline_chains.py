"""Chains figured from the stored decisions of a finished run: the same answers, and no call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.journeys.command_line import guardmark

GUARDS = """
from pathlib import Path

def one(text):
    Path("calls").open("a").write("x")
    return "alpha" in text, 0.9 if "alpha" in text else 0.1

def two(text):
    Path("calls").open("a").write("x")
    return "beta" in text, 0.5
"""
LIVE = """
version: 1
name: live
data: [{path: own.jsonl}]
defenses:
  one: {type: python, target: "guards.py:one"}
  two: {type: python, target: "guards.py:two"}
  either: {type: chain, of: [one, two]}
report: [json]
"""
STORED = """
version: 1
name: stored
data: [{path: own.jsonl}]
defenses:
  one: {type: decisions, run: live, defense: one}
  two: {type: decisions, run: live, defense: two}
  either: {type: chain, of: [one, two]}
  both: {type: chain, of: [one, two], rule: all}
  graded: {type: chain, of: [one, two], rule: cascade, between: [0.2, 0.8]}
report: [json]
"""


@pytest.mark.slow
def test_chains_of_stored_decisions_call_nobody(tmp_path: Path) -> None:
    """The chain that was measured live has the same figures; others cost no call."""
    texts = ["alpha", "beta", "alpha beta", "gamma", "delta"]
    rows = [{"text": text, "label": "attack"} for text in texts] + [
        {"text": "plain alpha", "label": "benign"},
        {"text": "plain", "label": "benign"},
    ]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "guards.py").write_text(GUARDS)
    (tmp_path / "live.yaml").write_text(LIVE)
    (tmp_path / "stored.yaml").write_text(STORED)
    assert guardmark("run", "live.yaml", "--out", "live", cwd=tmp_path).code == 0
    calls = (tmp_path / "calls").stat().st_size
    assert guardmark("run", "stored.yaml", "--out", "stored", cwd=tmp_path).code == 0
    assert (tmp_path / "calls").stat().st_size == calls
    blocked = {
        run: {
            each["name"]: (
                each["rates"]["true_positive_rate"]["successes"],
                each["rates"]["false_positive_rate"]["successes"],
            )
            for each in json.loads((tmp_path / run / "summary.json").read_text())["defenses"]
        }
        for run in ("live", "stored")
    }
    assert blocked["live"] == {"one": (2, 1), "two": (2, 0), "either": (3, 1)}
    assert blocked["stored"] == {**blocked["live"], "both": (1, 0), "graded": (2, 1)}


def test_a_run_or_a_defense_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The mistake is told before anything is measured."""
    (tmp_path / "own.jsonl").write_text('{"text": "a", "label": "attack"}\n')
    (tmp_path / "stored.yaml").write_text(STORED)
    done = guardmark("run", "stored.yaml", cwd=tmp_path)
    assert done.code == 2
    assert "There is no run in live" in done.err
