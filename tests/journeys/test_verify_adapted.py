"""An adapted run: which file tells what, and that a changed trace is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.journeys.command_line import CONFIG, guardmark, set_up

from guardmark.app.verify.verification import Verification, verify

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run whose defenses were attacked."""
    folder = tmp_path_factory.mktemp("adapted")
    set_up(folder, CONFIG, count=24)
    done = guardmark("adapt", "bench.yaml", "--budget", "8", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    return folder


@pytest.fixture
def run(adapted: Path, tmp_path: Path) -> Path:
    """A copy of the run, to be tampered with; its data lie above it."""
    shutil.copytree(adapted, tmp_path / "copy")
    return tmp_path / "copy" / "out"


def look(run: Path) -> Verification:
    """Verify a run whose data lie above it."""
    return verify(run, data=[run.parent])


@pytest.mark.slow
def test_answers_of_the_run_and_tries_lie_in_files_of_their_own(run: Path) -> None:
    """`results.jsonl` is that of a run nobody attacked; `trace.jsonl` holds every try."""
    lines = (run / "results.jsonl").read_text("utf-8").splitlines()
    assert {json.loads(line)["stage"] for line in lines} == {"defense", "warmup"}
    tries = [json.loads(line) for line in (run / "trace.jsonl").read_text("utf-8").splitlines()[1:]]
    assert {row["arm"] for row in tries} == {
        *("adaptive", "adaptive/blind", "adaptive/null"),
        *("adaptive/repaired", "adaptive/repaired-first"),
        *(f"adaptive/seed-{n}/repaired{step}" for n in (2, 3) for step in ("", "-first")),
    }


def test_an_adapted_run_holds(run: Path) -> None:
    """Every line of the trace is compared with the try it tells."""
    found = look(run)
    assert found.holds, [*found.damage, *map(str, found.mismatches)][:10]
    before = found.compared
    (run / "trace.jsonl").unlink()
    assert look(run).compared < before


def edited(old: str, new: str) -> Callable[[Path], None]:
    """Replace some words of the trace, once."""

    def change(path: Path) -> None:
        said = path.read_text(encoding="utf-8")
        assert old in said
        path.write_text(said.replace(old, new, 1), encoding="utf-8")

    return change


def cut(path: Path) -> None:
    """Take the last line out of the trace."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-1]), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (edited('"outcome":"block"', '"outcome":"allow"'), "trace.jsonl: line"),
        (edited('"tier":"V2"', '"tier":"V0"'), "trace.jsonl: line"),
        (edited('"budget":8', '"budget":64'), "trace.jsonl: line 1"),
        (edited('"defenses":["', '"defenses":["x'), "trace.jsonl: line 1"),
        (cut, "trace.jsonl: lines"),
    ],
    ids=["an answer", "a tier", "the budget", "a defense", "a line less"],
)
def test_a_changed_trace_is_found(run: Path, change: Callable[[Path], None], said: str) -> None:
    """With its place in the file."""
    change(run / "trace.jsonl")
    assert any(said in str(mismatch) for mismatch in look(run).mismatches)
