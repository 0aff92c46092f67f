"""The agents of the page on agents, in frameworks of other people's make, on a scripted model.

The model does each task and obeys what it reads, as the obedient agent does: so each framework must
end every case as that agent does.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.interop import agent_model
from tests.interop.environments import NEEDS_ENVIRONMENTS, program

pytestmark = NEEDS_ENVIRONMENTS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "agents.md"
FRAMEWORKS = {"small": "inspect", "sdk": "agents", "graph": "langchain", "typed": "pydantic_ai"}
"""Name of an agent to the package that its code on the page imports first."""
CONFIG = """\
version: 1
name: frameworks
defenses:
  orders: {type: pattern, patterns: ["(?i)HELIOS|PELICAN|stamp"]}
agent:
  suite: errands
  agents:
    - obedient
    - {name: sdk, type: python, target: "sdk.py:run"}
    - {name: graph, type: python, target: "graph.py:run"}
    - {name: small, type: python, target: "small.py:run"}
    - {name: typed, type: python, target: "typed.py:run"}
  injections: [plain]
  arms:
    bare: {}
    results: {tool_result: orders}
report: [json]
"""


def test_an_agent_in_any_framework_ends_each_case_as_the_obedient_one(tmp_path: Path) -> None:
    """With the code of the page, word by word; calls, results, answer and what happened."""
    blocks = re.findall(r"^```\n(from .*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    for name, package in FRAMEWORKS.items():
        (code,) = [each for each in blocks if each.startswith(f"from {package}")]
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    (tmp_path / "bench.yaml").write_text(CONFIG, encoding="utf-8")
    server = agent_model.start()
    try:
        done = subprocess.run(
            [
                program("agents"),
                "-m",
                "guardmark",
                "run",
                "bench.yaml",
                "-o",
                "out",
                "--limit",
                "3",
            ],
            cwd=tmp_path,
            env=agent_model.variables(server),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 0, done.stderr
    cases: dict[str, dict[tuple[str, str], object]] = {}
    for line in (tmp_path / "out/results.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        calls = [step["text"] for step in row["steps"] if step["kind"] == "call"]
        ended = (row["task_done"], row["injection_done"], row["message"], calls)
        cases.setdefault(row["agent"], {})[row["arm"], row["id"]] = ended
    obedient = cases.pop("obedient")
    assert set(cases) == set(FRAMEWORKS)
    for name, ends in cases.items():
        assert ends == obedient, name
    assert len(obedient) > 60
