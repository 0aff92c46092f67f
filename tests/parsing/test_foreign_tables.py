"""Tables of others are read a row at a time: what has no end is refused, and not decoded whole."""

from __future__ import annotations

import pytest

from guardmark.core.errors import DatasetError
from guardmark.parsing.foreign_text import table_records

HEADER = "text,label,blocked\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_table_is_read_in_either_encoding(encoding: str) -> None:
    """Letters beyond ASCII, a line feed inside quotes and both ends of lines are kept."""
    data = f'{HEADER}"Grüße\nan alle",attack,yes\r\n漢字,benign,no\r\n'.encode(encoding)
    rows = list(table_records(data, "t.csv", []))
    assert [(line, row["text"]) for line, row in rows] == [(3, "Grüße\nan alle"), (4, "漢字")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_last_row_that_breaks_off_is_left_out_with_a_warning(encoding: str) -> None:
    """Only a row that the file ends in may be short; a short row with an end is a mistake."""
    cut, warnings = f"{HEADER}a,attack,yes\nb,att".encode(encoding), list[str]()
    assert [row["text"] for _, row in table_records(cut, "t.csv", warnings)] == ["a"]
    assert warnings == ["the last row of t.csv breaks off and was left out"]
    ended = f"{HEADER}a,attack,yes\nb,att\n".encode(encoding)
    with pytest.raises(DatasetError, match=r"t\.csv:3: has 2 cells where the header has 3 names"):
        list(table_records(ended, "t.csv", []))


def test_a_letter_that_is_none_is_told_with_its_line() -> None:
    """The line and the next step are named."""
    data = HEADER.encode() + b"a,attack,yes\n\xff,attack,yes\n"
    with pytest.raises(DatasetError, match=r"t\.csv is not UTF-8 \(near line \d") as caught:
        list(table_records(data, "t.csv", []))
    assert "Next: save it as UTF-8" in str(caught.value)


def test_a_header_that_names_no_columns_is_refused() -> None:
    """A file of one long line was told to have no column `text`."""
    with pytest.raises(DatasetError, match="has a header of more than 1 MiB"):
        list(table_records(b"a" * ((1 << 20) + 1), "t.csv", []))
