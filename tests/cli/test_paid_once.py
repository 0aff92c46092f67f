"""What was paid for is not paid twice, and nothing that was reported is overwritten by a question."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.journeys.command_line import guardmark

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

CONFIG = """\
version: 1
data: [{path: rows.jsonl}]
defenses:
  scored: {type: python, target: "guard.py:check", threshold: 0.5}
  first: {type: pattern, keywords: [orchid]}
  second: {type: pattern, keywords: [orchid]}
  third: {type: pattern, keywords: [orchid]}
"""
GUARD = """\
from pathlib import Path

def check(text: str) -> float:
    with Path(__file__).with_name("asked.txt").open("a") as file:
        file.write("x")
    return 0.9 if "orchid" in text else 0.6 if "tulip" in text else 0.1
"""
WORDS = {"attack": ("orchid", "tulip"), "benign": ("fern", "tulip")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of four defenses, three of which are the same."""
    path = tmp_path_factory.mktemp("paid")
    rows = [
        {"text": f"{label} {number}: {WORDS[label][number % 2]}", "label": label}
        for label in WORDS
        for number in range(20)
    ]
    (path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (path / "guard.py").write_text(GUARD)
    (path / "bench.yaml").write_text(CONFIG)
    assert guardmark("run", "bench.yaml", "-o", "run", cwd=path).code == 0
    return path


def test_the_same_command_on_a_complete_run_reports_it(folder: Path) -> None:
    """It says so, and asks nothing; `--fresh` asks everything again."""
    asked = (folder / "asked.txt").stat().st_size
    again = guardmark("run", "bench.yaml", "-o", "run", cwd=folder)
    assert again.code == 0
    assert "Complete: run is reported again, nothing is asked" in again.err
    assert "scored" in again.out
    assert (folder / "asked.txt").stat().st_size == asked


def test_another_threshold_is_reported_elsewhere(folder: Path) -> None:
    """The reports of the run keep their bytes."""
    before = (folder / "run" / "report.html").read_bytes()
    told = guardmark("report", "run", "--threshold", "scored=0.8", cwd=folder)
    assert told.code == 0, told.err
    elsewhere = folder / "run" / "threshold-scored-0.8"
    assert f"report    run/{elsewhere.name}/report.html" in told.out
    assert (folder / "run" / "report.html").read_bytes() == before
    assert json.loads((elsewhere / "summary.json").read_text())["defenses"][0]["is_redecided"]
    assert guardmark("verify", "run", cwd=folder).code == 0


def test_a_comparison_is_a_page_to_mail(folder: Path) -> None:
    """One file; defenses that decide alike share a line."""
    done = guardmark("compare", "run", "--html", "compared.html", cwd=folder)
    assert done.code == 0, done.err
    page = (folder / "compared.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "http://" not in page.replace("http://www.w3.org", "")
    told = guardmark("compare", "run", cwd=folder).out
    line = "Alike on every sample: first and second; first and third; second and third."
    assert line in " ".join(told.split())
