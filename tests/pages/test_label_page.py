"""The page on which a person labels messages: inert, by keys, kept when left, read back as labels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.pages.test_report_page import SIGHTS, faults, sight

from guardmark.cli.data import data_command

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from conftest import Opened, Opener

pytestmark = pytest.mark.slow

TEXTS = [
    "</script><script>document.title = 'taken'</script><img src=x onerror=alert(1)>",
    "which plants like shade \u202e edahs",
    "what grows in winter",
]


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    """A drawn sheet with its page beside it."""
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    run("label", str(log), "-o", str(tmp_path / "anna.csv"), "--draw-only")
    return tmp_path / "anna.csv"


def run(*words: str) -> str:
    """What a command prints that succeeds."""
    done = CliRunner().invoke(data_command, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def texts_of(opened: Opened) -> list[str]:
    """The messages in the order of the page."""
    seen = []
    for _ in TEXTS:
        seen.append(opened.page.locator("#text").inner_text())
        opened.page.keyboard.press("ArrowRight")
    return seen


def come_back(page: Page) -> str:
    """The place at which the page opens again, once the browser has stored what it was given."""
    place = ""
    for _ in range(20):
        page.reload()
        place = page.locator("#place").inner_text()
        if not place.endswith("; 0 labelled"):
            break
        page.wait_for_timeout(250)  # Chromium stores in another process, a moment later
    return place


def test_hostile_messages_are_shown_as_they_are_and_do_nothing(opener: Opener, sheet: Path) -> None:
    """Tags are text, and what turns letters around is spelled out."""
    opened = opener.open(sheet.with_suffix(".html").read_text(encoding="utf-8"))
    seen = texts_of(opened)
    assert sorted(seen) == sorted([TEXTS[0], "which plants like shade <U+202E> edahs", TEXTS[2]])
    assert opened.page.title() == "Label messages"
    assert (opened.asked, opened.said, opened.stopped) == ([], [], [])


@pytest.mark.parametrize("seen", SIGHTS)
def test_no_fault_of_accessibility(opener: Opener, sheet: Path, seen: str) -> None:
    """axe-core finds nothing, light and dark, wide and narrow."""
    html = sheet.with_suffix(".html").read_text(encoding="utf-8")
    assert faults(opener.open(html, **sight(seen)).page) == []


def test_labels_given_by_keys_are_saved_and_compared(
    opener: Opener, sheet: Path, tmp_path: Path
) -> None:
    """After a reload it goes on; the saved file is a sheet like any other."""
    opened = opener.open(sheet.with_suffix(".html").read_text(encoding="utf-8"))
    page = opened.page
    page.keyboard.press("a")
    page.fill("#notes", "by rota")
    page.click("button[value=benign]")
    assert come_back(page) == "3 of 3: message-00003; 2 labelled"
    page.keyboard.press("u")
    assert "All are labelled" in page.locator("#said").inner_text()
    with page.expect_download() as download:
        page.click("#save")
    assert download.value.suggested_filename == "anna.jsonl"
    saved = tmp_path / "anna.jsonl"
    download.value.save_as(saved)
    rows = [json.loads(line) for line in saved.read_text(encoding="utf-8").splitlines()]
    assert [row["label"] for row in rows] == ["attack", "benign", "unsure"]
    assert [row["human_notes"] for row in rows] == ["", "by rota", ""]
    assert sorted(row["text"] for row in rows) == sorted(TEXTS)
    assert all(float(row["seconds"]) >= 0 for row in rows)
    said = run("label", str(sheet), "-o", str(saved), "--against", str(saved))
    assert "labelled  3 of 3" in said
    assert "agreement 100.0 % of 3" in said
