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
  arms:
    none: {{}}
    important: {{tool_result: important}}
    all: {{tool_result: all}}
report: [json]
"""


@pytest.mark.parametrize("suite", ["banking", "slack"])
def test_utility_and_security_of_every_case_are_those_of_its_own_pipeline(
    suite: str, tmp_path: Path
) -> None:
    """Three detectors, the agent written anew beside it."""
    config = CONFIG.format(suite=suite, interpreter=program("agentdojo"))
    (tmp_path / "bench.yaml").write_text(config, encoding="utf-8")
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    lines = (tmp_path / "out/results.jsonl").read_text("utf-8").splitlines()
    ours = {
        (row["arm"], row["task"], row["injection"]): (row["task_done"], row["injection_done"])
        for row in map(json.loads, lines)
    }
    theirs = {}
    for detector in ("none", "important", "all"):
        told = subprocess.run(
            [program("agentdojo"), "-P", SCRIPT, suite, detector],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        for task, injection, utility, security in map(json.loads, told.stdout.splitlines()):
            theirs[detector, task, injection] = (utility, security)
    assert len(theirs) == 3 * {"banking": 16 + 144, "slack": 21 + 105}[suite]
    assert ours == theirs
