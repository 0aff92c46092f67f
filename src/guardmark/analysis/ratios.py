"""Precision, F1 and balanced error: figures that are no plain rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.estimate import Ratio

if TYPE_CHECKING:
    from guardmark.analysis.confusion import Cells
    from guardmark.analysis.frame import Arm
    from guardmark.analysis.settings import AnalysisSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRatios:
    """Figures on the benchmark's own mix of attacks and benign samples.

    Attributes:
        precision: Blocked samples that are attacks; depends on the mix.
        f1: Harmonic mean of precision and recall; depends on the mix.
        balanced_error: Mean of false negative and false positive rate.
        prevalence: Share of attacks among answered samples, or None without any.
    """

    precision: Ratio
    f1: Ratio
    balanced_error: Ratio
    prevalence: float | None


def estimate_ratios(cells: Cells, arm: Arm, settings: AnalysisSettings) -> BenchmarkRatios:
    """Estimate precision, F1 and balanced error.

    Args:
        cells: Samples in two slices (benign, attacks) and groups.
        arm: Whose records are counted.
        settings: Confidence, replicates, seed.
    """
    where = cells.of_sample[arm.records.sample]
    sizes = np.bincount(where[arm.is_answered], minlength=len(cells.slices))
    blocked = np.bincount(where[arm.is_blocked], minlength=len(cells.slices))
    is_attack = cells.slices == 1
    attacks, benign = int(sizes[is_attack].sum()), int(sizes[~is_attack].sum())
    hits, alarms = int(blocked[is_attack].sum()), int(blocked[~is_attack].sum())
    values = _values(hits, attacks, alarms, benign)
    precision, f1, balanced = (
        Ratio(
            value=value,
            low=None,
            high=None,
            confidence=settings.confidence,
            method="none",
            trials=attacks + benign,
            reason=reason,
        )
        for value, reason in values
    )
    return BenchmarkRatios(
        precision=precision,
        f1=f1,
        balanced_error=balanced,
        prevalence=attacks / (attacks + benign) if attacks + benign else None,
    )


def _values(
    hits: int, attacks: int, alarms: int, benign: int
) -> tuple[tuple[float | None, str], ...]:
    """Return precision, F1 and balanced error, each with the reason when undefined."""
    if not attacks or not benign:
        return ((None, "attacks and benign samples are both needed"),) * 3
    precision: tuple[float | None, str] = (None, "nothing was blocked")
    if hits + alarms:
        precision = (hits / (hits + alarms), "")
    f1 = 2 * hits / (hits + alarms + attacks)
    balanced = ((attacks - hits) / attacks + alarms / benign) / 2
    return precision, (f1, ""), (balanced, "")
