"""A guard in a process of its own, from the template to the report."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.journeys.command_line import few_rows, guardmark, write_rows

if TYPE_CHECKING:
    from pathlib import Path

LONGEST = 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "program", "worker"),
    [("python", "python3", "guard_worker.py"), ("node", "node", "guard_worker.mjs")],
)
def test_a_template_is_a_measurement_that_runs(
    tmp_path: Path, kind: str, program: str, worker: str
) -> None:
    """It writes a short worker beside the configuration, and never over one that is there."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = guardmark("init", "--template", f"command-{kind}", cwd=tmp_path)
    assert done.code == 0, done.err
    assert worker in done.err
    assert len((tmp_path / worker).read_text("utf-8").splitlines()) <= LONGEST
    again = guardmark("init", "--template", f"command-{kind}", cwd=tmp_path)
    assert again.code == 2
    assert worker in again.err
    document = yaml.safe_load(done.out)
    write_rows(tmp_path / "data.jsonl", few_rows(20))
    document |= {"data": [{"path": "data.jsonl"}], "report": ["json"]}
    (tmp_path / "bench.yaml").write_text(
        yaml.safe_dump(document, sort_keys=False), encoding="utf-8"
    )
    ran = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert ran.code == 0, ran.err
    mine = json.loads((tmp_path / "out/summary.json").read_text("utf-8"))["defenses"][1]
    assert mine["name"] == "mine"
    assert [mine["counts"][label]["answered"] for label in ("attacks", "benign")] == [10, 10]


def test_a_worker_that_dies_at_start_ends_the_command_before_the_run(tmp_path: Path) -> None:
    """With its last words, the place in the configuration, and nothing stored."""
    write_rows(tmp_path / "data.jsonl", few_rows(4))
    (tmp_path / "worker.py").write_text("import a_package_that_is_not_there\n", encoding="utf-8")
    (tmp_path / "bench.yaml").write_text(
        "version: 1\ndata: [{path: data.jsonl}]\n"
        "defenses: {mine: {type: command, command: [python3, worker.py]}}\n",
        encoding="utf-8",
    )
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 2, done.err
    assert "No module named 'a_package_that_is_not_there'" in done.err
    assert "mine" in done.err


def test_a_stateful_worker_is_named_and_measured_from_a_fresh_start(tmp_path: Path) -> None:
    """What the probe did to its state is no part of the measurement."""
    write_rows(tmp_path / "data.jsonl", few_rows(12))
    (tmp_path / "worker.py").write_text(
        "import json, sys\n"
        "alarms = 0\n"
        "for line in sys.stdin:\n"
        "    question = json.loads(line)\n"
        "    alarms += 'system prompt' in question['text']\n"
        "    print(json.dumps({'id': question['id'], 'blocked': alarms > 0}), flush=True)\n",
        encoding="utf-8",
    )
    (tmp_path / "bench.yaml").write_text(
        "version: 1\ndata: [{path: data.jsonl}]\nreport: [json]\n"
        "defenses: {mine: {type: command, command: [python3, worker.py]}}\n",
        encoding="utf-8",
    )
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "Note: mine: answers" in done.err
    with closing(sqlite3.connect(tmp_path / "out/records.sqlite")) as records:
        (blocked,) = records.execute("SELECT count(*) FROM records WHERE outcome = 1").fetchone()
    assert blocked == 0  # none of the texts holds the words
