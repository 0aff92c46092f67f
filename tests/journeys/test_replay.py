"""`guardmark run --replay FILE`: the file counts also where nobody calls a service."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.journeys.command_line import CONFIG, guardmark, set_up


@pytest.mark.parametrize("content", [None, "no exchange\n"])
def test_a_cassette_that_cannot_be_used_is_told_before_a_run(
    tmp_path: Path, content: str | None
) -> None:
    """A mistyped name is a mistake, whether the defenses call anything or not."""
    set_up(tmp_path, CONFIG, count=6)
    if content is not None:
        (tmp_path / "tape.jsonl").write_text(content, encoding="utf-8")
    done = guardmark("run", "bench.yaml", "-o", "out", "--replay", "tape.jsonl", cwd=tmp_path)
    assert done.code == 2, done.err
    assert "tape.jsonl" in done.err
    assert not (tmp_path / "out").exists()
