"""Nothing hides in a cell, nothing in it is a formula, and its text can be had again."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from guardmark.canon.visible import (
    cell_of,
    csv_line,
    csv_text,
    is_formula,
    spell_hidden,
    text_of_cell,
)

ANY_TEXT = st.text(
    st.one_of(
        st.characters(),  # lone surrogates too
        st.sampled_from("=+-@|%\uff1d\uff0b'\"[]U+\r\n\t,; \x00\x1b\u2028\u202e\u200b\U000e0041"),
    ),
    max_size=40,
)
CELLS = st.one_of(ANY_TEXT, st.integers(), st.floats(allow_nan=False, allow_infinity=False))
HIDDEN = {*map(chr, range(32)), "\x7f", "\x9b", "\u2028", "\u202e", "\u200b", "\ufeff", "\ud800"}


def parsed(text: str) -> list[list[str]]:
    """Parse a table as any program would."""
    return [*csv.reader(io.StringIO(text, newline=""), strict=True)]


@given(ANY_TEXT)
@example("[U+000D]")
@example("'=1+1")
@example("''\u200b=1")
@example("[hidden tags: x]\U000e005d")
def test_the_text_of_a_cell_can_be_had_again(text: str) -> None:
    """No two texts share a cell."""
    assert text_of_cell(cell_of(text)) == text


@given(ANY_TEXT)
def test_a_cell_hides_nothing_and_is_no_formula(text: str) -> None:
    """Tabs and line feeds stay, which every reader of quoted cells keeps."""
    cell = cell_of(text)
    assert not (set(cell) - {"\t", "\n"}) & HIDDEN
    bare = cell.lstrip()
    assert bare[:1] not in set("=+-@\uff1d\uff0b\uff20\uff0d")
    cell.encode()


@pytest.mark.parametrize(
    "text",
    [
        *("=1", "+1", "-1", "@x", "\tx", " =1", "\u00a0=1", "\u200b=1", "\x1b=1"),
        *("\uff1d1", "\uff20x", "\ufeff\u202e -1", "\n=1", "|cmd", "%0", "'=1"),
    ],
)
def test_what_a_spreadsheet_may_evaluate_is_a_formula(text: str) -> None:
    """Also behind blanks and what cannot be seen, and in full width."""
    assert is_formula(text)
    assert not is_formula(cell_of(text).lstrip("'")) or cell_of(text).startswith("'")


def test_ordinary_texts_stay_as_they_are() -> None:
    """No apostrophe and no code in them."""
    for text in (
        "",
        "plain",
        "a = b",
        "two\nlines",
        "d\u00e9j\u00e0 vu",
        "\U0001f468\u200d\U0001f469",
        "[x]",
    ):
        assert cell_of(text) == text


def test_numbers_are_bare_and_what_is_undefined_is_empty() -> None:
    """A negative number of ours is a number."""
    assert csv_line(("-1", -1, -0.5, None, "")) == '"\'-1",-1,-0.5,,""\n'


@given(st.lists(st.lists(CELLS, min_size=2, max_size=4), max_size=5))
def test_a_table_is_parsed_to_its_cells(rows: list[list[object]]) -> None:
    """By the standard library."""
    shown = [[cell_of(c) if isinstance(c, str) else repr(c) for c in row] for row in rows]
    assert parsed(csv_text(rows)) == shown


@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT, st.floats(-1e9, 1e9)), min_size=1, max_size=5))
def test_a_table_is_parsed_to_its_cells_by_data_frames(rows: list[tuple[str, str, float]]) -> None:
    """By pandas."""
    pandas = pytest.importorskip("pandas")
    text = csv_text([("a", "b", "c"), *rows])
    frame = pandas.read_csv(
        io.StringIO(text, newline=""), dtype={"a": str, "b": str}, keep_default_na=False,
        float_precision="round_trip",
    )  # fmt: skip
    assert [*frame.itertuples(index=False, name=None)] == [
        (cell_of(a), cell_of(b), c) for a, b, c in rows
    ]


@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), min_size=1, max_size=5))
def test_a_table_is_parsed_to_its_cells_by_a_database(rows: list[tuple[str, str]]) -> None:
    """By DuckDB, where it is installed."""
    duckdb = pytest.importorskip("duckdb")
    stream = io.BytesIO(csv_text([("a", "b"), *rows]).encode())
    with duckdb.connect() as connection:
        table = connection.read_csv(stream, header=True, all_varchar=True, delimiter=",")
        cells = [tuple(each or "" for each in row) for row in table.fetchall()]
    assert cells == [(cell_of(a), cell_of(b)) for a, b in rows]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_an_exact_cell_is_the_text_itself(text: str) -> None:
    """For what is read back by whoever knows."""
    assert parsed(csv_line((text, "x"), is_exact=True)) == [[text, "x"]]


@given(ANY_TEXT)
def test_what_is_spelled_out_once_stays(text: str) -> None:
    """Spelling out may happen twice on the way to a terminal."""
    once = spell_hidden(text)
    assert spell_hidden(once) == once
