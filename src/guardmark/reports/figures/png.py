"""Charts of a document as PNG, through matplotlib (extra `plots`)."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from guardmark.reports.blocks import IntervalChart, LineChart, Unit
from guardmark.reports.figures.scale import scale_of
from guardmark.reports.inert import plain_line

if TYPE_CHECKING:
    from guardmark.reports.blocks import Histogram, Line
    from guardmark.reports.figures.files import Figure

_COLOURS: Final = ("#0b62a8", "#c44e00", "#00795a", "#a3437c", "#806000", "#4b5a6b")
_MARKERS: Final = ("o", "D", "s", "^", "v", "P", "X")
_DASHES: Final = ("-", "--", ":", "-.")
_DPI: Final = 144
_SOFT: Final = "#dfe4e9"


def figure_png(figure: Figure) -> bytes:
    """Draw a chart as a PNG file."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    # parse_math off: a dollar sign in a name is a dollar sign.
    with rc_context({"text.parse_math": False, "font.family": "DejaVu Sans"}):
        canvas = Canvas(figsize=_size(figure), dpi=_DPI, layout="constrained")
        FigureCanvasAgg(canvas)
        if isinstance(figure, IntervalChart):
            _intervals(figure, canvas)
        elif isinstance(figure, LineChart):
            _lines(figure, canvas)
        else:
            _bars(figure, canvas)
        canvas.suptitle(plain_line(figure.title), fontsize=12)
        stored = io.BytesIO()
        canvas.savefig(stored, format="png", metadata={"Software": None})
    return stored.getvalue()


def _size(figure: Figure) -> tuple[float, float]:
    if isinstance(figure, IntervalChart):
        return (8.0, 1.2 + 0.3 * len(figure.marks))
    if isinstance(figure, LineChart):
        return (5.6, 5.4)
    return (6.0, 1.2 + 1.5 * max(1, len(figure.series)))


def _intervals(chart: IntervalChart, canvas: Any) -> None:
    axes = canvas.subplots()
    names = list(dict.fromkeys(mark.series for mark in chart.marks))
    factor = 100 if chart.unit in {Unit.SHARE, Unit.POINTS} else 1
    values = [
        value
        for mark in chart.marks
        for value in (mark.measure.value, mark.measure.low, mark.measure.high)
        if value is not None
    ]
    scale = scale_of(chart.unit, values)
    for row, mark in enumerate(chart.marks):
        measure, index = mark.measure, names.index(mark.series)
        colour = _COLOURS[index % len(_COLOURS)]
        if measure.value is None:
            continue
        if measure.low is not None and measure.high is not None:
            ends = [factor * measure.low, factor * measure.high]
            axes.plot(ends, [row, row], color=colour, marker="|", clip_on=False)
        face = "white" if measure.greyed else colour
        axes.plot(
            [factor * measure.value],
            [row],
            marker=_MARKERS[index % len(_MARKERS)],
            color=colour,
            markerfacecolor=face,
            clip_on=False,
            zorder=3,
        )
    if chart.reference is not None:
        axes.axvline(factor * chart.reference[0], color="#55626f", linestyle="--", linewidth=1)
    labels = [
        plain_line(f"{mark.label}, {mark.series}" if mark.series else mark.label)
        for mark in chart.marks
    ]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(factor * scale.low, factor * scale.high)
    _dress(axes, _titled(chart.axis, scale.unit_words))


def _lines(chart: LineChart, canvas: Any) -> None:
    axes = canvas.subplots()
    wide, high = (100 if unit is Unit.SHARE else 1 for unit in (chart.x_unit, chart.y_unit))
    for place, line in enumerate(chart.lines):
        colour = _COLOURS[place % len(_COLOURS)]
        across = [wide * x for x, _ in line.points]
        axes.plot(
            across,
            [high * y for _, y in line.points],
            color=colour,
            linestyle=_DASHES[place % len(_DASHES)],
            marker=_MARKERS[place % len(_MARKERS)] if len(across) == 1 else None,
            label=plain_line(line.label),
        )
        if len(across) == 1:
            _whiskers(line, axes, colour=colour, factors=(wide, high))
        elif line.band:
            lower, upper = ([high * pair[end] for pair in line.band] for end in (0, 1))
            axes.fill_between(across, lower, upper, color=colour, alpha=0.14, linewidth=0)
    x_scale = scale_of(chart.x_unit, [x for line in chart.lines for x, _ in line.points])
    y_scale = scale_of(chart.y_unit, [y for line in chart.lines for _, y in line.points])
    axes.set_xlim(wide * x_scale.low, wide * x_scale.high)
    axes.set_ylim(high * y_scale.low, high * y_scale.high)
    if chart.diagonal:
        ends = ((0, 1), (0, 1))
        axes.plot(*ends, transform=axes.transAxes, color="#55626f", linestyle=":", linewidth=1)
    axes.legend(frameon=False)
    axes.set_ylabel(plain_line(_titled(chart.y_axis, y_scale.unit_words)))
    _dress(axes, _titled(chart.x_axis, x_scale.unit_words))


def _whiskers(line: Line, axes: Any, *, colour: str, factors: tuple[int, int]) -> None:
    """Draw how far the one point of a line may lie off along either axis."""
    wide, high = factors
    x, y = wide * line.points[0][0], high * line.points[0][1]
    for low, top in line.band:
        axes.plot([x, x], [high * low, high * top], color=colour, linewidth=1.5)
    for low, top in line.reach:
        axes.plot([wide * low, wide * top], [y, y], color=colour, linewidth=1.5)


def _bars(chart: Histogram, canvas: Any) -> None:
    panels = canvas.subplots(max(1, len(chart.series)), 1, sharex=True, squeeze=False)[:, 0]
    widths = [high - low for low, high in pairwise(chart.edges)]
    words = "ms" if chart.unit is Unit.MILLISECONDS else ""
    for axes, (name, counts) in zip(panels, chart.series, strict=False):
        axes.bar(chart.edges[:-1], counts, width=widths, align="edge", color="#3c4d5e")
        axes.set_title(plain_line(f"{name} ({sum(counts):,})"), loc="left", fontsize=10)
        if chart.logarithmic and chart.edges[0] > 0:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_formatter(lambda _value, _: "")
        _dress(axes, "")
    panels[-1].set_xlabel(plain_line(_titled(chart.axis, words)))


def _titled(words: str, unit: str) -> str:
    return f"{words}, {unit}" if unit else words


def _dress(axes: Any, title: str) -> None:
    axes.grid(visible=True, axis="x", color=_SOFT)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel(plain_line(title))
