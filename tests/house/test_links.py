"""Every relative link of a page leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_there_are_pages_to_look_at() -> None:
    """A moved folder must not make this rule pass for want of pages."""
    assert len(PAGES) > 10


def test_relative_links_lead_somewhere() -> None:
    """A reader who follows a link must not end up nowhere."""
    broken = [
        (page.relative_to(ROOT).as_posix(), target)
        for page in PAGES
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists()
    ]
    assert broken == []


def test_what_the_architecture_names_is_there() -> None:
    """A file that moved must not be looked for where it was."""
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w./]+/[\w./]*)`", page)
    package = ROOT / "src" / "guardmark"
    there = {path for path in named if (package / path).exists() or (ROOT / path).exists()}
    assert len(named) > 15
    assert set(named) == there


def test_every_room_is_drawn() -> None:
    """The picture of the rooms has a box for each, and none for one that is gone."""
    drawn = (ROOT / "docs" / "images" / "architecture.svg").read_text(encoding="utf-8")
    boxes = set(re.findall(r'class="name"[^>]*>(\w+)<', drawn))
    rooms = {path.parent.name for path in (ROOT / "src" / "guardmark").glob("*/__init__.py")}
    assert boxes == rooms


def test_each_test_that_the_page_on_security_names_is_there() -> None:
    """A promise whose test was renamed would be held by nothing."""
    page = (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)`", page)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).is_file()] == []
