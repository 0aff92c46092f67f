"""Runs of agents on the pages: arms in the list, cases as stories."""

from __future__ import annotations

import json
from pathlib import Path

from tests.journeys.command_line import guardmark
from tests.view.site_server import serving


def test_arms_are_listed_and_a_case_is_told(tmp_path: Path) -> None:
    """Attacks that succeed, tasks that are not done, and step by step what happened."""
    document = {
        "version": 1,
        "name": "agents",
        "defenses": {"wall": {"type": "block-all"}},
        "agent": {"suite": "errands", "arms": {"bare": {}, "wall": {"tool_result": "wall"}}},
    }
    (tmp_path / "bench.yaml").write_text(json.dumps(document), encoding="utf-8")
    assert guardmark("run", "bench.yaml", "-o", "runs/agents", cwd=tmp_path).code == 0
    with serving(tmp_path / "runs") as site:
        page = site.ask().text
        assert "wall with obedient" in page
        assert "[83.9, 100.0]" in page
        key = page.split("/run/", 1)[1].split('"', 1)[0]
        story = site.ask(f"samples/{key}?sample_id=errands/garden/mail-word/plain").text
    assert "the attack was stopped by wall at tool_result" in story
    assert "holds the injected order" in story
