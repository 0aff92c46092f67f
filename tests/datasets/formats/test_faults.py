"""What is wrong with data is said in lines that a person can read."""

from __future__ import annotations

from guardmark.datasets.formats.fields import BadRows, Fault


def faults(rows: range) -> list[Fault]:
    """The same fault in many rows."""
    return [
        Fault(file="data.csv", row=row, field="category", message="is not declared") for row in rows
    ]


def test_rows_that_follow_each_other_are_one_span() -> None:
    """A whole file with the wrong label is one line."""
    said = str(BadRows([*faults(range(2, 400_000)), *faults(range(500_000, 500_001))]))
    assert "data.csv rows 2-399999, 500000, field category: is not declared" in said
    assert len(said.splitlines()) == 3


def test_half_a_million_scattered_rows_are_not_listed_one_by_one() -> None:
    """Every second row of a large file: the first places are enough, and the count is told."""
    said = str(BadRows(faults(range(1, 1_000_001, 2))))
    assert "500,000 bad rows" in said
    assert "21, 23 and 499,988 more, field category" in said
    assert len(said) < 500
