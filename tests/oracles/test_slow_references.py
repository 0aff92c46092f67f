"""Every figure that plain loops can count, of five frozen runs, against what reports say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.golden.folders import read_frozen
from tests.golden.runs import RUNS, GoldenRun
from tests.oracles.slow.comparer import Comparer
from tests.oracles.slow.run import recount_now

Json = dict[str, Any]

LEAST = {"demo": 1_000, "grouped": 3_000, "pipeline": 1_000, "stopped": 1_000, "adaptive": 1_500}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_reports_say_what_plain_loops_count(run: GoldenRun, tmp_path: Path) -> None:
    """Counts, rates with intervals, slices, pairs, pipeline cards, rules, adaptive curves."""
    frozen = read_frozen(run)
    (tmp_path / "records.sqlite").write_bytes(frozen["run/records.sqlite"])
    stated: Json = json.loads(frozen["run/summary.json"])
    comparer = Comparer()
    comparer.tree("summary.json", "", said=stated, found=recount_now(tmp_path))
    assert [*map(str, comparer.findings)] == []
    assert comparer.compared > LEAST[run.name], comparer.compared
