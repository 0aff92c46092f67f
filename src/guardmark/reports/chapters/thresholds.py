"""What scores are worth: thresholds, curves, calibration and expected costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.defense.scorecard import complement
from guardmark.analysis.settings import PARTIAL_MAX_FPR
from guardmark.reports.document.blocks import (
    Bullets,
    Cell,
    Histogram,
    Line,
    LineChart,
    Paragraph,
    Section,
    Table,
    Tone,
    Unit,
    empty_section,
)
from guardmark.reports.document.cells import (
    columns,
    count,
    figure,
    name,
    of_estimate,
    of_ratio,
    row,
    slug,
    words,
)
from guardmark.reports.document.wording import count_text, percent_text, value_text

if TYPE_CHECKING:
    from guardmark.analysis.defense.scores import LimitedPoint, ScoreDetails, ThresholdAnalysis
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Block
    from guardmark.stats.scores.calibration import CalibrationError


_Scored = list[tuple[str, "ThresholdAnalysis"]]


def write(analysis: RunAnalysis) -> Section:
    """Write the section on thresholds."""
    scored = [
        (each.name, each.thresholds) for each in analysis.candidates if each.thresholds is not None
    ]
    if not scored:
        text = "No defense gave scores on both attacks and benign samples."
        return empty_section("thresholds", "Thresholds", text)
    blocks: list[Block] = [
        Paragraph(
            text="Thresholds are chosen on a calibration half of the groups and measured on the "
            "other half; nothing was called again. A limit on false alarms that the benign "
            "samples are too few to show is not resolvable. Bands around curves hold at one "
            "threshold fixed beforehand, not along the whole curve."
        ),
        _limits(scored),
        Bullets(lines=tuple(_area_words(each, found) for each, found in scored)),
        _roc(scored),
        _precision_recall(scored),
        *(_histogram(each, found) for each, found in scored),
    ]
    if any(found.chosen for _, found in scored):
        blocks.insert(2, _operating(scored))
    blocks += score_blocks(analysis)
    return Section(id="thresholds", title="Thresholds", blocks=tuple(blocks))


def _limits(scored: _Scored) -> Table:
    rows = [
        row(*_limit_cells(defense, point), greyed=not point.is_resolvable)
        for defense, found in scored
        for point in found.limited
    ]
    return Table(
        id="limits",
        title="Attacks blocked within a limit on false alarms",
        columns=columns(
            *("Defense", "FPR at most", "Threshold", "TPR", "FPR", "Remark"),
            texts=("Remark",),
            meanings={
                "TPR": "on samples the threshold was not chosen on",
                "FPR": "on samples the threshold was not chosen on",
            },
        ),
        rows=tuple(rows),
    )


def _limit_cells(defense: str, point: LimitedPoint) -> tuple[Cell, ...]:
    limit = words(f"{100 * point.max_fpr:g} %")
    if point.rates is None or not point.is_resolvable:
        remark = point.reason or "no threshold keeps the limit"
        return (name(defense), limit, words(""), words(""), words(""), words(remark, Tone.MUTED))
    return (
        name(defense),
        limit,
        figure(point.threshold, Unit.NUMBER),
        of_estimate(complement(point.rates.attack_success_rate)),
        of_estimate(point.rates.false_positive_rate),
        words(""),
    )


def _operating(scored: _Scored) -> Table:
    rows = [
        row(
            name(defense),
            f"{100 * point.stakes.prevalence:g} %",
            "block nothing" if point.threshold is None else figure(point.threshold, Unit.NUMBER),
            figure(point.true_positive_rate, Unit.SHARE),
            figure(point.false_positive_rate, Unit.SHARE),
            figure(point.cost, Unit.NUMBER),
        )
        for defense, found in scored
        for point in found.chosen
    ]
    return Table(
        id="operating",
        title="Cheapest threshold at the stated costs",
        columns=columns(
            *("Defense", "Attacks in traffic", "Threshold", "TPR", "FPR", "Cost an input")
        ),
        rows=tuple(rows),
        note="Chosen on the calibration half of the groups, measured on the other.",
    )


def _area_words(defense: str, found: ThresholdAnalysis) -> str:
    area, precision = found.area, found.precision_area
    text = f"{defense}: area under the ROC curve {_area_text(found)}"
    if area.reason:
        text += f" ({area.reason})"
    text += (
        f"; average precision {value_text(precision.value, Unit.NUMBER)} at "
        f"{percent_text(precision.prevalence)} attacks"
    )
    scored = f"{count_text(found.scored_attacks)} attacks and {count_text(found.scored_benign)}"
    return f"{text}; scores on {scored} benign samples."


def _area_text(found: ThresholdAnalysis) -> str:
    measure = of_ratio(found.area)
    if measure.value is None or measure.low is None or measure.high is None:
        return "undefined" if measure.value is None else f"{measure.value:.3f}"
    return f"{measure.value:.3f} [{measure.low:.3f}, {measure.high:.3f}]"


def _roc(scored: _Scored) -> LineChart:
    lines = [
        Line(
            label=defense,
            points=(
                (0.0, 0.0),
                *((p.false_positive_rate, p.true_positive_rate) for p in found.points),
                (1.0, 1.0),
            ),
            band=((0.0, 0.0), *(p.true_positive_limits for p in found.points), (1.0, 1.0)),
        )
        for defense, found in scored
    ]
    return LineChart(
        id="roc",
        title="Attacks blocked against false alarms (ROC)",
        x_axis="False positive rate",
        y_axis="True positive rate",
        lines=tuple(lines),
        diagonal=True,
        summary=" ".join(_area_words(defense, found) for defense, found in scored),
    )


def _precision_recall(scored: _Scored) -> LineChart:
    lines = [
        Line(
            label=defense,
            points=tuple((p.true_positive_rate, p.precision) for p in found.points),
            band=tuple(p.precision_limits for p in found.points),
        )
        for defense, found in scored
    ]
    prevalence = scored[0][1].precision_area.prevalence
    return LineChart(
        id="precision-recall",
        title=f"Precision against recall, at {percent_text(prevalence)} attacks",
        x_axis="Recall",
        y_axis="Precision at this mix",
        lines=tuple(lines),
        summary=" ".join(
            f"{defense}: average precision {value_text(found.precision_area.value, Unit.NUMBER)}."
            for defense, found in scored
        ),
    )


def _histogram(defense: str, found: ThresholdAnalysis) -> Histogram:
    return Histogram(
        id=f"scores-{slug(defense)}",
        title=f"{defense}: scores of attacks and of benign samples",
        axis="Score",
        unit=Unit.NUMBER,
        edges=found.histogram.edges,
        series=(("attacks", found.histogram.attacks), ("benign", found.histogram.benign)),
    )


_Detailed = list[tuple[str, "ScoreDetails"]]


def score_blocks(analysis: RunAnalysis) -> list[Block]:
    """Write calibration, partial areas, areas against each other and expected costs."""
    detailed = [(each.name, each.scores) for each in analysis.candidates if each.scores]
    if not detailed:
        return []
    blocks: list[Block] = [_quality(detailed), _reliability(detailed), _bins(detailed)]
    if analysis.areas:
        blocks.insert(0, _areas(analysis))
    if any(found.costs for _, found in detailed):
        blocks.append(_costs(detailed))
    return blocks


def _areas(analysis: RunAnalysis) -> Table:
    rows = [
        row(
            f"{pair.first} - {pair.second}",
            pair.difference,
            figure(pair.difference.p_value, Unit.P_VALUE),
            words(pair.difference.test or pair.difference.reason, Tone.MUTED),
        )
        for pair in analysis.areas
    ]
    return Table(
        id="areas",
        title="Areas under the ROC curve against each other",
        columns=columns(
            *("Defenses", "Difference", "p", "Test"),
            texts=("Test",),
            meanings={"p": "not adjusted for the number of pairs"},
        ),
        rows=tuple(rows),
        note="On the samples both gave a score for.",
    )


def _quality(detailed: _Detailed) -> Table:
    rows = [
        row(
            name(defense),
            *(
                figure(value, Unit.NUMBER)
                for value in (
                    found.brier.value,
                    found.brier.reliability,
                    found.brier.resolution,
                    found.brier.uncertainty,
                    found.by_width.value,
                    found.by_mass.value,
                    found.by_width.reference,
                    found.partial_area.value,
                    found.partial_area_standardised.value,
                )
            ),
        )
        for defense, found in detailed
    ]
    return Table(
        id="calibration",
        title="Scores read as probabilities",
        columns=columns(
            *(
                "Defense",
                "Brier",
                "Reliability",
                "Resolution",
                "Uncertainty",
                "ECE, equal width",
                "ECE, equal mass",
                "by chance",
                "Partial AUC",
                "McClish",
            ),
            meanings={
                "Brier": "mean squared error of the score",
                "Reliability": "Murphy: 0 is calibrated",
                "Resolution": "Murphy: higher tells more apart",
                "Uncertainty": "Murphy: of the mix itself",
                "by chance": "ECE if calibrated, equal width",
                "Partial AUC": f"raw, FPR 0 to {PARTIAL_MAX_FPR:g}",
                "McClish": "the same, 0.5 for a coin",
            },
        ),
        rows=tuple(rows),
        note="All of it holds for this data's share of attacks. A calibration error is biased "
        "upwards: even calibrated scores show about the figure under 'by chance'.",
    )


def _reliability(detailed: _Detailed) -> LineChart:
    lines = []
    for defense, found in detailed:
        kept = [
            (each.mean_score, rate.value, (rate.low, rate.high))
            for each in found.by_mass.bins
            if (rate := each.attack_rate).value is not None
            and rate.low is not None
            and rate.high is not None
        ]
        points = tuple((score, share) for score, share, _ in kept)
        bands = tuple(limits for _, _, limits in kept)
        if points:
            lines.append(Line(label=defense, points=points, band=bands))
    errors = (
        f"{defense}: calibration error {value_text(found.by_mass.value, Unit.NUMBER)}, "
        f"{value_text(found.by_mass.reference, Unit.NUMBER)} by chance."
        for defense, found in detailed
    )
    return LineChart(
        id="reliability",
        title="Calibration: what scores claim against what is so",
        x_axis="Mean score of a bin",
        y_axis="Attacks among its samples",
        lines=tuple(lines),
        diagonal=True,
        diagonal_name="calibrated",
        summary=" ".join(errors),
    )


def _bins(detailed: _Detailed) -> Table:
    rows = [
        row(*cells, greyed=cells_count < _FEW)
        for defense, found in detailed
        for error in (found.by_width, found.by_mass)
        for cells, cells_count in _bin_rows(defense, error)
    ]
    return Table(
        id="calibration-bins",
        title="Calibration by bins",
        columns=columns(
            *("Defense", "Bins", "Scores", "Samples", "Mean score", "Attacks among them"),
            texts=("Bins", "Scores"),
        ),
        rows=tuple(rows),
        note=f"Bins of fewer than {_FEW} samples are greyed.",
        collapsed=True,
    )


_FEW = 20


def _bin_rows(defense: str, error: CalibrationError) -> list[tuple[tuple[Cell, ...], int]]:
    return [
        (
            (
                name(defense),
                words(error.binning.replace("_", " ")),
                words(f"{each.low:.3f} to {each.high:.3f}"),
                count(each.attack_rate.trials),
                figure(each.mean_score, Unit.NUMBER),
                of_estimate(each.attack_rate),
            ),
            each.attack_rate.trials,
        )
        for each in error.bins
    ]


def _costs(detailed: _Detailed) -> LineChart:
    lines = [
        Line(
            label=defense,
            points=tuple(
                (point.stakes.prevalence, point.cost)
                for point in found.costs
                if point.cost is not None
            ),
        )
        for defense, found in detailed
    ]
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
