"""Every decision has a number of its own, and says it in its title."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))


def test_no_two_decisions_share_a_number() -> None:
    """Two people who write at the same time may take the same one."""
    numbers = Counter(page.name[:4] for page in PAGES)
    assert PAGES
    assert {number: count for number, count in numbers.items() if count > 1} == {}


def test_a_title_begins_with_the_number_of_its_file() -> None:
    """A page that was renumbered says its new number."""
    wrong = [
        page.name
        for page in PAGES
        if not re.match(rf"# {page.name[:4]} \S", page.read_text(encoding="utf-8"))
    ]
    assert wrong == []
