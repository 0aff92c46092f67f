"""Several configurations side by side: one line a configuration and arm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass
from guardmark.reports.document.blocks import Document, Listing, section
from guardmark.reports.document.cells import name, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.pipeline.arms import ScopeCard, VariantRates
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.estimate import Estimate
    from guardmark.reports.document.cells import Value

ALL: Final = "all"
_MEASURED: Final = "measured"
_OUTCOMES: Final = {"failed": "stopped", "skipped_after_probe": "not begun"}
"""What a reader is told of a status of the manifest, whose words are those of minor_bench."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixLine:
    """One configuration of a matrix and what came of it.

    Attributes:
        row_id: Name of the configuration.
        label: What a reader calls it.
        status: How its run ended.
        message: Why it has no figures; empty where it has.
        run_dir: Folder of its run.
        analysis: Its figures, or None where it did not end.
    """

    row_id: str
    label: str
    status: str
    message: str
    run_dir: str
    analysis: RunAnalysis | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRates:
    """Both rates of an arm of one configuration, of one variant or all.

    Attributes:
        arm: Name of the defense, or of the arm.
        scope: `defense` or `system`.
        harm: Attack success rate.
        alarm: False positive rate, or over-refusal of a system.
        variant: The variant, or the word for all of them.
        allowed: How often the guard of an arm allowed, or None without one.
    """

    arm: str
    scope: str
    harm: Estimate
    alarm: Estimate
    variant: str = ALL
    allowed: Estimate | None = None


def matrix_document(lines: Sequence[MatrixLine], *, source: str) -> Document:
    """Lay the rates of every row and arm side by side, over all variants."""
    rows: list[tuple[Value, ...]] = []
    for line in lines:
        label, folder = line.label or line.row_id, name(line.run_dir)
        if line.analysis is None:
            rows.append((label, _OUTCOMES.get(line.status, line.status), "", "", "", "", folder))
        for each in matrix_rates(line.analysis):
            if each.variant == ALL:
                arm = name(each.arm)
                rows.append((label, _MEASURED, arm, each.scope, each.harm, each.alarm, folder))
    folders = [line.run_dir for line in lines if line.analysis is not None]
    compared = None
    if len(folders) > 1:
        compared = Listing(
            id="compare",
            title="Rows differ in more than chance only where a paired comparison says so:",
            lines=(f"guardmark compare {' '.join(folders)}",),
        )
    blocks = section(
        "rows",
        "Rows",
        table_of(
            rows,
            {"Row|Outcome|Arm|Scope|Attack success|False alarms|Run": lambda each: each},
            table_id="matrix",
            title="",
            texts=("Outcome", "Arm", "Scope", "Run"),
        ),
        [f"{line.row_id}: {line.message}" for line in lines if line.message],
        compared,
    )
    return Document(title=f"Matrix: {source}", subtitle="", sections=(blocks,))


def matrix_rates(analysis: RunAnalysis | None) -> Iterator[MatrixRates]:
    """Yield the rates of each arm, over all variants and by variant."""
    if analysis is None:
        return
    if analysis.pipeline is None:
        for defense in analysis.defenses:
            harm, alarm = defense.card.attack_success_rate, defense.card.false_positive_rate
            yield MatrixRates(arm=defense.name, scope="defense", harm=harm, alarm=alarm)
        return
    for arm in analysis.pipeline.arms:
        allowed = None
        if arm.guard is not None:
            allowed = arm.guard.allow
        yield _system_rates(arm.name, ALL, arm.system, allowed)
        for each in arm.variants:
            yield _system_rates(arm.name, each.variant, each, each.allowed)


def _system_rates(
    arm: str, variant: str, rates: ScopeCard | VariantRates, allowed: Estimate | None
) -> MatrixRates:
    return MatrixRates(
        arm=arm,
        scope="system",
        harm=rates.attack_success_rate,
        alarm=rates.over_refusal_rate,
        variant=variant,
        allowed=allowed,
    )
