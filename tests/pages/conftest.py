"""A headless browser and the pages it opens; skipped with a reason where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARTIFACTS = Path(__file__).parents[2] / "artifacts" / "pages"


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


@dataclass
class Opened:
    """A page, and whatever it did that a report must not do."""

    page: Page
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)


@dataclass
class Opener:
    """Opens pages from files, as a reader of a mail attachment does."""

    browser: Browser
    folder: Path
    contexts: list[BrowserContext] = field(default_factory=list)

    def open(self, html: str, **settings: Any) -> Opened:
        """Write a page to a file and open it."""
        path = self.folder / "report.html"
        path.write_text(html, encoding="utf-8")
        context = self.browser.new_context(**settings)
        self.contexts.append(context)
        opened = Opened(page=context.new_page())
        page = opened.page
        page.on("request", lambda request: opened.asked.append(request.url))
        page.on(
            "requestfailed",
            lambda request: (
                opened.stopped.append(request.url) if request.failure == "csp" else None
            ),
        )
        page.on("console", lambda message: opened.said.append(message.text))
        page.on("pageerror", lambda error: opened.said.append(str(error)))
        page.on("dialog", lambda dialog: opened.said.append(dialog.message))
        page.goto(path.as_uri())
        opened.asked.remove(path.as_uri())
        return opened


@pytest.fixture
def opener(browser: Browser, tmp_path: Path) -> Iterator[Opener]:
    """Opens pages; they close with the test."""
    opener = Opener(browser=browser, folder=tmp_path)
    yield opener
    for context in opener.contexts:
        context.close()


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """Where screenshots are kept for a person to look at."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    return ARTIFACTS
