"""`guardmark run --failed`: an outage does not have to be paid for twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.journeys.command_line import CONFIG, few_rows, guardmark, set_up

pytestmark = pytest.mark.slow

GUARD = """\
from pathlib import Path

def check(text):
    with Path("calls.txt").open("a") as calls:
        calls.write(f"{text}\\n")
    if "7" in text and Path("down").exists():
        raise RuntimeError("down")
    return "ignore" in text
"""
MEASURED = CONFIG + '  mine: {type: python, target: "guard.py:check"}\nrun: {error_limit: 0.05}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a run during an outage."""
    set_up(tmp_path, MEASURED, count=40)
    (tmp_path / "guard.py").write_text(GUARD, encoding="utf-8")
    (tmp_path / "down").touch()
    done = guardmark("run", "bench.yaml", cwd=tmp_path)
    assert done.code == 5, done.err
    (tmp_path / "down").unlink()
    (tmp_path / "calls.txt").unlink()
    return tmp_path


def of_run(folder: Path, name: str) -> Path:
    """A file of the one run in a folder."""
    (found,) = (folder / "runs").glob(f"*/*/{name}")
    return found


def test_the_errors_of_a_complete_run_are_asked_about_again(folder: Path) -> None:
    """Only they are; the report counts them, and every figure can be verified."""
    done = guardmark("run", "bench.yaml", "--failed", cwd=folder)
    assert done.code == 0, done.err
    assert "Asking again about 4 that failed" in done.err
    asked = (folder / "calls.txt").read_text().splitlines()
    failed = [str(row["text"]) for row in few_rows(40) if "7" in str(row["text"])]
    assert sorted(asked[-4:]) == sorted(failed)
    assert not set(failed) & set(asked[:-4])  # a probe before, and nothing else that failed
    said = json.loads(of_run(folder, "summary.json").read_text(encoding="utf-8"))
    assert (said["run"]["retried"], said["run"]["stored"]) == (4, 80)
    assert [sum(each["counts"]["error_kinds"].values()) for each in said["defenses"]] == [0, 0]
    page = of_run(folder, "report.html").read_text(encoding="utf-8")
    assert "4 errors of earlier attempts were asked about again" in page
    verified = guardmark("verify", of_run(folder, "."), cwd=folder)
    assert verified.code == 0, verified.err + verified.out


def test_without_errors_nothing_is_asked_and_no_file_changes(folder: Path) -> None:
    """Asked twice, it does the same once; so does the plain command over a complete run.

    Only the log grows, and with it the seal of the log.
    """
    assert guardmark("run", "bench.yaml", "--retry-errors", cwd=folder).code == 0
    (folder / "calls.txt").unlink()
    run = of_run(folder, ".").resolve()
    apart = ("records.", "run.log", "seals.jsonl", ".lock")

    def files() -> dict[str, tuple[int, bytes]]:
        found = (path for path in run.iterdir() if not path.name.startswith(apart))
        return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in found}

    def sealed() -> list[str]:
        lines = (run / "seals.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["file"] for line in lines]

    before, seals = files(), sealed()
    assert {"report.html", "results.jsonl", "summary.json"} <= set(before)
    again = guardmark("run", "bench.yaml", "--retry-errors", cwd=folder)
    plain = guardmark("run", "bench.yaml", "-o", run, cwd=folder)
    assert (again.code, plain.code) == (0, 0), again.err + plain.err
    assert "Asking again about 0 that failed" in again.err
    assert not (folder / "calls.txt").exists()
    assert files() == before
    assert sealed()[: len(seals)] == seals
    assert set(sealed()[len(seals) :]) <= {"run.log"}


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (("--fresh",), 2, "--failed continues a run and --fresh starts one"),
        (("--stop-when", "asr<0.1"), 2, "cannot be used with stop_when"),
        (("-o", "elsewhere"), 3, "no run of this configuration"),
    ],
)
def test_what_cannot_be_retried_is_refused(
    tmp_path: Path, given: tuple[str, ...], code: int, said: str
) -> None:
    """Nothing is made."""
    set_up(tmp_path)
    done = guardmark("run", "bench.yaml", "--retry-errors", *given, cwd=tmp_path)
    assert done.code == code
    assert said in done.err
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "elsewhere").exists()


PAID = """\
from pathlib import Path

from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome
from guardmark.core.usage import Usage

def check(text):
    paid = Evidence(usage=Usage(prompt_tokens=10, completion_tokens=1, cost=0.5))
    if "7" in text and Path("down").exists():
        return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.HTTP, evidence=paid)
    blocks = "ignore" in text
    return Decision(outcome=Outcome.BLOCK if blocks else Outcome.ALLOW, evidence=paid)
"""


def test_what_is_asked_again_was_paid_for_each_time(folder: Path) -> None:
    """An error that cost something stays in the sums, on both paths, when an answer follows."""
    (folder / "guard.py").write_text(PAID, encoding="utf-8")
    (folder / "down").touch()
    assert guardmark("run", "bench.yaml", "-o", "paid", cwd=folder).code == 5
    before = json.loads((folder / "paid/summary.json").read_text(encoding="utf-8"))["spending"]
    (folder / "down").unlink()
    done = guardmark("run", "bench.yaml", "-o", "paid", "--retry-errors", cwd=folder)
    assert done.code == 0, done.err
    after = json.loads((folder / "paid/summary.json").read_text(encoding="utf-8"))["spending"]
    assert [
        (each["calls"], each["tokens_read"], each["cost"]) for each in (before[0], after[0])
    ] == [
        (40, 400, 20.0),
        (44, 440, 22.0),
    ]
    verified = guardmark("verify", "paid", cwd=folder)
    assert verified.code == 0, verified.err + verified.out
