"""The picture in a terminal: each mark where its rates say, and who it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from guardmark.reports.document.blocks import Document, Line, LineChart
from guardmark.reports.document.cells import name, table_of
from guardmark.reports.render.terminal import render_terminal
from guardmark.reports.render.terminal_plane import PLANE_WIDTH, plane_lines

PLANE = LineChart(
    id="plane",
    title="Attacks let through against false alarms",
    x_axis="Benign samples blocked",
    y_axis="Attacks let through",
    lines=(
        Line(label="words", points=((0.0, 1.0),)),
        Line(label="careful", points=((1.0, 0.0),)),
        Line(label="careful", points=((1.0, 1.0),), hollow=", rewritten"),
    ),
    limits=(0.1, 0.1),
)


def test_marks_stand_where_their_rates_say() -> None:
    """Top left lets all through, bottom right blocks all; letters go by the table's order."""
    lines = plane_lines(PLANE, ["careful", "words"])
    top, bottom = lines[1], lines[11]
    assert top == f" 100|b{' ' * 38}A"
    assert bottom.startswith("   0|.")
    assert bottom.endswith("a")
    assert lines[12].strip().startswith("+---")
    assert "a careful, b words" in " ".join(lines[15:])
    assert max(map(len, lines)) <= PLANE_WIDTH


def test_ticks_stand_where_their_values_do() -> None:
    """On an axis that ends at 30 %, a third is 10 %."""
    short = replace(PLANE, lines=(Line(label="words", points=((0.3, 0.3),)),), limits=None)
    lines = plane_lines(short)
    ticks = lines[13]
    assert ticks.split() == ["0", "10", "20", "30"]
    assert ticks.index("10") - 5 == pytest.approx(39 / 3, abs=0.5)
    assert [line[:4].strip() for line in lines[1:12] if line[:4].strip()] == ["30", "20", "10", "0"]


def test_marks_in_one_place_are_told_to_be_several() -> None:
    """Nobody takes the last one drawn for the only one."""
    both = LineChart(
        id="plane",
        title="",
        x_axis="x",
        y_axis="y",
        lines=(Line(label="a", points=((0.5, 0.5),)), Line(label="b", points=((0.5, 0.5),))),
    )
    text = "\n".join(plane_lines(both))
    assert "*" in text
    assert "*: several" in text


def test_the_picture_stands_beside_the_table_where_there_is_room() -> None:
    """In a narrow terminal it is left out, and below the table where all is asked for."""
    table = table_of(
        ["careful", "words", "third"],
        {"Defense": name, "Let through (ASR)": lambda each: f"{len(each)} of 10"},
        table_id="all",
        texts=("Let through (ASR)",),
    )
    document = Document(title="T", subtitle="", lead=(table, PLANE), sections=(), is_brief=True)
    wide = render_terminal(document, width=120)
    assert any("careful" in line and "|" in line for line in wide.splitlines())
    assert max(map(len, wide.splitlines())) <= 120
    assert "|" not in render_terminal(document, width=70)
    whole = Document(title="T", subtitle="", lead=(table, PLANE), sections=())
    assert "|" in render_terminal(whole, width=70)
