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
    values = [
        value
        for mark in chart.marks
        for value in (mark.measure.value, mark.measure.low, mark.measure.high, mark.limit)
        if value is not None
    ]
    scale = scale_of(chart.unit, values)
    ground = _ground(scale, chart.reference)
    strips: list[Strip] = []
    named: dict[str, Markup] = {}
    label: str | None = None
    for mark in chart.marks:
        index = series.get(mark.series or mark.label, NEUTRAL)
        limit = [] if mark.limit is None else [_upright(scale.at(mark.limit), "limit")]
        drawing = join([ground, *limit, draw_mark(mark.measure, scale, index)])
        strips.append(Strip(mark=mark, opens=mark.label != label, drawing=drawing))
        if mark.series:
            named[mark.series] = in_legend(dot(index), series_class(index))
        label = mark.label
    clear, thin = _parted(strips)
    ticks = (
        element("text", tick.label, x=percent(tick.at), y=15, text_anchor="middle")
        for tick in scale.ticks
    )
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
    classes = f"{series_class(index)}{' few' if measure.greyed else ''}"
    parts = [_whisker(measure, scale)] if None not in (measure.low, measure.high) else []
    at = percent(scale.at(measure.value))
    parts.append(element("svg", dot(index), x=at, y="50%", overflow="visible"))
    return element("g", *parts, class_=classes)


def _whisker(measure: FigureCell, scale: Scale) -> Markup:
    low, high = (percent(scale.at(bound or 0.0)) for bound in (measure.low, measure.high))
    line = element("line", x1=low, x2=high, y1="50%", y2="50%")
    caps = (element("line", x1=end, x2=end, y1=_MIDDLE - 4, y2=_MIDDLE + 4) for end in (low, high))
    return element("g", line, *caps, class_="whisker")


def _ground(scale: Scale, reference: tuple[float, str] | None) -> Markup:
    lines = [
        element("line", x1=percent(tick.at), x2=percent(tick.at), y2="100%") for tick in scale.ticks
    ]
    parts = [element("g", *lines, class_="grid")]
    if reference is not None:
        parts.append(_upright(scale.at(reference[0]), "ref"))
    return join(parts)


def _upright(share: float, kind: str) -> Markup:
    return element("line", x1=percent(share), x2=percent(share), y2="100%", class_=kind)
