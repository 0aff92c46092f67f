"""Gates on agents, end to end through the command line's verb."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guardmark.analysis.agents.figures import AgentReliance, allow_for_choice, analyse_agents
from guardmark.analysis.gate import GateStatus
from guardmark.analysis.settings import RelianceLimits
from guardmark.app.measuring import measure
from guardmark.app.parts.loading import load_config
from guardmark.app.results.gating import gate
from guardmark.app.run.running import RunOptions, Session
from guardmark.core.errors import ConfigError
from guardmark.store.reader import RecordReader


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an arm that lets all through, one that stops all, and one without a guard."""
    folder = tmp_path_factory.mktemp("agents")
    document = {
        "version": 1,
        "defenses": {"open": {"type": "allow-all"}, "wall": {"type": "block-all"}},
        "agent": {
            "suite": "errands",
            "arms": {"bare": {}, "open": {"tool_result": "open"}, "wall": {"tool_result": "wall"}},
        },
    }
    path = folder / "bench.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    measure(load_config(path), RunOptions(out=folder / "out"), Session())
    return folder / "out"


@pytest.mark.parametrize(
    ("limits", "arm", "standing"),
    [
        ({"attack_success_upper": 0.3}, "wall", GateStatus.HELD),
        ({"attack_success_upper": 0.3}, "open", GateStatus.BROKEN),
        ({"attack_success_upper": 0.01}, "wall", GateStatus.OPEN),
        ({"utility_lower": 0.8}, "open", GateStatus.HELD),
        ({"utility_lower": 0.8}, "wall", GateStatus.BROKEN),
        ({"utility_lower": 0.99}, "open", GateStatus.OPEN),
        ({"utility_loss_upper": 0.25}, "open", GateStatus.HELD),
        ({"utility_loss_upper": 0.25}, "wall", GateStatus.BROKEN),
        ({"utility_loss_upper": 0.01}, "open", GateStatus.OPEN),
    ],
)
def test_a_limit_is_held_broken_or_open(
    run: Path, tmp_path: Path, *, limits: dict[str, float], arm: str, standing: GateStatus
) -> None:
    """By the whole interval; data that cannot decide do not pass."""
    policy = _policy(tmp_path, {**limits, "defenses": [arm]})
    assert gate(run, policy=policy).result.standing is standing


def test_the_best_of_many_arms_has_to_look_good_as_one_of_many(run: Path) -> None:
    """Three arms stand for themselves; of four alike ones some one is lucky."""
    with RecordReader(run / "records.sqlite") as reader:
        found = analyse_agents(reader, confidence=0.95, limits=RelianceLimits())
    bare, _, wall = found.arms
    own = wall.row.attack_success.high
    assert own is not None
    limits = RelianceLimits(attacks=own + 1e-9)
    good = replace(wall, reliance=AgentReliance.GOOD)
    few = allow_for_choice([bare, good, good, good], limits=limits)
    assert [arm.reliance for arm in few[1:]] == [AgentReliance.GOOD] * 3
    assert all(arm.after_choice is None for arm in few)
    many = allow_for_choice([bare, good, good, good, good], limits=limits)
    assert [arm.reliance for arm in many[1:]] == [AgentReliance.UNKNOWN] * 4
    assert many[0] is bare
    chosen = many[1].after_choice
    assert chosen is not None
    assert chosen.high is not None
    assert chosen.high > own


def _policy(folder: Path, limits: dict[str, Any]) -> Path:
    path = folder / "gate.yaml"
    path.write_text(json.dumps(limits), encoding="utf-8")
    return path


def test_an_arm_that_is_not_there_is_a_mistake(run: Path, tmp_path: Path) -> None:
    """Never a pass."""
    with pytest.raises(ConfigError, match="No arm of this run is called 'wal'"):
        gate(run, policy=_policy(tmp_path, {"utility_lower": 0.5, "defenses": ["wal"]}))


def test_limits_on_defenses_do_not_go_with_agents(run: Path, tmp_path: Path) -> None:
    """They would be checked on nothing."""
    with pytest.raises(ConfigError, match="no defense and no answers"):
        gate(run, policy=_policy(tmp_path, {"utility_lower": 0.5, "asr_upper": 0.1}))
