"""The page tells what the last run of the soak cells has seen, of every cell there is."""

from __future__ import annotations

from tests.soak.table import BEGIN, CELLS, END, PAGE, read, table


def test_every_cell_was_drawn_and_kept_its_promise() -> None:
    """A cell that is added or changed is drawn with the table: `python -m tests.soak.table`."""
    shown = read()
    assert list(shown) == [(cell.figure, cell.setting) for cell in CELLS]
    for cell in CELLS:
        seen = shown[cell.figure, cell.setting]
        assert (seen.promised, cell.keeps(seen)) == (cell.promised, True), cell.name


def test_the_page_holds_the_table_of_that_run() -> None:
    """Nothing is copied by hand."""
    page = PAGE.read_text(encoding="utf-8")
    assert page.split(BEGIN)[1].split(END)[0] == table([*read().values()])
