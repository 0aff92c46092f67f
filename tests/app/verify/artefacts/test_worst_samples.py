"""The samples worth reading, chosen by two ways from the same records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.journeys.command_line import CONFIG, few_rows, guardmark, set_up, write_rows

from guardmark.analysis.defense.bypasses import find_worst
from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.settings import AnalysisSettings
from guardmark.app.verify.artefacts.worst_samples import candidates, choose, read_worst
from guardmark.app.verify.columns import read_samples
from guardmark.app.verify.recount import read_recounts
from guardmark.app.verify.source import open_source
from guardmark.store.records import RecordReader

GUARD = """\
def check(text):
    if "7" in text:
        raise RuntimeError("seven")
    if "4" in text:
        return "maybe"
    return (len(text) * 37 % 101) / 101
"""
MEASURED = CONFIG + (
    '  mine: {type: python, target: "guard.py:check", threshold: 0.5}\n'
    "  open: {type: allow-all}\n"
    "run: {repeats: 2}\n"
)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every kind of flaw, and with severities that are not stated."""
    folder = tmp_path_factory.mktemp("run")
    set_up(folder, MEASURED)
    rows = few_rows(80)
    for row, severity in zip(rows[1::6], ["critical", "medium", None] * 5, strict=False):
        row["severity"] = severity
    write_rows(folder / "data.jsonl", rows)
    (folder / "guard.py").write_text(GUARD, encoding="utf-8")
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=folder)
    assert done.code in {0, 5}, done.err
    return folder / "out" / "records.sqlite"


@pytest.mark.parametrize("most", [1, 5, 10, 23, 40, 5_000])
def test_both_ways_list_the_same_samples_in_the_same_order(records: Path, most: int) -> None:
    """Severity, defenses that erred and how far they missed; no flaw crowds out the others."""
    with RecordReader(records) as reader:
        settings = replace(AnalysisSettings.of(reader.manifest()), listed_samples=most)
        worst = find_worst(reader, read_frame(reader, settings), settings)
        wanted = [reader.position_of(each.sample.id) for each in worst.listed]
        flaws = {flaw for each in worst.listed for flaw in each.flaws}
    with open_source(records) as source:
        samples = read_samples(source)
        recounts = read_recounts(source, samples, {})
        assert candidates(recounts) == ["words", "mine"]
        answers = [read_worst(recounts[name]) for name in candidates(recounts)]
        assert choose(samples, answers, most) == wanted
    assert len(wanted) == most or len(flaws) == 5
