"""Charts as files: PDF beside SVG, and a legend that shows what the lines look like."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence

import pytest

from guardmark.core.errors import ConfigError
from guardmark.reports.document.blocks import Line, LineChart
from guardmark.reports.figures.files import figure_svg, pdf_of
from guardmark.reports.figures.lines import draw_lines

HOSTILE = '#read("/etc/passwd") ") #panic() <script> & %'


def chart(*names: str) -> LineChart:
    """A line for each name."""
    points = ((0.0, 0.0), (0.5, 0.7), (1.0, 1.0))
    lines = tuple(Line(label=name, points=points) for name in names)
    return LineChart(id="c", title=names[0], x_axis="x", y_axis="y", lines=lines)


def test_a_chart_becomes_one_page_that_holds_its_fonts() -> None:
    """A name of the data is drawn, never run; the same chart gives the same bytes."""
    pytest.importorskip("typst")
    reader = pytest.importorskip("pypdf").PdfReader
    drawing = figure_svg(chart(HOSTILE, "ngram"))
    written = pdf_of(drawing)
    assert pdf_of(drawing) == written
    (page,) = reader(io.BytesIO(written)).pages
    assert HOSTILE in page.extract_text()
    fonts = [font.get_object() for font in page["/Resources"]["/Font"].values()]
    below = [font["/DescendantFonts"][0].get_object()["/FontDescriptor"] for font in fonts]
    assert fonts
    assert all({"/FontFile2", "/FontFile3"} & set(each.get_object()) for each in below)
    width, height = (float(each) for each in re.findall(r'(?:width|height)="(\d+)"', drawing)[:2])
    assert float(page.mediabox.width) == pytest.approx(0.75 * width, abs=1)
    assert float(page.mediabox.height) == pytest.approx(0.75 * height, abs=1)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else is tried."""
    monkeypatch.setitem(sys.modules, "typst", None)
    with pytest.raises(ConfigError, match=r"pip install 'guardmark\[pdf\]'"):
        pdf_of("<svg/>")


@pytest.mark.parametrize("order", [("one", "two", "three"), ("three", "one")])
def test_the_legend_shows_the_dashes_of_the_lines(order: Sequence[str]) -> None:
    """A chart without the first defense too, which keeps each one's colour and dashes."""
    drawn = draw_lines(chart(*order), {"one": 0, "two": 1, "three": 2})
    lines = re.findall(r'class="line (d\d)"', drawn.content)
    legend = [dash for _, mark in drawn.legend for dash in re.findall(r'class="line (d\d)"', mark)]
    assert lines == legend
