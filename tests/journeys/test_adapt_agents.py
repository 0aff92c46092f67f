"""An attack on guards of agents by the command line: killed, continued, read and exported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.app.agents.house import CASES, write_bench
from tests.conftest import Serve
from tests.journeys.attacker_models import Steady
from tests.journeys.command_line import guardmark, kills, typed

from guardmark.store.integrity import check

pytestmark = pytest.mark.slow

ATTACK = ("adapt", "bench.yaml", "-o", "out", "--budget", "6", "--no-controls")


def test_killed_and_continued_it_is_the_attack_nobody_disturbed(tmp_path: Path) -> None:
    """Every try once: the trace has the same bytes as that of an attack in one go."""
    traces = []
    for name, is_disturbed in (("whole", False), ("struck", True)):
        folder = tmp_path / name
        folder.mkdir()
        write_bench(folder, {"words": {"tool_result": "slow"}})
        if is_disturbed:
            struck = kills(*ATTACK, cwd=folder, seed=3, longest_s=4.0)
            for _ in range(2):
                next(struck)
        done = guardmark(*ATTACK, cwd=folder)
        assert done.code == 0, done.err
        attack = folder / "out" / "adaptive"
        assert list(check(attack / "records.sqlite")) == []
        traces.append((attack / "trace.jsonl").read_bytes())
    assert traces[0] == traces[1]
    assert traces[0].count(b"\n") > CASES


def test_what_a_person_types_afterwards(tmp_path: Path) -> None:
    """Tries are read from the run of agents, its attack is exported and verified by its folder."""
    write_bench(tmp_path, {"words": {"tool_result": "phrases"}, "calls": {"tool_call": "moved"}})
    first = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert first.code == 0, first.err
    early = guardmark("show", "out", "--adaptive", cwd=tmp_path)
    assert "guardmark adapt CONFIG -o out" in early.err
    done = guardmark(*ATTACK, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "words@tool_result" in done.out
    assert "cheapest trick" in done.out
    assert "Note: left out, no guard of theirs is at tool_result: calls" in done.err
    shown = guardmark("show", "out", "--adaptive", cwd=tmp_path)
    assert f"{CASES} of {CASES}" in shown.out
    exported = guardmark("export", "out/adaptive", "--to", "dataset", "-o", "got", cwd=tmp_path)
    assert exported.code == 0, exported.err
    rows = [json.loads(row) for row in (tmp_path / "got").read_text("utf-8").splitlines()]
    assert len(rows) == CASES
    assert {row["crossing"] for row in rows} == {"house/fern", "house/moss"}
    assert guardmark("verify", "out/adaptive", cwd=tmp_path).code == 0
    misled = guardmark("export", "out", "--to", "dataset", "-o", "none", cwd=tmp_path)
    assert "the same with RUN/adaptive" in misled.err
    summary = json.loads((tmp_path / "out/adaptive/summary.json").read_text("utf-8"))
    (card,) = summary["adaptive"]
    assert (card["defense"], card["attacks"]) == ("words@tool_result", CASES)


async def test_what_a_model_words_anew_counts_where_a_judge_calls_it_the_same(
    tmp_path: Path, serve: Serve
) -> None:
    """No rewriting by rules opens this guard; the agent follows the new words where they pass."""
    server = await serve(Steady().respond)
    models = {
        name: {"type": "chat", "base_url": f"{server.url}/v1", "model": model}
        for name, model in (("attacker", "writer"), ("equivalence", "checker"))
    }
    path = write_bench(tmp_path, {"closed": {"tool_result": "closed"}}, adaptive=models)
    with (tmp_path / "guards.py").open("a") as file:
        file.write('def closed(text): return len(text) > 12 and "sesame" not in text\n')
    document = json.loads(path.read_text())
    document["defenses"]["closed"] = {"type": "python", "target": "guards.py:closed"}
    path.write_text(json.dumps(document))
    done = await typed(*ATTACK, "--yes", cwd=tmp_path)
    assert done.code == 0, done.err
    summary = json.loads((tmp_path / "out/adaptive/summary.json").read_text("utf-8"))
    (card,) = summary["adaptive"]
    last = card["rounds"][-1]
    assert last["round"] == "R5"
    assert (last["strict"]["successes"], last["strict"]["trials"]) == (0, CASES)
    assert last["full"]["successes"] > 0
