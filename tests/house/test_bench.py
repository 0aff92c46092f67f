"""The bench measures: a part that cannot run is found here and not on the day it is needed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import table

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def _bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "bench/run.py", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_services_and_local_work_are_measured_beside_their_floors() -> None:
    """On little data, since only the figures need more: each target has its line."""
    done = _bench(
        "--rounds", "1", "--shrink", "10", "wire", "isolated", "w5", "t6", "t11", "command"
    )

    assert done.returncode == 0, done.stderr
    targets = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert set(targets) == {"T1", "T2", "T3", "T4", "T5", "T6", "T9", "T11", "T14", "W5"}
    assert all(line.endswith((" met", " MISSED")) for line in done.stdout.splitlines()[1:])


def test_what_a_sample_costs_is_printed_beside_what_is_wanted() -> None:
    """One command for CPU, memory, start-up, calls and size, and the floors of the same round."""
    done = _bench("--rounds", "1", "--shrink", "10", "reach")

    assert done.returncode == 0, done.stderr
    for what in ("W1, CPU", "100 samples over HTTP", "1,000,000 records", "installation"):
        assert what in done.stdout
    assert "bare aiohttp, uvloop" in done.stdout


def test_figures_of_a_trial_are_not_kept() -> None:
    """What was measured on shrunken data would pass for a result."""
    results = ROOT / "bench" / "results" / "bench.json"
    before = results.read_bytes() if results.exists() else None

    assert _bench("--rounds", "1", "--shrink", "1000", "million").returncode == 0
    assert (results.read_bytes() if results.exists() else None) == before


def test_a_trial_is_not_committed() -> None:
    """Nobody may write ratios of shrunken data into the file that later rounds are held against."""
    done = _bench("--shrink", "10", "--write", "t11")

    assert done.returncode == 2
    assert "leave out --write" in done.stderr


def test_a_ratio_stands_beside_the_one_that_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ratio that grew is seen where it is measured; lines of other parts stay as they are."""
    monkeypatch.setattr(table, "KEPT", tmp_path / "ratios.json")
    (tmp_path / "ratios.json").write_text('{"T0 other, MB": 3.0}', encoding="utf-8")
    before = table.Line(
        target="T1",
        what="a call",
        floor=100.0,
        guardmark=114.0,
        unit="us",
        ratio=1.14,
        wanted="<= 1.2 x",
        is_met=True,
    )
    table.keep([before])
    table.show(replace(before, guardmark=131.0, ratio=1.31), kept=table.read_kept())

    assert table.read_kept() == {"T0 other, MB": 3.0, "T1 a call, us": 1.14}
    assert capsys.readouterr().out.split()[3:8] == ["100", "131", "us", "1.31", "1.14"]


def test_an_unknown_part_is_refused() -> None:
    """Before anything is measured, with the parts there are."""
    done = _bench("t99")

    assert done.returncode == 2
    assert "no part is called t99" in done.stderr
    assert "WIRE" in done.stderr
