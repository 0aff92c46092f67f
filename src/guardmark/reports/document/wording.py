"""Figures in words, the same in every rendering."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING

from guardmark.reports.document.blocks import Cell, FigureCell, TextCell, Unit

if TYPE_CHECKING:
    from collections.abc import Callable

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
UNDEFINED = "undefined"  # what stands where a figure has no value; never a zero, never a dash


def value_text(value: float | None, unit: Unit) -> str:
    """Put one number into words."""
    if value is None or not math.isfinite(value):
        return UNDEFINED
    return _WORDS[unit](value)


def measure_text(measure: FigureCell) -> str:
    """Put a figure with its interval into words."""
    words = value_text(measure.value, measure.unit)
    if measure.value is None:
        return words
    if measure.at_least:
        words = f">= {words}"
    return words + interval_text(measure)


def interval_text(measure: FigureCell) -> str:
    """Put the interval of a figure into words."""
    if measure.low is None and measure.high is None:
        needed = measure.reason.partition(" quantile needs ")[2].partition(" ")[0]
        if not needed:
            return ""
        return f" (no interval below n = {needed})"
    low = _bound(measure.low, measure)
    high = _bound(measure.high, measure)
    return f" [{low}, {high}]"


def has_interval(measure: FigureCell) -> bool:
    """Tell whether something stands where the interval of a figure belongs."""
    return measure.low is not None or measure.high is not None or bool(interval_text(measure))


def cell_text(cell: Cell) -> str:
    """Put any cell into words."""
    if isinstance(cell, TextCell):
        return cell.text
    return measure_text(cell)


def counts_text(measure: FigureCell) -> str:
    """Return the counts behind a figure, such as `456/500`, or its n, or nothing."""
    if measure.trials is None:
        return ""
    if measure.successes is None:
        return count_text(measure.trials)
    return f"{count_text(measure.successes)}/{count_text(measure.trials)}"


def count_text(count: int) -> str:
    """Return a count with thousands set apart, such as `12,345`."""
    return f"{count:,}"


def side_text(*, is_attack: bool) -> str:
    """Name the samples of one side: attacks, or benign samples."""
    if is_attack:
        return "attacks"
    return "benign samples"


def side_word(*, is_attack: bool) -> str:
    """Name the samples of one side in one word, where there is little room."""
    if is_attack:
        return "attacks"
    return "benign"


def date_text(utc: str) -> str:
    """Return a moment as people write it, such as `27 November 2026, 01:00 UTC`."""
    try:
        moment = datetime.fromisoformat(utc)
    except ValueError:
        return utc
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}, {moment:%H:%M} UTC"


def p_text(p_value: float) -> str:
    """Return a p-value as it stands behind a letter p: `= 0.0312` or `< 0.0001`."""
    shown = value_text(p_value, Unit.P_VALUE)
    if shown.startswith("<"):
        return shown
    return f"= {shown}"


def percent_text(share: float | None) -> str:
    """Return a share as a percentage with one decimal, such as `91.2 %`."""
    return value_text(share, Unit.SHARE)


def _percent(share: float) -> str:
    # A rate that is not quite 0 or 1 must not be rounded into it.
    digits = f"{100 * share:.1f}"
    if digits == "0.0" and share > 0:
        return "< 0.1 %"
    if digits == "100.0" and share < 1:
        return "> 99.9 %"
    return f"{digits} %"


def _time(value: float, beside: float) -> str:
    """Return a time without its unit, in the unit of the time it stands beside."""
    scaled = value
    if abs(beside) < 1:
        scaled = 1000 * value
    if abs(scaled) >= 100:
        return f"{scaled:,.0f}"
    return f"{scaled:.1f}"


def _milliseconds(value: float) -> str:
    """Write a time with its unit: microseconds below one millisecond."""
    if abs(value) >= 1:
        return f"{_time(value, value)} ms"
    return f"{_time(value, value)} µs"


def _p_value(value: float) -> str:
    if value < 0.0001:
        return "< 0.0001"
    return f"{value:.4f}"


_WORDS: dict[Unit, Callable[[float], str]] = {
    Unit.SHARE: _percent,
    Unit.POINTS: lambda value: f"{100 * value:+.1f} points",
    Unit.MILLISECONDS: _milliseconds,
    Unit.COUNT: lambda value: count_text(round(value)),
    Unit.NUMBER: lambda value: f"{value:.3f}",
    Unit.P_VALUE: _p_value,
}


def _bound(bound: float | None, measure: FigureCell) -> str:
    """Write a limit without its unit; a share is never rounded into a certainty."""
    if bound is None:
        return "?"
    if measure.unit is Unit.SHARE:
        return _share_bound(bound, measure)
    if measure.unit is Unit.POINTS:
        return f"{100 * bound:+.1f}"
    if measure.unit is not Unit.MILLISECONDS:
        return value_text(bound, measure.unit)
    if measure.value is None:
        return _time(bound, bound)
    return _time(bound, measure.value)


def _share_bound(bound: float, measure: FigureCell) -> str:
    digits = f"{100 * bound:.1f}"
    if digits == "100.0" and bound < 1 and bound == measure.low:
        return "> 99.9"
    if digits == "0.0" and bound > 0 and bound == measure.high:
        return "< 0.1"
    return digits
