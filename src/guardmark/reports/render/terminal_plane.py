"""The picture of one rate against another, drawn with letters for a terminal."""

from __future__ import annotations

import textwrap
from string import ascii_lowercase, digits
from typing import TYPE_CHECKING, Final

from guardmark.reports.document.safe_text import plain_line
from guardmark.reports.figures.scale import scale_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.reports.document.blocks import LineChart
    from guardmark.reports.figures.scale import Scale

PLANE_WIDTH: Final = 46
_COLUMNS, _ROWS, _MARGIN = 40, 11, 4
_LETTERS: Final = ascii_lowercase + digits
_NO_LETTER, _SEVERAL, _GOOD = "+", "*", "."


def plane_lines(chart: LineChart, order: Sequence[str] = ()) -> list[str]:
    """Draw each mark as a letter, in the order of a table beside it; a legend says whose it is.

    A capital letter is the same defense against rewritten attacks, a star several marks in one
    place, and dots the corner within the limits.
    """
    drawn = [line.label for line in chart.lines]
    by_table = [label for label in order if label in drawn]
    letters = dict.fromkeys((*by_table, *drawn), _NO_LETTER)
    for label, letter in zip(letters, _LETTERS, strict=False):
        letters[label] = letter
    along = scale_of(chart.x_unit, _values(chart, 0))
    upward = scale_of(chart.y_unit, _values(chart, 1))
    grid = _grid(chart, letters, along, upward)
    rows = [_row(number, cells, upward) for number, cells in enumerate(grid)]
    return [
        plain_line(upward.titled(chart.y_axis))[:PLANE_WIDTH],
        *rows,
        f"{'':{_MARGIN}}+{'-' * _COLUMNS}",
        _ticks(along),
        f"{'':{_MARGIN + 1}}{plain_line(along.titled(chart.x_axis))}"[:PLANE_WIDTH],
        *_legend(chart, letters, grid),
    ]


def _values(chart: LineChart, axis: int) -> list[float]:
    """Return what the scale of an axis must hold: of the marks, and of the limit."""
    values = []
    for line in chart.lines:
        values += [point[axis] for point in line.points]
    if chart.limits:
        values.append(chart.limits[axis])
    return values


def _grid(
    chart: LineChart, letters: Mapping[str, str], along: Scale, upward: Scale
) -> list[list[str]]:
    """Put the letters of all marks into a grid of characters, over the corner of the limits."""
    grid = [[" "] * _COLUMNS for _ in range(_ROWS)]
    if chart.limits is not None:
        right, top = _place(chart.limits, along, upward)
        for row in range(top, _ROWS):
            grid[row][: right + 1] = [_GOOD] * (right + 1)
    for line in chart.lines:
        letter = letters[line.label]
        if line.hollow:
            letter = letter.upper()
        for point in line.points:
            column, row = _place(point, along, upward)
            if grid[row][column] in {" ", _GOOD}:
                grid[row][column] = letter
            else:
                grid[row][column] = _SEVERAL
    return grid


def _place(point: tuple[float, float], along: Scale, upward: Scale) -> tuple[int, int]:
    """Return the column and the row of a point."""
    column = round(along.at(point[0]) * (_COLUMNS - 1))
    return column, round((1 - upward.at(point[1])) * (_ROWS - 1))


def _row(number: int, cells: Sequence[str], upward: Scale) -> str:
    """Write a row of the picture behind its tick, if it has one."""
    label = ""
    for tick in upward.ticks:
        if round((1 - tick.at) * (_ROWS - 1)) == number:
            label = tick.label
    return f"{label:>{_MARGIN}}|{''.join(cells)}".rstrip()


def _ticks(along: Scale) -> str:
    """Write the ticks below the picture, each where it stands."""
    line = [" "] * PLANE_WIDTH
    for tick in along.ticks:
        at = _MARGIN + 1 + round(tick.at * (_COLUMNS - 1))
        start = min(at, PLANE_WIDTH - len(tick.label))
        line[start : start + len(tick.label)] = tick.label
    return "".join(line).rstrip()


def _legend(
    chart: LineChart, letters: Mapping[str, str], grid: Sequence[Sequence[str]]
) -> list[str]:
    entries = [f"{letter}\u00a0{plain_line(label)}" for label, letter in letters.items()]
    if any(line.hollow for line in chart.lines):
        entries.append("capital: rewritten attacks")
    if any(_SEVERAL in row for row in grid):
        entries.append("*: several")
    if chart.limits is not None:
        alarms, attacks = chart.limits
        entries.append(f"dots: at most {100 * attacks:g} % and {100 * alarms:g} %")
    lines = textwrap.wrap(", ".join(entries), PLANE_WIDTH, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]
