"""Dots with whiskers, one strip for each mark; strips stretch with the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass
from guardmark.reports.figures.scale import Scale, scale_of
from guardmark.reports.figures.svg import (
    NEUTRAL,
    dot,
    element,
    in_legend,
    join,
    percent,
    series_class,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from markupsafe import Markup

    from guardmark.reports.document.blocks import FigureCell, IntervalChart, IntervalMark

STRIP: Final = 24  # height of a strip in pixels
_MIDDLE: Final = STRIP / 2
_MANY: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One mark, drawn."""

    mark: IntervalMark
    opens: bool
    drawing: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalPlot:
    """A chart of dots with whiskers, drawn."""

    scale: Scale
    strips: tuple[Strip, ...]
    thin: tuple[Strip, ...]
    axis: Markup
    legend: tuple[tuple[str, Markup], ...]


def plot_intervals(chart: IntervalChart, series: Mapping[str, int]) -> IntervalPlot:
    """Draw a chart."""
    values: list[float] = []
    for mark in chart.marks:
        for value in (mark.measure.value, mark.measure.low, mark.measure.high, mark.limit):
            if value is not None:
                values.append(value)
    scale = scale_of(chart.unit, values)
    ground = _ground(scale, chart.reference)
    strips: list[Strip] = []
    named: dict[str, Markup] = {}
    label: str | None = None
    for mark in chart.marks:
        index = series.get(mark.series or mark.label, NEUTRAL)
        parts = [ground]
        if mark.limit is not None:
            parts.append(_upright(scale.at(mark.limit), "limit"))
        parts.append(draw_mark(mark.measure, scale, index))
        strips.append(Strip(mark=mark, opens=mark.label != label, drawing=join(parts)))
        if mark.series:
            named[mark.series] = in_legend(dot(index), series_class(index))
        label = mark.label
    clear, thin = _parted(strips)
    ticks = []
    for tick in scale.ticks:
        at = percent(tick.at)
        ticks.append(element("text", tick.label, x=at, y=15, text_anchor="middle"))
    axis, legend = element("g", *ticks, class_="ticks"), tuple(named.items())
    return IntervalPlot(scale=scale, strips=clear, thin=thin, axis=axis, legend=legend)


def _parted(strips: list[Strip]) -> tuple[tuple[Strip, ...], tuple[Strip, ...]]:
    """Set strips that carry little apart, where they would hide those that carry more."""
    firm = {strip.mark.label for strip in strips if not strip.mark.measure.greyed}
    clear = tuple(strip for strip in strips if strip.mark.label in firm)
    thin = tuple(strip for strip in strips if strip.mark.label not in firm)
    if not clear or len(thin) < _MANY:
        return tuple(strips), ()
    return clear, thin


def draw_mark(measure: FigureCell, scale: Scale, index: int) -> Markup:
    """Draw one dot with its whisker."""
    if measure.value is None:
        return join([])
    classes = series_class(index)
    if measure.greyed:
        classes += " few"
    parts = []
    if measure.low is not None and measure.high is not None:
        parts.append(_whisker(scale.at(measure.low), scale.at(measure.high)))
    at = percent(scale.at(measure.value))
    parts.append(element("svg", dot(index), x=at, y="50%", overflow="visible"))
    return element("g", *parts, class_=classes)


def _whisker(low: float, high: float) -> Markup:
    """Draw an interval between two places on the scale, with a cap at each end."""
    parts = [element("line", x1=percent(low), x2=percent(high), y1="50%", y2="50%")]
    for end in (percent(low), percent(high)):
        parts.append(element("line", x1=end, x2=end, y1=_MIDDLE - 4, y2=_MIDDLE + 4))
    return element("g", *parts, class_="whisker")


def _ground(scale: Scale, reference: tuple[float, str] | None) -> Markup:
    """Draw what stands behind each mark: a line at each tick, and the reference."""
    lines = []
    for tick in scale.ticks:
        at = percent(tick.at)
        lines.append(element("line", x1=at, x2=at, y2="100%"))
    parts = [element("g", *lines, class_="grid")]
    if reference is not None:
        parts.append(_upright(scale.at(reference[0]), "ref"))
    return join(parts)


def _upright(share: float, kind: str) -> Markup:
    return element("line", x1=percent(share), x2=percent(share), y2="100%", class_=kind)
