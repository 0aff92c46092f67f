"""Precision, F1 and balanced error: figures that are no plain rates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.defense.confusion import slice_codes, tally
from guardmark.stats.rates import ratios
from guardmark.stats.rates.bootstrap import BootstrapSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRatios:
    """Figures of one defense on answered samples.

    Attributes:
        precision: Blocked samples that are attacks; depends on the mix.
        f1: Harmonic mean of precision and recall; depends on the mix.
        balanced_error: Mean of false negative and false positive rate.
        youden: True positive rate minus false positive rate.
        correlation: Matthews correlation of label and decision; depends on the mix.
        prevalence: Share of attacks among answered samples, or None without any.
    """

    precision: Ratio
    f1: Ratio
    balanced_error: Ratio
    youden: Ratio
    correlation: Ratio = field(metadata={"json": "matthews_correlation"})
    prevalence: float | None


def estimate_ratios(
    frame: Frame, arm: DefenseColumn, settings: AnalysisSettings
) -> BenchmarkRatios:
    """Estimate the figures that are no plain rates."""
    table = _count(frame, arm)
    totals = table.sum(axis=0).tolist()
    drawn = BootstrapSettings(
        replicates=settings.replicates, confidence=settings.confidence, seed=settings.seed
    )
    if frame.is_grouped:
        found = ratios.estimate_ratios(table, settings=drawn)
    else:
        found = ratios.estimate_ungrouped_ratios(totals, settings=drawn)
    precision, f1, balanced_error, youden, correlation = found
    return BenchmarkRatios(
        precision=precision,
        f1=f1,
        balanced_error=balanced_error,
        youden=youden,
        correlation=correlation,
        prevalence=(totals[0] + totals[1]) / sum(totals) if sum(totals) else None,
    )


def _count(frame: Frame, arm: DefenseColumn) -> NDArray[np.int64]:
    """Count attacks blocked, attacks allowed, benign blocked and allowed, one row a group.

    Without groups there is one row for all.
    """
    codes, groups = np.zeros(frame.sample_count, dtype=np.int32), 1
    if frame.is_grouped:
        codes, groups = frame.samples.group.codes, len(frame.samples.group.names)
    blocked, answered = tally(
        slice_codes(frame, codes, groups).take(arm.records.sample),
        count=2 * groups,
        hits=arm.is_blocked,
        trials=arm.is_answered,
    )
    # Benign samples have the even places, attacks the odd ones.
    both = np.stack([blocked, answered - blocked], axis=1).reshape(groups, 4)
    return both[:, [2, 3, 0, 1]]
