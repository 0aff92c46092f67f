"""Folders of strangers from the terminal: refused at once, in few lines, with exit code 3."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.journeys.command_line import Done, guardmark

pytestmark = pytest.mark.slow

ENDLESS = (
    "DROP TABLE records; CREATE VIEW records AS WITH RECURSIVE n(i) AS"
    " (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS defense, i AS stage FROM n"
)
COMMANDS = (
    "report bad",
    "verify bad",
    "show bad",
    "export bad --to csv -o out.csv",
    "compare bad",
    "stability bad",
    "audit bad",
    "gate bad",
    "adapt bad",
    "run -o bad --limit 4",
    "merge bad -o out",
)


def refused(done: Done) -> str:
    """What was said; a refusal is short and no traceback."""
    assert done.code == 3, done.err
    assert len(done.err.splitlines()) <= 5
    return done.err


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of the built-in data."""
    home = tmp_path_factory.mktemp("foreign")
    assert guardmark("run", "--limit", "4", "-o", "run", cwd=home).code in {0, 1}
    return home / "run"


def test_emptied_records_beside_reports_are_not_measured_again(
    finished: Path, tmp_path: Path
) -> None:
    """Who lost the records would pay for all calls again without a word."""
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "records.sqlite").write_bytes(b"")
    message = refused(guardmark("run", "--limit", "4", "-o", "run", cwd=tmp_path))
    assert "reports of a finished run lie beside it" in message
    assert (tmp_path / "run" / "records.sqlite").stat().st_size == 0
    assert guardmark("run", "--limit", "4", "-o", "run", "--fresh", cwd=tmp_path).code in {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_a_view_that_never_ends(
    finished: Path, tmp_path: Path, command: str
) -> None:
    """Nobody waits for a query that somebody planted."""
    shutil.copytree(finished, tmp_path / "bad")
    with closing(sqlite3.connect(tmp_path / "bad" / "records.sqlite")) as connection:
        connection.executescript(ENDLESS)
    start = time.monotonic()
    message = refused(guardmark(*command.split(), cwd=tmp_path))
    assert "holds the view 'records'" in message
    assert time.monotonic() - start < 10
