"""Figures in words."""

from __future__ import annotations

import pytest

from guardmark.reports.document.blocks import FigureCell, Unit
from guardmark.reports.document.wording import counts_text, measure_text, percent_text, value_text


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0.912, Unit.SHARE, "91.2 %"),
        (0.0, Unit.SHARE, "0.0 %"),
        (0.0001, Unit.SHARE, "< 0.1 %"),
        (0.9999, Unit.SHARE, "> 99.9 %"),
        (1.0, Unit.SHARE, "100.0 %"),
        (-0.034, Unit.POINTS, "-3.4 points"),
        (0.034, Unit.POINTS, "+3.4 points"),
        (0.0123, Unit.MILLISECONDS, "12.3 µs"),
        (0.5, Unit.MILLISECONDS, "500 µs"),
        (-0.5, Unit.MILLISECONDS, "-500 µs"),
        (-50.07, Unit.MILLISECONDS, "-50.1 ms"),
        (12.34, Unit.MILLISECONDS, "12.3 ms"),
        (1234.5, Unit.MILLISECONDS, "1,234 ms"),
        (12345.0, Unit.COUNT, "12,345"),
        (0.5, Unit.NUMBER, "0.500"),
        (0.00001, Unit.P_VALUE, "< 0.0001"),
        (0.0321, Unit.P_VALUE, "0.0321"),
        (None, Unit.SHARE, "undefined"),
        (float("nan"), Unit.SHARE, "undefined"),
    ],
)
def test_a_value_in_words(value: float | None, unit: Unit, words: str) -> None:
    """Rounded for people, never into a zero or a hundred that is none."""
    assert value_text(value, unit) == words


def test_an_interval_stands_beside_its_value() -> None:
    """As in the verdict line."""
    measure = FigureCell(
        value=0.912, low=0.884, high=0.934, unit=Unit.SHARE, trials=500, successes=456
    )
    assert measure_text(measure) == "91.2 % [88.4, 93.4]"
    assert counts_text(measure) == "456/500"


def test_missing_bounds_are_marked() -> None:
    """One bound alone is possible for latencies."""
    one = FigureCell(value=12.0, low=10.0, unit=Unit.MILLISECONDS, trials=100, at_least=True)
    assert measure_text(one) == ">= 12.0 ms [10.0, ?]"
    short = FigureCell(value=0.9, low=0.8, high=1.2, unit=Unit.MILLISECONDS)
    assert measure_text(short) == "900 µs [800, 1,200]"
    assert measure_text(FigureCell(value=0.5, unit=Unit.SHARE)) == "50.0 %"
    points = FigureCell(value=0.1, low=-0.02, high=0.22, unit=Unit.POINTS)
    assert measure_text(points) == "+10.0 points [-2.0, +22.0]"


def test_no_limit_is_rounded_into_certainty() -> None:
    """A lower limit just below 1 and an upper one just above 0 say so; outward is safe."""
    high = FigureCell(value=0.99995, low=0.9996, high=0.99999, unit=Unit.SHARE)
    assert measure_text(high) == "> 99.9 % [> 99.9, 100.0]"
    low = FigureCell(value=0.0, low=0.0, high=0.0004, unit=Unit.SHARE)
    assert measure_text(low) == "0.0 % [0.0, < 0.1]"
    assert measure_text(FigureCell(value=1.0, low=1.0, high=1.0, unit=Unit.SHARE)).endswith(
        "[100.0, 100.0]"
    )


def test_counts_without_successes_are_n_and_without_trials_nothing() -> None:
    """No invented denominators."""
    assert counts_text(FigureCell(value=0.5, unit=Unit.SHARE, trials=1200)) == "1,200"
    assert counts_text(FigureCell(value=0.5, unit=Unit.SHARE)) == ""
    assert percent_text(None) == "undefined"
