"""Lines and marks over two axes: ROC and precision-recall curves, defenses in a plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.reports.figures.scale import Scale, scale_of
from guardmark.reports.figures.svg import (
    NEUTRAL,
    Drawing,
    axes,
    dot,
    element,
    in_legend,
    join,
    number,
    series_class,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from markupsafe import Markup

    from guardmark.reports.document.blocks import Line, LineChart

DASHES: Final = 4
"""How many patterns of dashes the style sheet has for lines."""
_WIDTH, _HEIGHT = 440, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 12, 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plane:
    """Both axes, and where a value stands on the drawing."""

    x_scale: Scale
    y_scale: Scale

    def x(self, value: float) -> float:
        return _LEFT + self.x_scale.at(value) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - self.y_scale.at(value) * (_HEIGHT - _TOP - _BOTTOM)

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)


def draw_lines(chart: LineChart, series: Mapping[str, int]) -> Drawing:
    """Draw a chart."""
    plane = _Plane(
        x_scale=scale_of(chart.x_unit, [x for line in chart.lines for x, _ in line.points]),
        y_scale=scale_of(chart.y_unit, [y for line in chart.lines for _, y in line.points]),
    )
    parts = [_frame(chart, plane)]
    if chart.diagonal:
        x, y = plane.x_scale, plane.y_scale
        ends = (y.high, y.low) if chart.is_falling else (y.low, y.high)
        outline = plane.path(zip((x.low, x.high), ends, strict=True))
        parts.append(element("path", d=outline, class_="chance"))
    legend = []
    for index, line in enumerate(chart.lines):
        classes = series_class(series.get(line.label, NEUTRAL))
        parts.append(element("g", *_line(line, plane, index), class_=classes))
        dash = element("line", x1=-12, x2=12, class_=f"line d{index % DASHES}")
        legend.append(
            (line.label, in_legend(dot(index) if len(line.points) == 1 else dash, classes))
        )
    if chart.diagonal:
        dash = element("line", x1=-12, x2=12, class_="chance")
        legend.append((chart.diagonal_name, in_legend(dash, series_class(NEUTRAL))))
    return Drawing(
        width=_WIDTH,
        height=_HEIGHT,
        content=join(parts),
        legend=tuple(legend),
        summary=chart.summary,
    )


def _frame(chart: LineChart, plane: _Plane) -> Markup:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    grid, labels = [], []
    for tick in plane.x_scale.ticks:
        x = _across(tick.at)
        grid.append(element("line", x1=x, x2=x, y1=_TOP, y2=bottom))
        labels.append(element("text", tick.label, x=x, y=bottom + 18, text_anchor="middle"))
    for tick in plane.y_scale.ticks:
        y = _up(tick.at)
        grid.append(element("line", x1=_LEFT, x2=right, y1=y, y2=y))
        labels.append(element("text", tick.label, x=_LEFT - 8, y=y + 4.5, text_anchor="end"))
    x_title, y_title = plane.x_scale.titled(chart.x_axis), plane.y_scale.titled(chart.y_axis)
    turned = f"translate(15 {number((_TOP + bottom) / 2)}) rotate(-90)"
    centre = (_LEFT + right) / 2
    return axes(
        grid,
        labels,
        element("text", x_title, x=centre, y=_HEIGHT - 10, text_anchor="middle"),
        element("text", y_title, transform=turned, text_anchor="middle"),
    )


def _line(line: Line, plane: _Plane, index: int) -> list[Markup]:
    if len(line.points) == 1:
        return _mark(line, plane, index)
    parts = []
    if line.band:
        lower = [(x, low) for (x, _), (low, _) in zip(line.points, line.band, strict=True)]
        upper = [(x, high) for (x, _), (_, high) in zip(line.points, line.band, strict=True)]
        parts.append(element("path", d=f"{plane.path((*upper, *lower[::-1]))}Z", class_="band"))
    return [*parts, element("path", d=plane.path(line.points), class_=f"line d{index % DASHES}")]


def _mark(line: Line, plane: _Plane, index: int) -> list[Markup]:
    """Draw a line of one point: its shape, and how far it may lie off along either axis."""
    x, y = plane.x(line.points[0][0]), plane.y(line.points[0][1])
    bars = [
        *((x, x, plane.y(low), plane.y(high)) for low, high in line.band),
        *((plane.x(low), plane.x(high), y, y) for low, high in line.reach),
    ]
    whiskers = [element("line", x1=x1, x2=x2, y1=y1, y2=y2) for x1, x2, y1, y2 in bars]
    return [
        *([element("g", *whiskers, class_="whisker")] if whiskers else []),
        element("g", dot(index), transform=f"translate({number(x)} {number(y)})"),
    ]


def _across(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _up(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)
