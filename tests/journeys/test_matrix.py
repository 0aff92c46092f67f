"""Several configurations of one file: side by side, each a run of its own."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.journeys.command_line import guardmark, set_up

from guardmark.app.run.matrix import run_matrix
from guardmark.app.run.running import Session

pytestmark = pytest.mark.slow

MATRIX = """\
global:
  data: [{path: data.jsonl}]
  defenses: {words: {type: pattern, patterns: [ignore], flags: [I]}}
  pipeline:
    guards: [none, words]
    model: {type: scripted, otherwise: "Sure, I will."}
    judges: [{type: rules, name: rules, unsafe: ['I will']}]
  report: [json]
rows:
  - {id: lax, label: "the lax one"}
  - {id: strict, pipeline: {model: {type: scripted, otherwise: "I can't help with that."}}}
  - {id: alone, pipeline: null}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A matrix and its data."""
    set_up(tmp_path)
    (tmp_path / "matrix.yaml").write_text(MATRIX, encoding="utf-8")
    return tmp_path


def rows_of(folder: Path) -> list[dict[str, str]]:
    """The table over all rows."""
    with (folder / "out" / "matrix_metrics.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_rows_lie_side_by_side(folder: Path) -> None:
    """Rates by row, arm and variant; each row's run stands alone and can be compared."""
    done = guardmark("matrix", "matrix.yaml", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    found = {(r["row_id"], r["arm"]): r for r in rows_of(folder) if r["variant"] == "all"}
    assert float(found["lax", "none"]["attack_success_rate"]) == 1.0
    assert float(found["strict", "none"]["attack_success_rate"]) == 0.0
    assert float(found["strict", "none"]["false_alarm_rate"]) == 1.0
    assert found["alone", "words"]["scope"] == "defense"
    assert (folder / "out" / "lax" / "records.sqlite").exists()
    assert "the lax one" in done.out


def test_the_same_command_calls_nothing_again(folder: Path) -> None:
    """Finished rows are read, not run; the tables come out the same."""
    guardmark("matrix", "matrix.yaml", "-o", "out", cwd=folder)
    before = (folder / "out" / "matrix_metrics.csv").read_bytes()
    done = guardmark("matrix", "matrix.yaml", "-o", "out", "--json", cwd=folder)
    assert done.code == 0, done.err
    assert [row["status"] for row in json.loads(done.out)["rows"]] == ["success"] * 3
    assert (folder / "out" / "matrix_metrics.csv").read_bytes() == before


def test_a_dead_row_is_skipped_and_the_others_go_on(folder: Path) -> None:
    """With the reason, and an exit code that says so."""
    text = MATRIX.replace(
        "- {id: alone, pipeline: null}",
        "- {id: dead, services: {'http://127.0.0.1:9/v1': {retries: 0}}, pipeline: {model: "
        "{type: chat, model: x, base_url: 'http://127.0.0.1:9/v1'}}}\n"
        "  - {id: alone, pipeline: null}",
    )
    (folder / "matrix.yaml").write_text(text, encoding="utf-8")
    done = guardmark("matrix", "matrix.yaml", "-o", "out", "--json", cwd=folder)
    assert done.code == 5
    statuses = {row["id"]: row["status"] for row in json.loads(done.out)["rows"]}
    assert statuses == {
        "lax": "success",
        "strict": "success",
        "dead": "skipped_after_probe",
        "alone": "success",
    }
    report = (folder / "out" / "matrix_report.md").read_text(encoding="utf-8")
    assert "| dead | not begun |" in report
    assert "out/dead" not in report.split("guardmark compare")[1]


def test_one_row_alone_is_compared_with_nothing(folder: Path) -> None:
    """A command that would be refused is not offered."""
    (folder / "matrix.yaml").write_text(
        MATRIX.split("rows:", maxsplit=1)[0] + "rows:\n  - {id: alone, pipeline: null}\n",
        encoding="utf-8",
    )
    done = guardmark("matrix", "matrix.yaml", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    report = (folder / "out" / "matrix_report.md").read_text(encoding="utf-8")
    assert "| alone | measured |" in report
    assert "guardmark compare" not in report


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rows: 7\n", "a list"),
        ("rows: []\n", "needs rows"),
        ("rows: [{label: x}]\n", "needs an id"),
        ("rows: [{id: a}, {id: a}]\n", "row a"),
        ("rows: [{id: ../up}]\n", "cannot name a folder"),
        ("extra: 1\nrows: [{id: a}]\n", "unknown keys: extra"),
    ],
)
def test_a_mistake_is_found_before_anything_runs(folder: Path, text: str, words: str) -> None:
    """Exit code 2, nothing written."""
    (folder / "matrix.yaml").write_text(text, encoding="utf-8")
    done = guardmark("matrix", "matrix.yaml", "-o", "out", cwd=folder)
    assert done.code == 2
    assert words in done.err
    assert not (folder / "out").exists()


def test_a_matrix_that_is_stopped_leaves_the_rows_behind_it_for_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row under way says that it was interrupted; the same command goes on from there."""
    monkeypatch.chdir(folder)
    sessions: list[Session] = []

    def session() -> Session:
        sessions.append(Session(now=datetime(2026, 1, 2, tzinfo=UTC)))
        if len(sessions) == 2:
            sessions[-1].stop.set()
        return sessions[-1]

    done = run_matrix(Path("matrix.yaml"), Path("out"), session=session)
    assert done.is_interrupted
    assert [(each.label, each.status) for each in done.lines] == [
        ("the lax one", "success"),
        ("", "failed"),
    ]
    rows = json.loads((folder / "out" / "manifest.json").read_text(encoding="utf-8"))["rows"]
    assert [row["id"] for row in rows] == ["lax", "strict"]
    again = run_matrix(Path("matrix.yaml"), Path("out"), session=Session)
    assert not again.is_interrupted
    assert [each.status for each in again.lines] == ["success"] * 3
    assert "interrupted" in done.lines[-1].message
