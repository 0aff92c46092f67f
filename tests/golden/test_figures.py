"""Every figure that other programs read of the frozen runs, computed again by the present code.

The whole reports are compared by a slow test; this one needs no picture and no page, so it can be
asked after each change of a formula, and by `make mutation` for each fault that is tried.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.golden.comparison import differences
from tests.golden.folders import carry_out, contents, read_frozen, unpack
from tests.golden.runs import RUNS, GoldenRun, step

WRITTEN = (".json", ".csv")
NOT_FIGURES = ("data_manifest.json", "meta.json")


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_figures_of_frozen_records_are_the_frozen_figures(run: GoldenRun, tmp_path: Path) -> None:
    """Summaries, tables, comparisons, gates, judges' quality and small slices; nothing is left."""
    folder = tmp_path / run.name
    unpack(run, folder)
    told = [step("report run -f json,csv")]
    told += [each for each in run.retelling if each.printed.endswith(".json")]
    told += [each for each in run.retelling if each.words[0] == "stability"]
    told += [each for each in run.retelling if "--quality" in each.words]
    carry_out(told, folder)
    made, frozen = contents(run, folder), read_frozen(run)
    figures = [name for name in made if name.endswith(WRITTEN) and name in frozen]
    assert {"run/summary.json", "run/comparison.json", "printed/compare.json"} <= {*figures}
    assert differences(*({name: files[name] for name in figures} for files in (frozen, made))) == []
