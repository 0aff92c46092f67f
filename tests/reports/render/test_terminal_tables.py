"""Tables in a terminal: every column is shown, and each part says which rows it speaks of."""

from __future__ import annotations

from guardmark.reports.document.blocks import Document, Table, Unit, section
from guardmark.reports.document.cells import (
    figure,
    name,
    table_of,
    with_derived,
    without_repeats,
)
from guardmark.reports.render.terminal import render_terminal

NARROW, WIDE = 40, 160


def times(last: tuple[int | None, int | None] = (7, 8)) -> Table:
    """A table whose rows two columns tell apart."""
    rows = [("words", "attacks", 0.25, last[0]), ("words", "benign", 0.5, last[1])]
    return table_of(
        rows,
        {
            "Stage": lambda row: name(row[0]),
            "Samples": lambda row: row[1],
            "Share that came late": lambda row: figure(row[2], Unit.SHARE),
            "Would decide": lambda row: row[3],
        },
        table_id="times",
        texts=("Samples",),
    )


def drawn(table: Table, width: int) -> list[str]:
    """The lines of a table in a terminal."""
    document = Document(title="T", subtitle="", sections=(section("s", "", table),))
    return [line.strip() for line in render_terminal(document, width=width).splitlines()]


def test_a_part_of_a_table_repeats_all_that_tells_its_rows_apart() -> None:
    """One column alone would say `words` twice."""
    lines = drawn(times(), NARROW)
    assert max(map(len, lines)) <= NARROW
    second = lines[next(at for at, line in enumerate(lines) if "Would decide" in line) :]
    assert second[0].split() == ["Stage", "Samples", "Would", "decide"]
    assert [line.split() for line in second[2:4]] == [
        ["words", "attacks", "7"],
        ["words", "benign", "8"],
    ]


def test_a_part_of_a_table_leaves_out_rows_of_which_it_says_nothing() -> None:
    """A limit that is decided needs no count that would decide it."""
    lines = drawn(times((None, 8)), NARROW)
    second = lines[next(at for at, line in enumerate(lines) if "Would decide" in line) :]
    assert [line.split() for line in second[2:] if line] == [["words", "benign", "8"]]


def test_words_that_are_too_long_for_a_line_go_on_below_in_their_column() -> None:
    """No line is wider than the terminal, and no word is lost."""
    evidence = " and ".join(f"rate number {number}" for number in range(20))
    table = table_of(
        [("LLM01", evidence), ("LLM02", "nothing")],
        {"Item|Evidence for it": lambda row: row},
        table_id="crosswalk",
        texts=("Evidence for it",),
    )
    lines = drawn(table, 60)
    assert max(map(len, lines)) <= 60
    text = " ".join(lines)
    assert all(f"rate number {number}" in " ".join(text.split()) for number in range(20))
    assert [line.split()[0] for line in lines if line.startswith("LLM")] == ["LLM01", "LLM02"]


def test_a_table_that_fits_stands_in_one_piece() -> None:
    """With every row, whatever it holds."""
    lines = drawn(times((None, 8)), WIDE)
    assert len([line for line in lines if line.startswith("words")]) == 2


def test_what_follows_from_other_columns_gives_way_in_a_narrow_terminal() -> None:
    """The table stands in one piece then; where there is room nothing is left out."""
    table = with_derived(times(), "Would decide")
    assert not any("Would decide" in line for line in drawn(table, NARROW))
    assert any("Would decide" in line for line in drawn(table, WIDE))


def test_columns_that_repeat_one_another_are_left_out() -> None:
    """And a count that is the same in every row; figures that agree by chance in one row stay."""
    rows = [("none", 0.1, 0.1, 0.1, 448), ("words", 0.2, 0.2, 0.3, 448)]
    table = table_of(
        rows,
        {"Arm|Success|Help|Unsafe|Known": lambda row: (name(row[0]), *row[1:])},
        table_id="arms",
    )
    assert [column.title for column in without_repeats(table).columns] == [
        "Arm",
        "Success",
        "Unsafe",
    ]
