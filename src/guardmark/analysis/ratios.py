"""Precision, F1 and balanced error: figures that are no plain rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.stats import ratios
from guardmark.stats.bootstrap import BootstrapSettings

if TYPE_CHECKING:
    from guardmark.analysis.frame import Arm, Frame
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
    correlation: Ratio
    prevalence: float | None


def estimate_ratios(frame: Frame, arm: Arm, settings: AnalysisSettings) -> BenchmarkRatios:
    """Estimate the figures that are no plain rates.

    Args:
        frame: The run.
        arm: One of its arms.
        settings: Confidence, replicates, seed.
    """
    answered = arm.is_answered
    sample = arm.records.sample[answered]
    # Attack blocked, attack allowed, benign blocked, benign allowed.
    column = 2 * ~frame.samples.is_attack[sample] + ~arm.is_blocked[answered]
    drawn = BootstrapSettings(
        replicates=settings.replicates, confidence=settings.confidence, seed=settings.seed
    )
    if frame.is_grouped:
        groups = len(frame.samples.group.names)
        where = frame.samples.group.codes[sample].astype(np.int64) * 4 + column
        table = np.bincount(where, minlength=groups * 4).reshape(groups, 4)
        found = ratios.estimate_ratios(table, settings=drawn)
        totals = table.sum(axis=0).tolist()
    else:
        totals = np.bincount(column, minlength=4).tolist()
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
