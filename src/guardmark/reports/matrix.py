"""Several configurations side by side: one table, one line a configuration and arm."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.reports.document.cells import of_estimate
from guardmark.reports.document.safe_text import csv_cell, markdown_line
from guardmark.reports.document.wording import measure_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.estimate import Estimate

ALL: Final = "all"
HEAD: Final = (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixLine:
    """One configuration of a matrix and what came of it."""

    row_id: str
    label: str
    status: str
    message: str
    run_dir: str
    analysis: RunAnalysis | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    arm: str
    scope: str
    variant: str
    harm: Estimate
    alarm: Estimate
    allowed: Estimate | None


def matrix_manifest(lines: Sequence[MatrixLine], *, source: str) -> str:
    """Write `manifest.json`: what was run, and how each row ended."""
    rows = [
        {
            "id": line.row_id,
            "label": line.label,
            "status": line.status,
            "message": line.message,
            "run_dir": line.run_dir,
        }
        for line in lines
    ]
    return json.dumps({"matrix": source, "rows": rows}, indent=2, ensure_ascii=False) + "\n"


def matrix_metrics(lines: Sequence[MatrixLine]) -> str:
    """Write `matrix_metrics.csv`: every arm of every row, over all variants and by variant."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(HEAD)
    for line in lines:
        for rates in _rates(line.analysis):
            allowed = None if rates.allowed is None else rates.allowed.value
            writer.writerow(
                (
                    csv_cell(line.row_id),
                    csv_cell(line.label),
                    csv_cell(rates.arm),
                    rates.scope,
                    csv_cell(rates.variant),
                    *_numbers(rates.harm),
                    *_numbers(rates.alarm),
                    "" if allowed is None else repr(allowed),
                    csv_cell(line.run_dir),
                )
            )
    return buffer.getvalue()


def matrix_pivot(lines: Sequence[MatrixLine], *, alarms: bool) -> str:
    """Write one rate as a table of rows and arms by variant."""
    found = [(line, rates) for line in lines for rates in _rates(line.analysis)]
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


def matrix_report(lines: Sequence[MatrixLine], *, source: str) -> str:
    """Write `matrix_report.md`."""
    return "\n".join(_report(lines, source)) + "\n"


def _report(lines: Sequence[MatrixLine], source: str) -> Iterator[str]:
    yield f"# Matrix: {markdown_line(source)}"
    yield ""
    yield "| Row | Arm | Scope | Attack success | False alarms | Run |"
    yield "|---|---|---|---:|---:|---|"
    for line in lines:
        name = markdown_line(line.label or line.row_id)
        if line.analysis is None:
            yield f"| {name} |  |  | {line.status} |  | {markdown_line(line.run_dir)} |"
        for rates in _rates(line.analysis):
            if rates.variant == ALL:
                harm, alarm = (measure_text(of_estimate(e)) for e in (rates.harm, rates.alarm))
                cells = (name, markdown_line(rates.arm), rates.scope, harm, alarm)
                yield f"| {' | '.join(cells)} | {markdown_line(line.run_dir)} |"
    for line in lines:
        if line.message:
            yield f"\n{markdown_line(line.row_id)}: {markdown_line(line.message)}"
    folders = " ".join(line.run_dir for line in lines if line.analysis is not None)
    yield ""
    yield "Rows differ in more than chance only where a paired comparison says so:"
    yield f"`guardmark compare {folders}`".replace("\n", " ")


def _rates(analysis: RunAnalysis | None) -> Iterator[_Rates]:
    if analysis is None:
        return
    if analysis.pipeline is None:
        for defense in analysis.defenses:
            card = defense.card
            yield _Rates(
                arm=defense.name,
                scope="defense",
                variant=ALL,
                harm=card.attack_success_rate,
                alarm=card.false_positive_rate,
                allowed=None,
            )
        return
    for arm in analysis.pipeline.arms:
        yield _Rates(
            arm=arm.name,
            scope="system",
            variant=ALL,
            harm=arm.system.attack_success_rate,
            alarm=arm.system.over_refusal_rate,
            allowed=None if arm.guard is None else arm.guard.allow,
        )
        for each in arm.variants:
            yield _Rates(
                arm=arm.name,
                scope="system",
                variant=each.variant,
                harm=each.attack_success_rate,
                alarm=each.over_refusal_rate,
                allowed=each.allowed,
            )


def _numbers(estimate: Estimate) -> tuple[object, ...]:
    figures = (estimate.value, estimate.low, estimate.high)
    return (*("" if each is None else repr(each) for each in figures), estimate.trials)
