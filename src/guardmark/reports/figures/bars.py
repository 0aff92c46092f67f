"""Histograms: one panel for each series over a common axis."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from guardmark.reports.document.wording import count_text, value_text
from guardmark.reports.figures.scale import Scale, scale_between
from guardmark.reports.figures.svg import Drawing, axes, element, join, number

if TYPE_CHECKING:
    from markupsafe import Markup

    from guardmark.reports.document.blocks import Histogram

_WIDTH, _PANEL, _HEAD, _FOOT, _SIDE = 440, 104, 24, 44, 18


def draw_histogram(chart: Histogram) -> Drawing:
    """Draw a histogram, each panel as high as its fullest bin, so that shapes compare."""
    scale = scale_between(
        chart.unit, chart.edges[0], chart.edges[-1], logarithmic=chart.logarithmic
    )
    bottom = max(1, len(chart.series)) * _PANEL
    parts = [_axis(chart, scale, bottom)]
    for index, (name, counts) in enumerate(chart.series):
        floor = (index + 1) * _PANEL
        parts.append(element("g", *_head(name, counts, floor)))
        outline = _bars(counts, chart.edges, scale=scale, floor=floor)
        parts.append(element("path", d=outline, class_=f"bars h{index % 2}"))
    return Drawing(
        width=_WIDTH, height=bottom + _FOOT, content=join(parts), summary=_summary(chart)
    )


def _summary(chart: Histogram) -> str:
    """Say in words what a histogram shows, for who cannot see it."""
    sentences = []
    for name, counts in chart.series:
        total = sum(counts)
        if not total:
            sentences.append(f"{name}: none.")
            continue
        reached = list(accumulate(counts))
        middle = next(i for i, upto in enumerate(reached) if 2 * upto >= total)
        low, high = (value_text(edge, chart.unit) for edge in chart.edges[middle : middle + 2])
        sentences.append(f"{name}: {count_text(total)}, the median lies between {low} and {high}.")
    return " ".join(sentences)


def _bars(counts: tuple[int, ...], edges: tuple[float, ...], *, scale: Scale, floor: float) -> str:
    """Return the outline of all bars of a panel; one path keeps a page small."""
    most, outline = max(counts, default=0), ["M0 0"]
    for count, (low, high) in zip(counts, pairwise(edges), strict=True):
        if count:
            left, right = _across(scale.at(low)), _across(scale.at(high))
            height, width = (_PANEL - _HEAD) * count / most, max(0.5, right - left - 1)
            outline.append(f"M{number(left + 0.5)} {number(floor)}v{number(-height)}")
            outline.append(f"h{number(width)}v{number(height)}z")
    return "".join(outline)


def _head(name: str, counts: tuple[int, ...], floor: float) -> list[Markup]:
    total, y, right = sum(counts), floor - _PANEL + 16, _WIDTH - _SIDE
    parts = [
        element("line", x1=_SIDE, x2=right, y1=floor, y2=floor, class_="base"),
        element("text", f"{name} ({count_text(total)})", x=_SIDE, y=y, class_="name"),
    ]
    if total:
        peak = f"fullest bin {count_text(max(counts))}"
        parts.append(element("text", peak, x=right, y=y, text_anchor="end", class_="peak"))
    return parts


def _axis(chart: Histogram, scale: Scale, bottom: int) -> Markup:
    """Draw the axis below the bars, with a line at each tick."""
    grid, labels = [], []
    for tick in scale.ticks:
        x = _across(tick.at)
        grid.append(element("line", x1=x, x2=x, y1=_HEAD, y2=bottom))
        labels.append(element("text", tick.label, x=x, y=bottom + 17, text_anchor="middle"))
    words = scale.titled(chart.axis)
    if scale.logarithmic:
        words += " (logarithmic)"
    title = element("text", words, x=_WIDTH / 2, y=bottom + 37, text_anchor="middle")
    return axes(grid, labels, title)


def _across(share: float) -> float:
    return _SIDE + share * (_WIDTH - 2 * _SIDE)
