"""Lines and marks over two axes: ROC and precision-recall curves, defenses in a plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.figures.scale import Scale, scale_of
from guardmark.reports.figures.svg import (
    NEUTRAL,
    element,
    join,
    number,
    series_class,
    shape_path,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from markupsafe import Markup

    from guardmark.reports.document.blocks import Line, LineChart

WIDTH: Final = 440
HEIGHT: Final = 400
DASHES: Final = 4
"""How many patterns of dashes the style sheet has for lines."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 12, 50


def draw_lines(chart: LineChart, series: Mapping[str, int]) -> Markup:
    """Draw a chart, without its title and legend."""
    x_scale = scale_of(chart.x_unit, [x for line in chart.lines for x, _ in line.points])
    y_scale = scale_of(chart.y_unit, [y for line in chart.lines for _, y in line.points])
    parts = [_frame(chart, x_scale, y_scale)]
    if chart.diagonal:
        ends = ((x_scale.low, y_scale.low), (x_scale.high, y_scale.high))
        parts.append(element("path", d=_path(ends, x_scale, y_scale), class_="chance"))
    parts.extend(
        element(
            "g",
            *_line(line, x_scale, y_scale, place=place),
            class_=series_class(series.get(line.label, NEUTRAL)),
        )
        for place, line in enumerate(chart.lines)
    )
    return join(parts)


def _frame(chart: LineChart, x_scale: Scale, y_scale: Scale) -> Markup:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    grid, labels = [], []
    for tick in x_scale.ticks:
        x = _across(tick.at)
        grid.append(element("line", x1=x, x2=x, y1=_TOP, y2=bottom))
        labels.append(element("text", tick.label, x=x, y=bottom + 18, text_anchor="middle"))
    for tick in y_scale.ticks:
        y = _up(tick.at)
        grid.append(element("line", x1=_LEFT, x2=right, y1=y, y2=y))
        labels.append(element("text", tick.label, x=_LEFT - 8, y=y + 4.5, text_anchor="end"))
    middle = (_TOP + bottom) / 2
    titles = (
        element(
            "text",
            _titled(chart.x_axis, x_scale),
            x=(_LEFT + right) / 2,
            y=HEIGHT - 10,
            text_anchor="middle",
        ),
        element(
            "text",
            _titled(chart.y_axis, y_scale),
            transform=f"translate(15 {number(middle)}) rotate(-90)",
            text_anchor="middle",
        ),
    )
    return join(
        [
            element("g", *grid, class_="grid"),
            element("g", *labels, class_="ticks"),
            element("g", *titles, class_="axis"),
        ]
    )


def _line(line: Line, x_scale: Scale, y_scale: Scale, *, place: int) -> list[Markup]:
    if len(line.points) == 1:
        return _mark(line, x_scale, y_scale, place=place)
    parts = []
    if line.band:
        lower = [(x, low) for (x, _), (low, _) in zip(line.points, line.band, strict=True)]
        upper = [(x, high) for (x, _), (_, high) in zip(line.points, line.band, strict=True)]
        outline = _path((*upper, *reversed(lower)), x_scale, y_scale)
        parts.append(element("path", d=f"{outline}Z", class_="band"))
    path = _path(line.points, x_scale, y_scale)
    parts.append(element("path", d=path, class_=f"line d{place % DASHES}"))
    return parts


def _mark(line: Line, x_scale: Scale, y_scale: Scale, *, place: int) -> list[Markup]:
    """Draw a line of one point: its shape, and how far it may lie off along either axis."""
    across, up = _across(x_scale.at(line.points[0][0])), _up(y_scale.at(line.points[0][1]))
    whiskers = [
        element("line", x1=across, x2=across, y1=_up(y_scale.at(low)), y2=_up(y_scale.at(high)))
        for low, high in line.band
    ]
    whiskers += [
        element("line", x1=_across(x_scale.at(low)), x2=_across(x_scale.at(high)), y1=up, y2=up)
        for low, high in line.reach
    ]
    dot = element("path", d=shape_path(place), class_="dot")
    return [
        *([element("g", *whiskers, class_="whisker")] if whiskers else []),
        element("g", dot, transform=f"translate({number(across)} {number(up)})"),
    ]


def _path(points: Iterable[tuple[float, float]], x_scale: Scale, y_scale: Scale) -> str:
    return "M" + "L".join(
        f"{_across(x_scale.at(x)):.1f} {_up(y_scale.at(y)):.1f}" for x, y in points
    )


def _across(share: float) -> float:
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _up(share: float) -> float:
    return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _titled(words: str, scale: Scale) -> str:
    return f"{words}, {scale.unit_words}" if scale.unit_words else words
