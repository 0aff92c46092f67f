"""Slices as CSV, at full precision, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

from guardmark.reports.document.safe_text import csv_cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.analysis.defense.slices import SliceRate, SliceTable
    from guardmark.analysis.pipeline.arms import ArmAnalysis
    from guardmark.analysis.pipeline.rows import VariantRates
    from guardmark.analysis.run import DefenseAnalysis, RunAnalysis

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
