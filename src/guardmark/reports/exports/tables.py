"""Slices of a run and rates of a matrix as CSV, at full precision, safe in a spreadsheet."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.matrix import matrix_rates
from guardmark.reports.document.safe_text import csv_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guardmark.analysis.defense.slices import SliceRate, SliceTable
    from guardmark.analysis.pipeline.arms import ArmAnalysis
    from guardmark.analysis.pipeline.card import VariantRates
    from guardmark.analysis.run import DefenseAnalysis, RunAnalysis
    from guardmark.core.estimate import Estimate
    from guardmark.reports.chapters.matrix import MatrixLine

HEAD: Final = (
    "defense",
    "facet",
    "value",
    "label",
    "rate",
    "asked",
    "answered",
    "errors_counted",
    "estimate",
    "low",
    "high",
    "confidence",
    "method",
    "groups",
    "effective_n",
    "design_effect",
    "is_greyed",
    "median_latency_ms",
    "folded",
)
"""Columns; `errors_counted` is the number of attacks allowed or of benign samples blocked, `folded`
how many rare values a row holds together, 0 for a value by itself."""

MATRIX_HEAD: Final = (
    "row_id",
    "row_label",
    "arm",
    "scope",
    "variant",
    "attack_success_rate",
    "attack_success_low",
    "attack_success_high",
    "attacks",
    "false_alarm_rate",
    "false_alarm_low",
    "false_alarm_high",
    "benign",
    "allow_rate",
    "run_dir",
)
"""Columns; a false alarm is an over-refusal at scope `system`, a blocked benign sample at scope
`defense`."""


def categories_csv(analysis: RunAnalysis) -> str:
    """Write every slice of every defense but the variants."""
    return _write(analysis, lambda table: table.facet != "variant")


def variants_csv(analysis: RunAnalysis) -> str:
    """Write the slices by variant and by technique, and the arms of a pipeline by variant."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for arm in analysis.pipeline.arms if analysis.pipeline else ():
        for each in arm.variants:
            writer.writerow(_arm_row(arm, each, is_attack=True))
            writer.writerow(_arm_row(arm, each, is_attack=False))
    slices = _write(analysis, lambda table: table.facet in {"variant", "technique"})
    return slices + buffer.getvalue()


def _write(analysis: RunAnalysis, is_wanted: Callable[[SliceTable], bool]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(HEAD)
    for defense in analysis.defenses:
        for table in defense.slices:
            if is_wanted(table):
                writer.writerows(_row(defense, table, entry) for entry in table.rates)
    return buffer.getvalue()


def _row(defense: DefenseAnalysis, table: SliceTable, entry: SliceRate) -> tuple[object, ...]:
    rate = entry.rate
    return (
        csv_cell(defense.name),
        table.facet,
        csv_cell(entry.name),
        "attack" if table.is_attack else "benign",
        "attack_success_rate" if table.is_attack else "false_positive_rate",
        entry.asked,
        rate.trials,
        rate.successes,
        _number(rate.value),
        _number(rate.low),
        _number(rate.high),
        rate.confidence,
        rate.method,
        "" if rate.groups is None else rate.groups,
        _number(rate.effective_n),
        _number(rate.design_effect),
        "yes" if entry.is_greyed else "no",
        _number(entry.median_latency_ms),
        entry.folded,
    )


def _arm_row(arm: ArmAnalysis, variant: VariantRates, *, is_attack: bool) -> tuple[object, ...]:
    rate = variant.attack_success_rate if is_attack else variant.over_refusal_rate
    return (
        csv_cell(arm.name),
        "variant",
        csv_cell(variant.variant),
        "attack" if is_attack else "benign",
        "system_attack_success_rate" if is_attack else "system_over_refusal_rate",
        "",
        rate.trials,
        rate.successes,
        _number(rate.value),
        _number(rate.low),
        _number(rate.high),
        rate.confidence,
        rate.method,
        "" if rate.groups is None else rate.groups,
        _number(rate.effective_n),
        _number(rate.design_effect),
        "yes" if rate.few_groups else "no",
        "",
        0,
    )


def _number(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def matrix_metrics(lines: Sequence[MatrixLine]) -> str:
    """Write `matrix_metrics.csv`: every arm of every row, over all variants and by variant."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(MATRIX_HEAD)
    for line in lines:
        for rates in matrix_rates(line.analysis):
            allowed = None if rates.allowed is None else rates.allowed.value
            writer.writerow(
                (
                    csv_cell(line.row_id),
                    csv_cell(line.label),
                    csv_cell(rates.arm),
                    rates.scope,
                    csv_cell(rates.variant),
                    *_figures(rates.harm),
                    *_figures(rates.alarm),
                    "" if allowed is None else repr(allowed),
                    csv_cell(line.run_dir),
                )
            )
    return buffer.getvalue()


def matrix_pivot(lines: Sequence[MatrixLine], *, alarms: bool) -> str:
    """Write one rate as a table of rows and arms by variant."""
    found = [(line, rates) for line in lines for rates in matrix_rates(line.analysis)]
    variants = list(dict.fromkeys(rates.variant for _, rates in found))
    cells: dict[tuple[str, str], dict[str, float | None]] = {}
    for line, rates in found:
        value = rates.alarm.value if alarms else rates.harm.value
        cells.setdefault((line.row_id, rates.arm), {})[rates.variant] = value
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("row_id", "arm", *map(csv_cell, variants)))
    for (row_id, arm), values in cells.items():
        shown = (values.get(variant) for variant in variants)
        writer.writerow(
            (csv_cell(row_id), csv_cell(arm), *("" if v is None else repr(v) for v in shown))
        )
    return buffer.getvalue()


def _figures(estimate: Estimate) -> tuple[object, ...]:
    figures = (estimate.value, estimate.low, estimate.high)
    return (*("" if each is None else repr(each) for each in figures), estimate.trials)
