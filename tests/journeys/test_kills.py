"""A run killed at random moments and continued is the run nobody disturbed."""

from __future__ import annotations

import csv
import json
import re
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.journeys.command_line import CONFIG, guardmark, killed, kills, set_up

from guardmark.store.integrity import check
from guardmark.store.seals import read_seals

pytestmark = pytest.mark.slow

GUARD = """\
import time

def check(text):
    time.sleep(0.001)
    if "7" in text:
        raise RuntimeError("seven")
    return (len(text) % 10) / 10
"""
MEASURED = CONFIG + (
    '  mine: {type: python, target: "guard.py:check", threshold: 0.5}\nrun: {repeats: 2}\n'
)
COUNT = 250
SAME_BYTES = ("config.resolved.yaml", "data_manifest.json", "environment.json")


def _untimed(path: Path) -> object:
    """What an artefact says, times and latencies apart."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in text.splitlines()]
        return [{**row, "latency_ns": None} for row in rows if row["stage"] != "warmup"]
    if path.suffix == ".json" and path.name == "summary.json":
        return {**json.loads(text), "timing": None}
    if path.suffix == ".csv":
        rows = csv.DictReader(text.splitlines())
        timed = [name for name in rows.fieldnames or () if name.startswith("median_latency")]
        return [{**row, **dict.fromkeys(timed, "")} for row in rows]
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "(time)", text)
    text = re.sub(r"\d{1,2} \w+ \d{4}, \d\d:\d\d UTC", "(time)", text)
    limits = r"((<[^>]*>| )*\[[\d,. ]+\](</span>)?)?"  # none where an interval was refused
    text = re.sub(r"\b\d[\d,.]* (µs|ms|s)\b" + limits, "(latency)", text)
    text = re.sub(r"(?m)^.*Head of the records.*$", "", text)
    section = r"(?s)(## Latency\n|<section[^>]* aria-labelledby=\"latency\").*?(\n## |</section>)"
    return re.sub(section, "", text)


def artefacts(folder: Path) -> dict[str, object]:
    """Every file of a finished run but records and seals, checked by themselves, and its log.

    The log tells how often a run was taken up again, which is what differs here.
    """
    assert check(folder / "records.sqlite") == []
    assert read_seals(folder).broken == ()
    apart = (".", "records.", "run.log", "seals.")
    files = [path for path in folder.iterdir() if not path.name.startswith(apart)]
    return {
        path.name: path.read_bytes() if path.name in SAME_BYTES else _untimed(path)
        for path in sorted(files)
    }


class Undisturbed(NamedTuple):
    """What a run came to that nobody killed, and how long it took: moments to kill it lie within."""

    files: dict[str, object]
    took_s: float


@pytest.fixture
def undisturbed(tmp_path: Path) -> Undisturbed:
    """A run nobody disturbed."""
    set_up(tmp_path, MEASURED, count=COUNT)
    (tmp_path / "guard.py").write_text(GUARD, encoding="utf-8")
    began = time.monotonic()
    assert guardmark("run", "bench.yaml", "-o", "whole", cwd=tmp_path).code == 0
    took_s, found = time.monotonic() - began, artefacts(tmp_path / "whole")
    assert {"results.jsonl", "summary.json", "summary.md", "report.html"} <= set(found)
    return Undisturbed(found, took_s)


def test_twenty_kills_change_no_artefact(tmp_path: Path, undisturbed: Undisturbed) -> None:
    """The same command, given again and again, ends with the same figures in every file."""
    longest_s = undisturbed.took_s
    struck = kills("run", "bench.yaml", "-o", "out", cwd=tmp_path, seed=3, longest_s=longest_s)
    for _ in range(20):
        next(struck)
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert artefacts(tmp_path / "out") == undisturbed.files
    assert guardmark("verify", "out", cwd=tmp_path).code == 0
    summary = json.loads((tmp_path / "out/summary.json").read_text("utf-8"))
    assert summary["run"]["stored"] == summary["run"]["planned"] == COUNT * 2 * 2


def test_without_a_folder_the_newest_unfinished_run_is_continued(
    tmp_path: Path, undisturbed: Undisturbed
) -> None:
    """A run killed under way, or while it wrote its reports, is found again under runs/."""
    killed("run", "bench.yaml", cwd=tmp_path, after_s=undisturbed.took_s / 2)
    done = guardmark("run", "bench.yaml", cwd=tmp_path)
    assert done.code == 0, done.err
    finished = [path.parent for path in (tmp_path / "runs").glob("*/*/report.html")]
    assert len(finished) == 1
    assert artefacts(finished[0]) == undisturbed.files
    (finished[0] / "report.html").unlink()
    done = guardmark("run", "bench.yaml", cwd=tmp_path)
    assert "is reported again, nothing is asked" in done.err
    assert artefacts(finished[0]) == undisturbed.files
    assert "Writing" in guardmark("run", "bench.yaml", cwd=tmp_path).err


def test_kills_while_files_are_written_leave_none_half_written(
    tmp_path: Path, undisturbed: Undisturbed
) -> None:
    """Every file is the old one, the new one or not there; the next command leaves no scraps."""
    folder = tmp_path / "whole"
    given = (("run", "bench.yaml", "-o", "whole"), ("report", "whole"))
    longest_s = undisturbed.took_s
    struck = [kills(*each, cwd=tmp_path, seed=5, longest_s=longest_s) for each in given]
    for number in range(8):
        for path in folder.glob("*.*[lnv]"):  # html, json, jsonl, csv; written anew each time
            if path.name not in SAME_BYTES:
                path.unlink()
        next(struck[number % 2])
        for path in folder.glob("*.json"):
            json.loads(path.read_text("utf-8"))
    assert guardmark("report", "whole", cwd=tmp_path).code == 0
    assert artefacts(folder) == undisturbed.files
    left = [p.name for p in folder.iterdir() if p.name.startswith(".")]
    assert left == [".lock"]


def test_an_attack_that_was_killed_again_and_again_is_the_attack_nobody_disturbed(
    tmp_path: Path,
) -> None:
    """Each try is stored once, and those that follow are chosen as if nothing had happened."""
    set_up(tmp_path, count=30)
    for name in ("whole", "out"):
        assert guardmark("run", "bench.yaml", "-o", name, cwd=tmp_path).code == 0
    given, began = ("--budget", "8"), time.monotonic()
    assert guardmark("adapt", "whole", *given, cwd=tmp_path).code == 0
    longest_s = time.monotonic() - began
    struck = kills("adapt", "out", *given, cwd=tmp_path, seed=7, longest_s=longest_s)
    for _ in range(6):
        next(struck)
        assert check(tmp_path / "out/records.sqlite") == []
    assert guardmark("adapt", "out", "--budget", "8", cwd=tmp_path).code == 0
    whole, out = (tmp_path / name / "trace.jsonl" for name in ("whole", "out"))
    assert out.read_bytes() == whole.read_bytes()
    assert guardmark("verify", "out", cwd=tmp_path).code == 0
