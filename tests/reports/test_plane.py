"""Charts over two axes: defenses in the plane of their errors, curves with their bands."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from tests.analysis.small_runs import Runs
from tests.reports.small_reports import PLANNED, many

from guardmark.analysis.run import RunAnalysis, analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.reports.chapters import thresholds
from guardmark.reports.chapters.comparison import draw_plane
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import Line, LineChart
from guardmark.reports.figures.files import figure_svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def analysis(runs: Runs) -> RunAnalysis:
    """A run of several defenses with hostile texts and names."""
    with runs.opened(many(), PLANNED) as reader:
        return analyse_run(reader, AnalysisSettings.of(reader.manifest()))


def plane_of(analysis: RunAnalysis) -> LineChart:
    """The chart on the cover."""
    (found,) = (
        block
        for block in build_document(analysis).lead
        if isinstance(block, LineChart) and block.id == "plane"
    )
    return found


def test_each_candidate_stands_at_its_two_rates(analysis: RunAnalysis) -> None:
    """The mark lies at FPR and ASR, the whiskers span both intervals."""
    marks = {line.label: line for line in plane_of(analysis).lines}
    shown = [each for each in analysis.defenses if not each.is_baseline]
    assert marks.keys() <= {each.name for each in shown}
    for each in shown:
        through, alarms = each.card.attack_success_rate, each.card.false_positive_rate
        if through.value is None or alarms.value is None:
            assert each.name not in marks, "undefined is not zero"
            continue
        mark = marks[each.name]
        assert mark.points[0] == pytest.approx((alarms.value, through.value))
        assert mark.band[0] == pytest.approx((through.low, through.high))
        assert mark.reach[0] == pytest.approx((alarms.low, alarms.high))


def test_who_cannot_see_it_reads_the_same(analysis: RunAnalysis) -> None:
    """The summary has every mark with both figures, and who is worth choosing."""
    chart = plane_of(analysis)
    for line in chart.lines:
        assert f"{line.label}: ASR " in chart.summary
    assert len(re.findall(r"FPR ", chart.summary)) == len(chart.lines)


def test_a_mark_is_drawn_with_whiskers_along_both_axes() -> None:
    """A line of one point has a shape of its own, one upright and one level whisker."""
    line = Line(label="one", points=((0.1, 0.8),), band=((0.7, 0.9),), reach=((0.05, 0.2),))
    other = replace(line, label="two", points=((0.3, 0.9),))
    chart = LineChart(id="plane", title="Plane", x_axis="x", y_axis="y", lines=(line, other))
    root = ET.fromstring(figure_svg(chart))  # noqa: S314 - our own drawing
    whiskers = [each for each in root.iter(f"{SVG}g") if each.get("class") == "whisker"]
    assert [len(each) for each in whiskers] == [2, 2]
    upright, level = whiskers[0]
    assert upright.get("x1") == upright.get("x2")
    assert level.get("y1") == level.get("y2")
    dots = [each.get("d") for each in root.iter(f"{SVG}path") if each.get("class") == "dot"]
    assert len(set(dots)) == 2, "told apart without colour, in the drawing and in the legend"
    assert len(dots) == 4


def test_curves_and_calibration_are_drawn_with_bands(analysis: RunAnalysis) -> None:
    """Each line of ROC, precision-recall and calibration has a band around it."""
    charts = {
        block.id: block
        for block in thresholds.write(analysis).blocks
        if isinstance(block, LineChart)
    }
    for chart in (charts["roc"], charts["precision-recall"], charts["reliability"]):
        assert chart.lines
        for line in chart.lines:
            assert len(line.band) == len(line.points)
            for (_, y), (low, high) in zip(line.points, line.band, strict=True):
                assert low - 1e-9 <= y <= high + 1e-9
    assert charts["reliability"].diagonal_name == "calibrated"


def test_nothing_is_drawn_without_both_rates() -> None:
    """A plane of nobody is no chart."""
    assert draw_plane((), ()) is None


def test_rewritten_attacks_are_a_hollow_mark_at_the_same_false_alarms(
    analysis: RunAnalysis,
) -> None:
    """Who looks at the first mark alone would take a defense for better than it is."""
    each = analysis.candidates[0]
    rewritten = replace(each.card.attack_success_rate, successes=1, trials=2, low=0.2, high=0.8)
    chart = draw_plane([(each.name, each.card)], adapted={each.name: rewritten}, limits=(0.05, 0.1))
    assert chart is not None
    plain, hollow = chart.lines
    assert (plain.hollow, hollow.hollow) == ("", ", rewritten")
    assert hollow.points == ((plain.points[0][0], 0.5),)
    root = ET.fromstring(figure_svg(chart))  # noqa: S314 - our own drawing
    kinds = [str(element.get("class")) for element in root.iter()]
    assert any(kind.endswith(" few") for kind in kinds), "the hollow one"
    assert kinds.count("within") == 1, "the corner within both limits"
    assert f"Rewritten attacks: 50.0 % [20.0, 80.0] get through {each.name}." in chart.summary


def test_names_stand_beside_marks_where_they_find_room() -> None:
    """Of marks at one place only some are named; the legend has all."""
    lines = tuple(Line(label=f"defense {n}", points=((0.1, 0.2),)) for n in range(12))
    chart = LineChart(id="plane", title="Plane", x_axis="x", y_axis="y", lines=lines)
    root = ET.fromstring(figure_svg(chart))  # noqa: S314 - our own drawing
    texts = [element.text for element in root.iter(f"{SVG}text") if element.get("class") == "name"]
    assert 0 < len(texts) < 12
    assert len(set(texts)) == len(texts)
