"""What a plain run does not use is not loaded: loading is most of what a short run costs (ADR 0189)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

UNUSED: Final = {
    "aiohttp": "no service is called",
    "jinja2": "reports are written by functions",
    "guardmark.analysis.compare.runs_compared": "one defense is compared with none",
    "guardmark.analysis.gate": "no limit is set",
    "guardmark.analysis.pipeline.arms": "there is no target model",
    "guardmark.datasets.public_sets": "the data are a file",
    "guardmark.defenses.http.defense": "no service is called",
    "guardmark.defenses.guard_profile": "no defense has a profile",
    "guardmark.engine.execution.cluster": "no cluster is used",
    "guardmark.interchange.sarif": "no such report is asked for",
    "guardmark.reports.render.latex": "no such file is asked for",
}
"""Modules that a run of one pattern over a file has no use for, and why."""

PROGRAM: Final = """
import sys
from guardmark.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert not ended.code, ended.code
print("\\n".join(sys.modules))
"""


def test_a_plain_run_loads_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    """An import at the head of a module that few runs need costs all others their start."""
    rows = [
        {
            "id": f"s{number}",
            "text": f"Text number {number}",
            "label": label,
            "category": "jailbreak",
        }
        for number, label in enumerate(["attack", "benign"] * 3)
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    config = {
        "version": 1,
        "name": "plain",
        "data": [{"path": str(data)}],
        "defenses": {"words": {"type": "pattern", "patterns": ["number 2"]}},
        "report": ["json", "html", "md"],
    }
    (tmp_path / "bench.yaml").write_text(json.dumps(config), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "run", "bench.yaml", "-o", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.splitlines())
    assert "guardmark.reports.render.html.page" in loaded  # the report was written
    assert {name: why for name, why in UNUSED.items() if name in loaded} == {}
