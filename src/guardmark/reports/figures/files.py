"""Charts of a document as files of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.document.blocks import Histogram, IntervalChart, LineChart
from guardmark.reports.document.wording import measure_text
from guardmark.reports.figures.bars import WIDTH as BARS_WIDTH
from guardmark.reports.figures.bars import describe_histogram, draw_histogram, histogram_height
from guardmark.reports.figures.interval import STRIP, plot_intervals
from guardmark.reports.figures.lines import DASHES, draw_lines
from guardmark.reports.figures.lines import HEIGHT as LINES_HEIGHT
from guardmark.reports.figures.lines import WIDTH as LINES_WIDTH
from guardmark.reports.figures.svg import (
    NEUTRAL,
    element,
    fit_for_files,
    join,
    series_class,
    shape_path,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from markupsafe import Markup

    from guardmark.reports.figures.interval import IntervalPlot

Figure = IntervalChart | LineChart | Histogram
"""A block that can be drawn."""

_HEAD: Final = 40
_LABELS, _STRIPS, _FIGURES, _GAP = 190, 400, 270, 20
_LEGEND: Final = 20
_LONGEST: Final = 27
_FONT: Final = "font-family:system-ui,sans-serif;font-size:13px"
_STYLE: Final = (
    f"text{{{_FONT};fill:#17212b}}.title{{font-size:15px;font-weight:600}}"
    ".ticks text,.axis text,.peak,.soft{fill:#55626f}"
    ".grid line{stroke:#dfe4e9}.base{stroke:#55626f}"
    ".ref,.chance{stroke:#55626f;stroke-dasharray:4 4;fill:none}"
    ".whisker line{stroke:currentColor;stroke-width:2}"
    ".dot{fill:currentColor;stroke:#fff}"
    ".line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}"
    ".d1{stroke-dasharray:8 3}.d2{stroke-dasharray:3 3}.d3{stroke-dasharray:10 3 3 3}"
    ".band{fill:currentColor;opacity:.14}.h0{fill:#3c4d5e}.h1{fill:#93a3b3}"
    ".s0{color:#0b62a8}.s1{color:#c44e00}.s2{color:#00795a}.s3{color:#a3437c}"
    ".s4{color:#806000}.s5{color:#4b5a6b}.sn{color:#17212b}.sb{color:#55626f}"
    "g.few .whisker line{stroke-dasharray:3 2}g.few .dot{fill:#fff;stroke:currentColor}"
)


def figure_svg(figure: Figure, series: Mapping[str, int] | None = None) -> str:
    """Draw a chart as an SVG file that needs nothing outside itself."""
    chosen = _series(figure) if series is None else series
    if isinstance(figure, IntervalChart):
        plot = plot_intervals(figure, chosen)
        width = _LABELS + _STRIPS + _FIGURES
        rows = len(plot.strips) + len(plot.thin)
        body, height, words = _strips(figure, plot), (rows + 2) * STRIP, ""
    elif isinstance(figure, LineChart):
        body = join([draw_lines(figure, chosen), _legend(figure, chosen)])
        width, height = LINES_WIDTH, LINES_HEIGHT + _LEGEND * len(figure.lines)
        words = figure.summary
    else:
        body, width, height = draw_histogram(figure), BARS_WIDTH, histogram_height(figure)
        words = describe_histogram(figure)
    content = [
        element("title", figure.title),
        element("desc", words),
        element("style", _STYLE),
        element("rect", width="100%", height="100%", fill="#fff"),
        element("text", figure.title, x=0, y=18, class_="title"),
        element("g", body, transform=f"translate(0 {_HEAD - 8})"),
    ]
    return fit_for_files(
        element(
            "svg",
            *content,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"-8 -4 {width + 16} {height + _HEAD + 8}",
            width=width + 16,
            height=height + _HEAD + 8,
            role="img",
        )
    )


def _series(figure: Figure) -> dict[str, int]:
    if isinstance(figure, IntervalChart):
        names = [mark.series for mark in figure.marks if mark.series]
    elif isinstance(figure, LineChart):
        names = [line.label for line in figure.lines]
    else:
        names = []
    return {name: index for index, name in enumerate(dict.fromkeys(names))}


def _legend(chart: LineChart, series: Mapping[str, int]) -> Markup:
    parts = []
    for place, line in enumerate(chart.lines):
        y = LINES_HEIGHT + _LEGEND * place + 8
        if len(line.points) == 1:
            dot = element("path", d=shape_path(place), class_="dot")
            stroke = element("g", dot, transform=f"translate(70 {y})")
        else:
            stroke = element("line", x1=56, x2=84, y1=y, y2=y, class_=f"line d{place % DASHES}")
        name = element("text", line.label, x=92, y=y + 4.5)
        classes = series_class(series.get(line.label, NEUTRAL))
        parts.append(element("g", stroke, name, class_=classes))
    return join(parts)


def _strips(chart: IntervalChart, plot: IntervalPlot) -> Markup:
    parts = []
    rows = (*plot.strips, *plot.thin)
    for row, strip in enumerate(rows):
        mark, middle = strip.mark, row * STRIP + STRIP / 2 + 4.5
        label = f"{mark.label}, {mark.series}" if mark.series else mark.label
        words = f"{measure_text(mark.measure)}  {mark.note}".rstrip()
        label = label if len(label) <= _LONGEST else f"{label[: _LONGEST - 3]}..."
        parts.append(element("text", label, x=0, y=middle))
        parts.append(
            element(
                "svg",
                strip.drawing,
                x=_LABELS,
                y=row * STRIP,
                width=_STRIPS,
                height=STRIP,
                overflow="visible",
            )
        )
        parts.append(element("text", words, x=_LABELS + _STRIPS + _GAP, y=middle, class_="soft"))
    floor = len(rows) * STRIP
    axis = element(
        "svg", plot.axis, x=_LABELS, y=floor, width=_STRIPS, height=STRIP, overflow="visible"
    )
    words = f"{chart.axis}, {plot.scale.unit_words}" if plot.scale.unit_words else chart.axis
    name = element(
        "text",
        words,
        x=_LABELS + _STRIPS / 2,
        y=floor + STRIP + 12,
        text_anchor="middle",
        class_="soft",
    )
    return join([*parts, axis, name])
