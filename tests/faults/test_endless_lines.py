"""A file of data whose lines never end is refused, and not read whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.journeys.command_line import guardmark

CASES = {
    "a line of rows": ("data.jsonl", b"", "MiB or more"),
    "a row of a table": ("data.csv", b"id,text,label\n", "MiB or more"),
    "a document": ("data.json", b'{"items": [', "MiB or more"),
    "a list": ("data.json", b"[", "is not JSON at line 1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_line_without_end_is_a_mistake_in_the_data(case: str, tmp_path: Path) -> None:
    """Three gigabytes that take no room on the disk; a quarter of one is looked at (exit code 3: data)."""
    name, start, told = CASES[case]
    with (tmp_path / name).open("wb") as file:
        file.write(start)
        file.truncate(3 << 30)
    done = guardmark("data", "check", name, cwd=tmp_path)
    assert done.code == 3, done.err
    assert told in done.err
