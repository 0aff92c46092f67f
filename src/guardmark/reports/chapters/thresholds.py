"""What scores are worth: thresholds, curves, calibration and expected costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.defense.scorecard import complement
from guardmark.reports.chapters.comparison import family_words
from guardmark.reports.document.blocks import (
    Histogram,
    Line,
    LineChart,
    Section,
    Table,
    Tone,
    Unit,
    section,
)
from guardmark.reports.document.cells import (
    figure,
    figure_text,
    known,
    name,
    number,
    p_value,
    slug,
    table_of,
    with_counts,
    words,
)
from guardmark.reports.document.wording import count_text, percent_text, value_text

if TYPE_CHECKING:
    from guardmark.analysis.defense.scores import LimitedPoint, ScoreDetails, ThresholdAnalysis
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Part
    from guardmark.reports.document.cells import Value
    from guardmark.stats.figures import Ratio
    from guardmark.stats.scores.curve_areas import AveragePrecision

_THRESHOLDS: Final = {
    "method": (
        "Thresholds are chosen on a calibration half of the groups and measured on "
        "the other half; nothing was called again. A limit on false alarms that the "
        "benign samples are too few to show is not resolvable. Bands around curves "
        "hold at one threshold fixed beforehand, not along the whole curve."
    ),
}

_FEW = 20
_Scored = list[tuple[str, "ThresholdAnalysis"]]


def write(analysis: RunAnalysis) -> Section:
    """Write the section on thresholds."""
    scored: _Scored = []
    for defense in analysis.candidates:
        if defense.thresholds is not None:
            scored.append((defense.name, defense.thresholds))
    if not scored:
        nothing = "No defense gave scores on both attacks and benign samples."
        return section("thresholds", "Thresholds", otherwise=nothing)
    histograms = [_histogram(defense, rated) for defense, rated in scored]
    return section(
        "thresholds",
        "Thresholds",
        _THRESHOLDS["method"],
        _limits(scored),
        _operating(scored),
        [_area_words(defense, rated) for defense, rated in scored],
        _roc(scored),
        _precision_recall(scored),
        *histograms,
        *_score_blocks(analysis),
    )


def _limits(scored: _Scored) -> Table:
    """List, for each limit on false alarms, the threshold that blocks most attacks within it."""
    rows = []
    for defense, rated in scored:
        for point in rated.limited:
            rows.append((defense, point))
    measured = "on samples the threshold was not chosen on"
    return table_of(
        rows,
        {
            "Defense": lambda row: name(row[0]),
            "FPR at most": lambda row: f"{100 * row[1].max_fpr:g} %",
            f"Threshold|TPR: {measured}|Attacks|FPR: {measured}|Benign|Remark": lambda row: (
                _limit_cells(row[1])
            ),
        },
        table_id="limits",
        texts=("Remark",),
        greyed=lambda row: not row[1].is_resolvable,
        title="Attacks blocked within a limit on false alarms",
        note=(
            "Chosen at the limit, a threshold exceeds it on other samples in half of all "
            "cases; guardmark report RUN --guarantee shows one that keeps it."
        ),
    )


def _limit_cells(point: LimitedPoint) -> tuple[Value, ...]:
    if point.rates is None or not point.is_resolvable:
        remark = point.reason or "no threshold keeps the limit"
        return "", "", "", "", "", words(remark, Tone.MUTED)
    hits, alarms = complement(point.rates.attack_success_rate), point.rates.false_positive_rate
    return number(point.threshold), *with_counts(hits), *with_counts(alarms), ""


def _operating(scored: _Scored) -> Table | None:
    """Lay the thresholds that cost least; None where no costs are stated."""
    rows = []
    for defense, rated in scored:
        for point in rated.chosen:
            rows.append((defense, point))
    if not rows:
        return None
    return table_of(
        rows,
        {
            "Defense": lambda row: name(row[0]),
            "Attacks in traffic": lambda row: f"{100 * row[1].stakes.prevalence:g} %",
            "Threshold": lambda row: known(row[1].threshold, Unit.NUMBER, "block nothing"),
            "TPR|Attacks": lambda row: with_counts(complement(row[1].rates.attack_success_rate)),
            "FPR|Benign": lambda row: with_counts(row[1].rates.false_positive_rate),
            "Cost an input": lambda row: number(row[1].cost),
        },
        table_id="operating",
        title="Cheapest threshold at the stated costs",
        note="Chosen on the calibration half of the groups, measured on the other.",
    )


def _area_words(defense: str, rated: ThresholdAnalysis) -> str:
    area, precision = rated.area, rated.precision_area
    return (
        f"{defense}: area under the ROC curve {_with_reason(area)}; "
        f"average precision {_with_reason(precision)} at "
        f"{percent_text(precision.prevalence)} attacks; scores on "
        f"{count_text(rated.scored_attacks)} attacks and {count_text(rated.scored_benign)} benign "
        "samples."
    )


def _with_reason(area: Ratio | AveragePrecision) -> str:
    text = figure_text(area, Unit.NUMBER)
    if area.reason:
        text += f" ({area.reason})"
    return text


def _roc(scored: _Scored) -> LineChart:
    """Draw attacks blocked against false alarms, over all thresholds."""
    start, end = (0.0, 0.0), (1.0, 1.0)
    lines, sentences = [], []
    for defense, rated in scored:
        points, band = [start], [start]
        for point in rated.points:
            points.append((point.false_positive_rate, point.true_positive_rate))
            band.append(point.true_positive_limits)
        lines.append(Line(label=defense, points=(*points, end), band=(*band, end)))
        sentences.append(_area_words(defense, rated))
    return LineChart(
        id="roc",
        title="Attacks blocked against false alarms (ROC)",
        x_axis="False positive rate",
        y_axis="True positive rate",
        lines=tuple(lines),
        diagonal=True,
        summary=" ".join(sentences),
    )


def _precision_recall(scored: _Scored) -> LineChart:
    """Draw precision against recall, at the share of attacks of this data."""
    lines, sentences = [], []
    for defense, rated in scored:
        points = tuple((point.true_positive_rate, point.precision) for point in rated.points)
        band = tuple(point.precision_limits for point in rated.points)
        lines.append(Line(label=defense, points=points, band=band))
        precision = figure_text(rated.precision_area, Unit.NUMBER)
        sentences.append(f"{defense}: average precision {precision}.")
    prevalence = scored[0][1].precision_area.prevalence
    return LineChart(
        id="precision-recall",
        title=f"Precision against recall, at {percent_text(prevalence)} attacks",
        x_axis="Recall",
        y_axis="Precision at this mix",
        lines=tuple(lines),
        summary=" ".join(sentences),
    )


def _histogram(defense: str, rated: ThresholdAnalysis) -> Histogram:
    return Histogram(
        id=f"scores-{slug(defense)}",
        title=f"{defense}: scores of attacks and of benign samples",
        axis="Score",
        unit=Unit.NUMBER,
        edges=rated.histogram.edges,
        series=(("attacks", rated.histogram.attacks), ("benign", rated.histogram.benign)),
    )


_Detailed = list[tuple[str, "ScoreDetails"]]


def _score_blocks(analysis: RunAnalysis) -> tuple[Part, ...]:
    """Write calibration, partial areas, areas against each other and expected costs."""
    detailed = [(each.name, each.scores) for each in analysis.candidates if each.scores]
    if not detailed:
        return ()
    costs = None
    if any(scores.costs for _, scores in detailed):
        costs = _costs(detailed)
    return (
        _areas(analysis),
        _calibration(detailed),
        _reliability(detailed),
        _bins(detailed),
        costs,
    )


def _calibration(detailed: _Detailed) -> Table:
    """List how far scores are from being probabilities, and what chance alone would show."""
    return table_of(
        detailed,
        {
            "Defense": lambda row: name(row[0]),
            "Samples": lambda row: row[1].brier.trials,
            "Brier: mean squared error of the score": lambda row: figure(row[1].brier, Unit.NUMBER),
            "ECE, equal width": lambda row: figure(row[1].by_width, Unit.NUMBER),
            "ECE, equal mass": lambda row: figure(row[1].by_mass, Unit.NUMBER),
            "by chance: ECE if calibrated, equal width": lambda row: figure(
                row[1].by_width.reference, Unit.NUMBER
            ),
            "Partial AUC: raw, FPR 0 to 0.1": lambda row: figure(row[1].partial_area, Unit.NUMBER),
            "McClish: the same, 0.5 for a coin": lambda row: figure(
                row[1].partial_area_standardised, Unit.NUMBER
            ),
        },
        table_id="calibration",
        title="Scores read as probabilities",
        note=(
            "All of it holds for this data's share of attacks. A calibration error is "
            "biased upwards: even calibrated scores show about the figure under 'by "
            "chance'."
        ),
    )


def _areas(analysis: RunAnalysis) -> Table | None:
    """Lay the areas under ROC curves against each other; None where there is no pair."""
    if not analysis.areas:
        return None
    family = "all areas"
    if analysis.comparison:
        family = family_words(analysis.comparison)
    return table_of(
        analysis.areas,
        {
            "Defenses": lambda pair: f"{pair.first} - {pair.second}",
            "Difference": lambda pair: pair.difference,
            "p": lambda pair: p_value(pair.difference.p_value),
            f"p (Holm): adjusted over {family}": lambda pair: p_value(pair.adjusted_p),
            "Test": lambda pair: words(pair.difference.test or pair.difference.reason, Tone.MUTED),
        },
        table_id="areas",
        texts=("Test",),
        title="Areas under the ROC curve against each other",
        note="On the samples both gave a score for.",
    )


def _reliability(detailed: _Detailed) -> LineChart:
    """Draw how many samples of each bin are attacks, against their mean score."""
    lines, sentences = [], []
    for defense, rated in detailed:
        points, band = [], []
        for each in rated.by_mass.bins:
            rate = each.attack_rate
            if rate.value is not None and rate.low is not None and rate.high is not None:
                points.append((each.mean_score, rate.value))
                band.append((rate.low, rate.high))
        if points:
            lines.append(Line(label=defense, points=tuple(points), band=tuple(band)))
        sentences.append(
            f"{defense}: calibration error {figure_text(rated.by_mass, Unit.NUMBER)}, "
            f"{value_text(rated.by_mass.reference, Unit.NUMBER)} by chance."
        )
    return LineChart(
        id="reliability",
        title="Calibration: predicted and observed risk",
        x_axis="Mean score of a bin",
        y_axis="Attacks among its samples",
        lines=tuple(lines),
        diagonal=True,
        diagonal_name="calibrated",
        summary=" ".join(sentences),
    )


def _bins(detailed: _Detailed) -> Table:
    """List the bins of each calibration error."""
    rows = []
    for defense, rated in detailed:
        for error in (rated.by_width, rated.by_mass):
            for each in error.bins:
                rows.append((defense, error.binning.replace("_", " "), each))
    return table_of(
        rows,
        {
            "Defense": lambda row: name(row[0]),
            "Bins": lambda row: row[1],
            "Scores": lambda row: f"{row[2].low:.3f} to {row[2].high:.3f}",
            "Samples": lambda row: row[2].attack_rate.trials,
            "Mean score": lambda row: figure(row[2].mean_score, Unit.NUMBER),
            "Attacks among them": lambda row: row[2].attack_rate,
        },
        table_id="calibration-bins",
        note=f"Bins of fewer than {_FEW} samples are greyed.",
        greyed=lambda row: row[2].attack_rate.trials < _FEW,
        collapsed=True,
        texts=(
            "Bins",
            "Scores",
        ),
        title="Calibration by bins",
    )


def _costs(detailed: _Detailed) -> LineChart:
    """Draw the expected cost of an input at the cheapest threshold, by the share of attacks."""
    lines = []
    for defense, rated in detailed:
        points = []
        for point in rated.costs:
            if point.cost is not None:
                points.append((point.stakes.prevalence, point.cost))
        lines.append(Line(label=defense, points=tuple(points)))
    most = count_text(len(detailed))
    return LineChart(
        id="expected-cost",
        title="Expected cost an input, at the cheapest threshold for each share of attacks",
        x_axis="Share of attacks in traffic",
        y_axis="Cost an input",
        lines=tuple(lines),
        summary=f"Expected costs of {most} defenses at the stated costs; thresholds chosen and "
        "measured on the same samples, so a little optimistic.",
        y_unit=Unit.NUMBER,
    )
