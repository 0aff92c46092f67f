"""A run that ends early is no sample of the head of its file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.journeys.command_line import guardmark

from guardmark.store.reader import RecordReader

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def test_a_run_that_its_budget_ends_asked_whole_groups_of_both_labels(tmp_path: Path) -> None:
    """All attacks stand before all benign texts, and the hard ones before the easy ones."""
    rows = [
        {
            "id": f"{label}-{n}",
            "text": f"Please water plant {n} of the {label} bed.",
            "label": label,
            "group": f"{label}-{n // 2}",
        }
        for label in ("attack", "benign")
        for n in range(100)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "data.jsonl").write_text(lines, encoding="utf-8")
    (tmp_path / "guard.py").write_text("def check(text):\n    return False\n", encoding="utf-8")
    (tmp_path / "bench.yaml").write_text(
        "version: 1\nname: order\ndata: [{path: data.jsonl}]\nrun: {max_calls: 80}\n"
        "latency: {warmup: 0}\ndefenses:\n  it: {type: python, target: guard.py:check}\n",
        encoding="utf-8",
    )
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    with RecordReader(tmp_path / "out" / "records.sqlite") as reader:
        ids = [sample.id for sample in reader.samples()]
        asked = [ids[each.key.sample] for each in reader.records(defense="it")]
    assert len(asked) == 80, done.err
    attacks = [int(name.removeprefix("attack-")) for name in asked if name.startswith("attack")]
    assert 20 <= len(attacks) <= 60
    assert min(attacks) < 25
    assert max(attacks) >= 75
    torn = {n for n in attacks if n ^ 1 not in attacks}
    assert len(torn) <= 1
