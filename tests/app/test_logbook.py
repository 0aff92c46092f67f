"""The log of a run: what happened when, for support."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from guardmark.app.run.run_folder import logbook
from guardmark.core.errors import BudgetReached
from guardmark.store.run_dir import RunDir

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_lines_are_dated_and_one_line_each(tmp_path: Path) -> None:
    """A message of several lines must not look like several events."""
    folder = RunDir(path=tmp_path)
    with logbook(folder, NOW) as note:
        note("first\nstill first")
        note("second")
    lines = folder.log.read_text(encoding="utf-8").splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["first still first", "second"]
    assert all(line.startswith("2026-01-02T03:04:0") for line in lines)


def test_what_ended_a_run_is_noted_and_goes_on(tmp_path: Path) -> None:
    """The log keeps the reason; the caller still sees the error."""
    folder = RunDir(path=tmp_path)
    with pytest.raises(BudgetReached), logbook(folder, NOW):
        raise BudgetReached("The budget is reached: 5 of 5 calls.\nNext: go on.")
    assert folder.log.read_text(encoding="utf-8").endswith(
        "ended by BudgetReached: The budget is reached: 5 of 5 calls.\n"
    )


def test_a_continued_run_adds_to_the_log(tmp_path: Path) -> None:
    """Nothing that was noted is overwritten."""
    folder = RunDir(path=tmp_path)
    for line in ("Writing", "Continuing"):
        with logbook(folder, NOW) as note:
            note(line)
    assert len(folder.log.read_text(encoding="utf-8").splitlines()) == 2
