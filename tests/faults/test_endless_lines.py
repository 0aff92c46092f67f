"""A file of data whose lines never end is refused, and not read whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.forked import Forked
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


HEADER = b"text,label,blocked\nhi,attack,yes\n"
DOORS = {
    "import table": ("import", "table", "t.csv", "-o", "run"),
    "import of records": ("import", "guardmark", "t.csv", "-o", "run"),
    "stored decisions": ("check", "bench.yaml"),
    "data": ("data", "check", "t.csv"),
}
BENCH = """version: 1
data: [{builtin: core}]
defenses:
  stored: {type: decisions, path: t.csv}
"""


@pytest.mark.slow
@pytest.mark.parametrize("start", [b"", HEADER], ids=["header", "row"])
@pytest.mark.parametrize("door", DOORS)
def test_a_table_of_one_line_is_refused_before_it_is_decoded(
    door: str, start: bytes, tmp_path: Path
) -> None:
    """64 MiB took 765 MB, and the message said that the column `text` was missing."""
    (tmp_path / "t.csv").write_bytes(start + b"a" * (64 << 20))
    (tmp_path / "bench.yaml").write_text(BENCH)
    # From a process that is small: what ours holds would count as what the command held.
    with Forked() as shell:
        ended = shell.run(DOORS[door], cwd=tmp_path)
    message = ended.out + ended.err
    assert ended.code == 3, message
    assert f"t.csv has a line {3 if start else 1} of 64 MiB or more" in message.replace(":", "")
    assert "end each row with a line feed" in message
    assert ended.megabytes < 330
