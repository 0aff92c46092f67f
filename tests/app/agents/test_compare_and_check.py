"""Comparing arms of agents, checking their configuration, and suites by command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from guardmark.app.agents.describing import (
    check_agent_config,
    check_suite_file,
    describe_suite,
    list_suites,
)
from guardmark.app.measuring import measure
from guardmark.app.parts.loading import load_config
from guardmark.app.results.arm_comparison import compare_agent_runs
from guardmark.app.run.running import RunOptions, Session
from guardmark.core.errors import ConfigError, IncomparableRuns, UnknownName


def _run(folder: Path, **changed: Any) -> Path:
    document = {
        "version": 1,
        "defenses": {"wall": {"type": "block-all"}},
        "agent": {"suite": "errands", "arms": {"bare": {}, "wall": {"tool_result": "wall"}}},
    }
    document["agent"] |= changed  # type: ignore[operator]
    folder.mkdir(exist_ok=True)
    path = folder / "bench.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    measure(load_config(path), RunOptions(out=folder / "out"), Session())
    return folder / "out"


def test_arms_of_one_run_and_of_two_are_compared_case_by_case(tmp_path: Path) -> None:
    """The same arm in two runs of the same cases differs in nothing."""
    first, second = _run(tmp_path / "a"), _run(tmp_path / "b")
    alone = compare_agent_runs([first])
    assert alone is not None
    (pair,) = alone.pairs
    assert (pair.first, pair.second, pair.standing.value) == ("bare", "wall", "trade-off")
    assert pair.attack_success.value == 1.0
    both = compare_agent_runs([first, second])
    assert both is not None
    same = [pair for pair in both.pairs if pair.first.endswith("wall") and "wall" in pair.second]
    assert [pair.standing.value for pair in same] == ["not told apart"]
    assert same[0].attack_success.value == 0.0


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    """The same run twice, other cases, an arm that is not there."""
    first = _run(tmp_path / "a")
    with pytest.raises(ConfigError, match="named twice"):
        compare_agent_runs([first, first])
    with pytest.raises(UnknownName, match="No arm of these runs is called 'wal'"):
        compare_agent_runs([first], against="wal")
    other = tmp_path / "own"
    other.mkdir()
    (other / "t.py").write_text("def look(world): return world['a']\nTOOLS = (look,)\n", "utf-8")
    suite = {
        "suite": "own",
        "tools": "t.py",
        "world": {"a": "b"},
        "tasks": [
            {
                "id": "see",
                "prompt": "What?",
                "calls": [{"look": {}}],
                "output": "b",
                "check": [{"answer": ["b"]}],
            }
        ],
    }
    (other / "own.yaml").write_text(json.dumps(suite), "utf-8")
    with pytest.raises(IncomparableRuns, match="share no case"):
        compare_agent_runs([first, _run(other, suite="own.yaml")])


def test_a_check_says_what_a_run_will_do(tmp_path: Path) -> None:
    """Nothing is written and no case is carried out."""
    _run(tmp_path)
    lines = check_agent_config(load_config(tmp_path / "bench.yaml"))
    assert lines[0] == "Settings: fine."
    assert "  errands: 20 tasks alone, 216 with an injection" in lines
    assert "  wall: tool_result: wall" in lines


def test_suites_are_listed_described_and_checked() -> None:
    """By name; of AgentDojo there is no file."""
    assert [line.name for line in list_suites()][:2] == ["errands", "agentdojo/banking"]
    assert len(describe_suite("errands", Path())["tasks"]) == 20
    assert check_suite_file("errands", Path()) == []
    with pytest.raises(UnknownName):
        describe_suite("agentdojo/banking", Path())
