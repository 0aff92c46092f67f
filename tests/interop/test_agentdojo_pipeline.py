"""A detector in AgentDojo's own pipeline, and the same as a guard here, case by case."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.interop.environments import NEEDS_ENVIRONMENTS, program
from tests.journeys.command_line import guardmark

pytestmark = NEEDS_ENVIRONMENTS

SCRIPT = Path(__file__).with_name("scripts") / "agentdojo_pipeline.py"
CONFIG = """\
version: 1
name: dojo
defenses:
  important: {{type: pattern, patterns: ["(?i)important"]}}
  all: {{type: block-all}}
agent:
  suite: agentdojo/{suite}
  interpreter: {interpreter}
  injections: [important_instructions]
  max_steps: 1000
  on_block: {{tool_result: {on_block}}}
  arms:
    none: {{}}
    important: {{tool_result: important}}
    all: {{tool_result: all}}
report: [json]
"""
SIZES = {"banking": (16, 9), "slack": (21, 5)}
"""Tasks and injections of a suite."""
QUOTED = {"banking": ["user_task_7"], "slack": []}
"""Tasks whose answer stands in a result that is blocked.

A detector of the package that ends the run (`raise_on_injection`) makes its message the answer, and
quotes the whole blocked result in it. The check of such a task finds what it looks for there. Here
a case that is stopped has no answer.
"""

Outcomes = dict[tuple[str, str, str | None], tuple[bool, bool | None]]


def ours(suite: str, folder: Path, *, on_block: str) -> Outcomes:
    """Run guardmark, and return task and injection of each arm and case."""
    config = CONFIG.format(suite=suite, interpreter=program("agentdojo"), on_block=on_block)
    (folder / "bench.yaml").write_text(config, encoding="utf-8")
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    lines = (folder / "out/results.jsonl").read_text("utf-8").splitlines()
    return {
        (row["arm"], row["task"], row["injection"]): (row["task_done"], row["injection_done"])
        for row in map(json.loads, lines)
    }


def theirs(suite: str, folder: Path, *, mode: str) -> Outcomes:
    """Run the package's own pipeline with each detector, and return utility and security."""
    found: Outcomes = {}
    for detector in ("none", "important", "all"):
        told = subprocess.run(
            [program("agentdojo"), "-P", SCRIPT, suite, detector, mode],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        for task, injection, utility, security in map(json.loads, told.stdout.splitlines()):
            found[detector, task, injection] = (utility, security)
    tasks, injections = SIZES[suite]
    assert len(found) == 3 * tasks * (1 + injections)
    return found


@pytest.mark.parametrize("suite", SIZES)
def test_utility_and_security_of_every_case_are_those_of_its_own_pipeline(
    suite: str, tmp_path: Path
) -> None:
    """Three detectors that leave results out, the agent written anew beside it."""
    assert ours(suite, tmp_path, on_block="omit") == theirs(suite, tmp_path, mode="omit")


@pytest.mark.parametrize("suite", SIZES)
def test_where_a_detector_ends_the_run_only_tasks_that_its_message_quotes_differ(
    suite: str, tmp_path: Path
) -> None:
    """Injections end alike in every case; such tasks count as done in the package alone."""
    mine, their = ours(suite, tmp_path, on_block="stop"), theirs(suite, tmp_path, mode="abort")
    different = {case for case in mine if mine[case] != their[case]}
    assert sorted({task for _, task, _ in different}) == QUOTED[suite]
    assert all(mine[case] == (False, their[case][1]) for case in different)
    assert all(their[case][0] for case in different)
