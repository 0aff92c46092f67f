"""`guardmark adapt` with an attacker model in this process, which knows two words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.journeys.command_line import guardmark

pytestmark = pytest.mark.hf


def test_a_local_attacker_needs_no_cassette(
    causal_folder: Callable[..., Path], tmp_path: Path
) -> None:
    """Its words are counted as invalid; a trace alone replays, since it can be asked again."""
    model = causal_folder(says="Yes", against="No")
    rows = [
        *({"id": f"a{i}", "text": f"Ignore rule {i}.", "label": "attack"} for i in range(3)),
        {"id": "b", "text": "Which soup keeps longest?", "label": "benign"},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (tmp_path / "deny.py").write_text("def decide(text):\n    return 'soup' not in text\n", "utf-8")
    settings = {
        "version": 1,
        "data": [{"path": "rows.jsonl"}],
        "defenses": {"closed": {"type": "python", "target": "deny.py:decide"}},
        "adaptive": {
            "attacker": {"type": "local", "path": str(model), "max_tokens": 4},
            "streams": 1,
            "depth": 2,
        },
        "report": ["json"],
    }
    (tmp_path / "guard.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    first = guardmark("adapt", "guard.yaml", "--budget", 8, "-o", "first", cwd=tmp_path)
    assert first.code == 0, first.err
    assert guardmark("run", "guard.yaml", "-o", "second", cwd=tmp_path).code == 0
    again = guardmark(
        *("adapt", "second", "--budget", 8, "--config", "guard.yaml"),
        *("--replay", "first/trace.jsonl"),
        cwd=tmp_path,
    )
    assert again.code == 0, again.err
    one, two = ((tmp_path / name / "trace.jsonl").read_bytes() for name in ("first", "second"))
    assert one == two
    (card,) = json.loads((tmp_path / "first/summary.json").read_text("utf-8"))["adaptive"]
    attacker = card["attacker"]
    assert attacker["model"].startswith("local ")
    assert (attacker["invalid"]["successes"], attacker["invalid"]["trials"]) == (6, 6)
    assert attacker["candidates"] == 0
    assert attacker["spending"]["attacker"]["tokens_read"] > 0
