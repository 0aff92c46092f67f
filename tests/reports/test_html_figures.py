"""Drawings: places on axes, marks for every figure, files of their own."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reports.loud_document import LOUD, PLAIN, document

from guardmark.reports.document.blocks import FigureCell, IntervalChart, IntervalMark, Unit
from guardmark.reports.figures.files import Figure, figure_svg
from guardmark.reports.figures.interval import plot_intervals
from guardmark.reports.figures.scale import scale_between, scale_of
from guardmark.reports.figures.svg import number, series_class

SVG = "{http://www.w3.org/2000/svg}"
finite = st.floats(-1e9, 1e9, allow_nan=False)
FIGURES = [
    (text, at)
    for text in (PLAIN, LOUD)
    for at, block in enumerate(document(text).sections[1].blocks)
    if isinstance(block, Figure)
]


def figure(text: str, at: int) -> Figure:
    """One of the charts of the document by hand."""
    block = document(text).sections[1].blocks[at]
    assert isinstance(block, Figure)
    return block


@given(st.sampled_from(Unit), st.lists(finite, max_size=8))
def test_every_value_finds_its_place_and_ticks_rise(unit: Unit, values: list[float]) -> None:
    """Whatever is drawn, it lies on the axis."""
    scale = scale_of(unit, values)
    places = [tick.at for tick in scale.ticks]
    assert places == sorted(places)
    assert 2 <= len(places) <= 12
    assert all(0 <= scale.at(value) <= 1 for value in values)
    if unit is not Unit.SHARE and unit is not Unit.POINTS:
        assert all(scale.low <= value <= scale.high * (1 + 1e-9) for value in values if value > 0)


@pytest.mark.parametrize(
    ("most", "labels"),
    [
        (0.01, ["0", "0.5", "1", "1.5", "2"]),
        (0.17, ["0", "5", "10", "15", "20"]),
        (0.85, ["0", "25", "50", "75", "100"]),
    ],
)
def test_shares_begin_at_none_and_end_soon_after_the_largest(
    most: float, labels: list[str]
) -> None:
    """Zero is where a rate of errors should be, so it stays in sight."""
    scale = scale_of(Unit.SHARE, [most])
    assert [tick.label for tick in scale.ticks] == labels
    assert scale.at(0.0) == 0


def test_differences_are_symmetric_about_zero() -> None:
    """No difference stands in the middle."""
    scale = scale_of(Unit.POINTS, [-0.06, 0.01])
    assert scale.at(0.0) == pytest.approx(0.5)
    assert "0" in [tick.label for tick in scale.ticks]


@given(st.floats(1e-6, 1e6), st.floats(1.0, 1e6))
def test_logarithmic_axes_have_ticks_within_their_ends(low: float, factor: float) -> None:
    """Also an axis whose ends agree."""
    scale = scale_between(Unit.MILLISECONDS, low, low * factor, logarithmic=True)
    assert scale.ticks
    assert all(-1e-9 <= tick.at <= 1 + 1e-9 for tick in scale.ticks)


@given(finite)
def test_coordinates_are_written_shortly(value: float) -> None:
    """At most two places, and no negative zero."""
    written = number(value)
    assert float(written) == pytest.approx(value, abs=0.005 + 1e-9)  # 0.625 is a tie
    assert written != "-0"
    assert "e" not in written


def test_a_defense_keeps_its_mark() -> None:
    """The same colour and shape wherever a defense is drawn."""
    marks = tuple(
        IntervalMark(label="all", measure=FigureCell(value=0.5, unit=Unit.SHARE), series=name)
        for name in ("second", "first")
    )
    chart = IntervalChart(id="c", title="c", unit=Unit.SHARE, axis="a", marks=marks)
    plot = plot_intervals(chart, {"first": 0, "second": 1})
    assert [name for name, _ in plot.legend] == ["second", "first"]
    assert all(
        series_class(index) in mark for index, (_, mark) in zip((1, 0), plot.legend, strict=True)
    )


@pytest.mark.parametrize(("text", "at"), FIGURES)
def test_a_chart_is_a_file_of_its_own(text: str, at: int) -> None:
    """Well-formed XML with a title, whatever its words hold; nothing in it runs or loads."""
    drawn = figure_svg(figure(text, at))
    assert drawn == figure_svg(figure(text, at))
    root = ET.fromstring(drawn.encode())  # noqa: S314 - written by ourselves
    assert root.tag == f"{SVG}svg"
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "style", "rect", "g", "path", "line", "text"}
    assert not [key for element in root.iter() for key in element.attrib if key.startswith("on")]
