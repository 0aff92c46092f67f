"""Runs made by the real command line, and the real server over them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.journeys.command_line import CONFIG, guardmark, set_up
from tests.view.site_server import Site, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs: two over the same data, one over other data, and a damaged one."""
    folder = tmp_path_factory.mktemp("made")
    runs = folder / "runs"
    set_up(folder, count=60)
    assert guardmark("run", "bench.yaml", "-o", "runs/a/first", cwd=folder).code == 0
    (folder / "bench.yaml").write_text(CONFIG.replace("ignore", "all 1"), encoding="utf-8")
    assert guardmark("run", "bench.yaml", "-o", "runs/a/second", cwd=folder).code == 0
    set_up(folder, CONFIG.replace("journey", "other"), count=24)
    assert guardmark("run", "bench.yaml", "-o", "runs/other", cwd=folder).code == 0
    (runs / "broken").mkdir()
    (runs / "broken" / "records.sqlite").write_bytes(b"not a database at all" * 20)
    return runs


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    """A copy of the runs that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "runs"))


@pytest.fixture(scope="session")
def site(made: Path) -> Iterator[Site]:
    """The server over the runs as they were made."""
    with serving(made) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium of this machine.

    Not kept for the session: while it is open its event loop counts as running in this
    thread, and tests of other rooms run loops of their own.
    """
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = os.environ.get("GUARDMARK_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), "")
    if not found:
        pytest.skip("no Chromium on the path; install one, or name it in GUARDMARK_CHROMIUM")
    with api.sync_playwright() as playwright:
        # A container's root may not use Chromium's sandbox; the pages are our own.
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()
