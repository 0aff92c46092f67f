"""A data set has one hash, wherever it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.journeys.command_line import guardmark, set_up

from guardmark.datasets.builtin import BUILTIN_SETS

pytestmark = pytest.mark.slow

CONFIG = """\
version: 1
data: [{data}]
defenses: {{nothing: {{type: allow-all}}}}
report: [json]
"""


@pytest.mark.parametrize("data", ["{builtin: core}", "{path: data.jsonl}"])
def test_a_run_names_the_data_by_the_hash_that_data_hash_prints(tmp_path: Path, data: str) -> None:
    """Whoever reads a report can find out whether the data are those at hand."""
    set_up(tmp_path, CONFIG.format(data=data))
    assert guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path).code == 0
    told = json.loads((tmp_path / "out/summary.json").read_text("utf-8"))["run"]["data_sha256"]
    assert guardmark("data", "hash", "bench.yaml", cwd=tmp_path).out.split()[0] == told


def test_a_run_names_a_built_in_set_by_the_hash_on_its_card(tmp_path: Path) -> None:
    """The card, the sealed manifest and the report of a run agree."""
    set_up(tmp_path, CONFIG.format(data="{builtin: core}"))
    assert guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path).code == 0
    (used,) = json.loads((tmp_path / "out/data_manifest.json").read_text("utf-8"))
    (core,) = (each for each in BUILTIN_SETS if each.target == "core")
    sealed = json.loads((core.folder / "manifest.json").read_text("utf-8"))
    assert used["sha256"] == sealed["sha256"]
    assert used["sha256"] in (core.folder / "CARD.md").read_text("utf-8")
