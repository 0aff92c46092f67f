"""Runs that an earlier guardmark left behind stay readable, or are refused by name."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.command_line import CONFIG, guardmark, set_up

BUILT_IN = CONFIG.replace("{path: data.jsonl}", "{builtin: core}")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A small finished run over built-in data."""
    set_up(tmp_path, BUILT_IN)
    assert guardmark("run", "bench.yaml", "-o", "out", "--limit", "40", cwd=tmp_path).code == 0
    return tmp_path / "out"


def rewrite_settings(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Put other settings into the manifest, as an earlier version would have kept them."""
    with closing(sqlite3.connect(run / "records.sqlite")) as connection:
        (said,) = connection.execute("SELECT value FROM meta WHERE key = 'manifest'").fetchone()
        manifest = json.loads(said)
        change(manifest["settings"])
        connection.execute(
            "UPDATE meta SET value = ? WHERE key = 'manifest'", (json.dumps(manifest),)
        )
        connection.commit()


def test_a_setting_that_never_had_an_effect_is_passed_over(run: Path) -> None:
    """Beside `builtin` a label was accepted once; it is refused today, and old runs have it."""

    def change(settings: dict[str, Any]) -> None:
        settings["data"][0] |= {"label": "attack", "name": "mine", "open_categories": True}

    rewrite_settings(run, change)
    done = guardmark("report", run, cwd=run.parent)
    assert done.code == 0, done.err
    assert "blocks" in done.out


def test_settings_that_cannot_be_read_are_no_fault_of_ours(run: Path) -> None:
    """The run and the setting are named, and who can read it."""
    rewrite_settings(run, lambda settings: settings.update(stats={"confidence": "much"}))
    done = guardmark("report", run, cwd=run.parent)
    assert done.code == 3, done.err
    assert "settings kept in run 'journey'" in done.err
    assert "stats.confidence" in done.err
    assert len(done.told) <= 5


@pytest.mark.parametrize(
    ("version", "said"), [(0, "Next: run the measurement again"), (99, "Next: update guardmark")]
)
def test_a_schema_that_cannot_be_read_is_named_with_its_file(
    run: Path, version: int, said: str
) -> None:
    """With many runs in a folder one wants to know which."""
    with closing(sqlite3.connect(run / "records.sqlite")) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()
    done = guardmark("report", run, cwd=run.parent)
    assert done.code == 3, done.err
    assert f"{run / 'records.sqlite'} has schema version {version}" in done.err
    assert said in done.err
