"""Lines and marks over two axes: ROC and precision-recall curves, defenses in a plane."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass
from guardmark.reports.figures.scale import Scale, scale_between, scale_of
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

    _Box = tuple[float, float, float, float]

DASHES: Final = 4  # how many patterns of dashes the style sheet has for lines
_WIDTH, _HEIGHT = 440, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 12, 50
_ACROSS, _UP = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM  # how long the axes are
_LETTER: Final = 7.2  # width of one, about
_LONGEST_NAME: Final = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plane:
    """Both axes, and where a value stands on the drawing."""

    x_scale: Scale
    y_scale: Scale

    def x(self, value: float) -> float:
        return _LEFT + self.x_scale.at(value) * _ACROSS

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - self.y_scale.at(value) * _UP

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        """Return the path along some points, as SVG writes it."""
        return "M" + "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)


def draw_lines(chart: LineChart, series: Mapping[str, int]) -> Drawing:
    """Draw a chart; single marks get their names, as far as these find room."""
    limits = chart.limits or (0.0, 0.0)
    # A limit close to an edge would not be seen as one.
    xs, ys = [1.25 * limits[0]], [1.25 * limits[1]]
    for line in chart.lines:
        for x, y in line.points:
            xs.append(x)
            ys.append(y)
        xs.extend(chain.from_iterable(line.reach))
        ys.extend(chain.from_iterable(line.band))
    x_scale = scale_of(chart.x_unit, xs)
    if chart.is_logarithmic:
        above = [x for x in xs if x > 0]
        x_scale = scale_between(chart.x_unit, min(above), max(above), logarithmic=True)
    plane = _Plane(x_scale=x_scale, y_scale=scale_of(chart.y_unit, ys))
    parts = [_frame(chart, plane), *_good_corner(chart, plane), *_diagonal(chart, plane)]
    legend, names = [], _Names(plane, chart.lines)
    for index, line in enumerate(chart.lines):
        shape = at = series.get(line.label, NEUTRAL)
        if at < 0:
            shape = index
        classes = series_class(at)
        if line.hollow:
            classes += " few"
        parts.append(element("g", *_line(line, plane, shape), class_=classes))
        if len(line.points) == 1:
            parts += names.write(line)
            sign = dot(shape)
        else:
            sign = element("line", x1=-12, x2=12, class_=f"line d{shape % DASHES}")
        legend.append((f"{line.label}{line.hollow}", in_legend(sign, classes)))
    if chart.diagonal:
        dash = element("line", x1=-12, x2=12, class_="chance")
        legend.append((chart.diagonal_name, in_legend(dash, series_class(NEUTRAL))))
    if chart.limits is not None:
        corner = element("rect", x=-10, y=-6, width=20, height=12, class_="limit")
        alarms, attacks = chart.limits
        label = f"good: at most {100 * attacks:g} % and {100 * alarms:g} %"
        legend.append((label, in_legend(corner, "")))
    return Drawing(
        width=_WIDTH,
        height=_HEIGHT,
        content=join(parts),
        legend=tuple(legend),
        summary=chart.summary,
    )


def _diagonal(chart: LineChart, plane: _Plane) -> list[Markup]:
    """Draw the diagonal as far as both axes reach."""
    if not chart.diagonal:
        return []
    x, y = plane.x_scale, plane.y_scale
    if chart.is_falling:
        left, right = max(x.low, 1 - y.high), min(x.high, 1 - y.low)
        ends = ((left, 1 - left), (right, 1 - right))
    else:
        left, right = max(x.low, y.low), min(x.high, y.high)
        ends = ((left, left), (right, right))
    if left < right:
        return [element("path", d=plane.path(ends), class_="chance")]
    return []


def _good_corner(chart: LineChart, plane: _Plane) -> list[Markup]:
    """Shade where both rates keep their limits."""
    if chart.limits is None:
        return []
    right, top = plane.x(chart.limits[0]), plane.y(chart.limits[1])
    floor = _HEIGHT - _BOTTOM
    corner = element(
        "rect", x=_LEFT, y=top, width=right - _LEFT, height=floor - top, class_="within"
    )
    outline = f"M{_LEFT} {number(top)}H{number(right)}V{floor}"
    return [corner, element("path", d=outline, class_="limit")]


class _Names:
    """Puts names beside marks where nothing else stands."""

    def __init__(self, plane: _Plane, lines: Iterable[Line]) -> None:
        self._plane = plane
        self._taken: list[_Box] = []
        for line in lines:
            if len(line.points) == 1:
                x, y = self._at(line)
                self._taken.append((x - 7, y - 7, x + 7, y + 7))

    def _at(self, line: Line) -> tuple[float, float]:
        return self._plane.x(line.points[0][0]), self._plane.y(line.points[0][1])

    def write(self, line: Line) -> list[Markup]:
        """Return the name of a mark where it finds room, else nothing: the legend has it."""
        x, y = self._at(line)
        text = f"{line.label}{line.hollow}"
        if len(text) > _LONGEST_NAME:
            text = f"{text[: _LONGEST_NAME - 3]}..."
        width = _LETTER * len(text)
        right_side, left_side = x + 10, x - 10 - width
        for left, base in (
            (right_side, y - 6),
            (right_side, y + 15),
            (left_side, y - 6),
            (left_side, y + 15),
            (right_side, y - 22),
            (right_side, y + 31),
        ):
            box = (left, base - 11, left + width, base + 3)
            inside = left > _LEFT and box[2] < _WIDTH and box[1] > 0 and base < _HEIGHT - _BOTTOM
            if inside and not any(_overlap(box, other) for other in self._taken):
                self._taken.append(box)
                return [element("text", text, x=left, y=base, class_="name")]
        return []


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _frame(chart: LineChart, plane: _Plane) -> Markup:
    """Draw both axes with their ticks and titles."""
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    grid, labels = [], []
    for tick in plane.x_scale.ticks:
        x = _LEFT + tick.at * _ACROSS
        grid.append(element("line", x1=x, x2=x, y1=_TOP, y2=bottom))
        labels.append(element("text", tick.label, x=x, y=bottom + 18, text_anchor="middle"))
    for tick in plane.y_scale.ticks:
        y = _HEIGHT - _BOTTOM - tick.at * _UP
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
    """Draw a line with its band; a single point as a mark."""
    if len(line.points) == 1:
        return _mark(line, plane, index)
    parts = []
    if line.band:
        lower, upper = [], []
        for (x, _), (low, high) in zip(line.points, line.band, strict=True):
            lower.append((x, low))
            upper.append((x, high))
        parts.append(element("path", d=f"{plane.path((*upper, *lower[::-1]))}Z", class_="band"))
    return [*parts, element("path", d=plane.path(line.points), class_=f"line d{index % DASHES}")]


def _mark(line: Line, plane: _Plane, index: int) -> list[Markup]:
    """Draw a line of one point: its shape, and how far it may lie off along either axis."""
    x, y = plane.x(line.points[0][0]), plane.y(line.points[0][1])
    whiskers = []
    for low, high in line.band:
        whiskers.append(element("line", x1=x, x2=x, y1=plane.y(low), y2=plane.y(high)))
    for low, high in line.reach:
        whiskers.append(element("line", x1=plane.x(low), x2=plane.x(high), y1=y, y2=y))
    parts = []
    if whiskers:
        parts.append(element("g", *whiskers, class_="whisker"))
    parts.append(element("g", dot(index), transform=f"translate({number(x)} {number(y)})"))
    return parts
