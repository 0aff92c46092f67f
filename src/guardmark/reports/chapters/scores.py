"""What scores are worth as probabilities: the last part of the section on thresholds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.settings import PARTIAL_MAX_FPR
from guardmark.reports.chapters.candidates import candidates
from guardmark.reports.document.blocks import Cell, Line, LineChart, Table, Tone, Unit
from guardmark.reports.document.cells import columns, count, figure, name, of_estimate, row, words
from guardmark.reports.document.wording import count_text, value_text

if TYPE_CHECKING:
    from guardmark.analysis.defense.scores import ScoreDetails
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Block
    from guardmark.stats.scores.calibration import CalibrationError

_Detailed = list[tuple[str, "ScoreDetails"]]


def score_blocks(analysis: RunAnalysis) -> list[Block]:
    """Write calibration, partial areas, areas against each other and expected costs."""
    detailed = [(each.name, each.scores) for each in candidates(analysis) if each.scores]
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
            "Defenses",
            "Difference",
            "p",
            "Test",
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
            "Defense",
            "Bins",
            "Scores",
            "Samples",
            "Mean score",
            "Attacks among them",
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
