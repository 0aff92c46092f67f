"""F1, precision and other figures of a yes-or-no defense that are no plain rate.

Columns are always attack blocked, attack allowed, benign blocked, benign allowed; blocked is the
positive answer. Intervals come from a cluster bootstrap in which attacks and benign samples keep
their numbers of groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from guardmark.stats.arguments import require_count
from guardmark.stats.rates.bootstrap import (
    DEFAULT_SETTINGS,
    BootstrapSettings,
    Statistic,
    Stratum,
    bootstrap,
    stratify,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from guardmark.core.estimate import Ratio
    from guardmark.stats.arguments import Floats, Ints


def _cells(totals: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    return totals[:, 0], totals[:, 1], totals[:, 2], totals[:, 3]


def _f1(totals: Floats) -> Floats:
    hits, missed, alarms, _ = _cells(totals)
    return 2.0 * hits / (2.0 * hits + missed + alarms)


def _precision(totals: Floats) -> Floats:
    hits, _, alarms, _ = _cells(totals)
    return hits / (hits + alarms)


def _balanced_error(totals: Floats) -> Floats:
    hits, missed, alarms, passed = _cells(totals)
    return (missed / (hits + missed) + alarms / (alarms + passed)) / 2.0


def _youden(totals: Floats) -> Floats:
    return 1.0 - 2.0 * _balanced_error(totals)


def _correlation(totals: Floats) -> Floats:
    hits, missed, alarms, passed = _cells(totals)
    spread = (hits + missed) * (alarms + passed) * (hits + alarms) * (missed + passed)
    return (hits * passed - missed * alarms) / np.sqrt(spread)


F1 = Statistic(name="F1", figure=_f1)
"""Harmonic mean of precision and recall; depends on the mix of attacks and benign samples."""

PRECISION = Statistic(name="precision", figure=_precision)
"""Share of blocked samples that are attacks; depends on the mix."""

BALANCED_ERROR = Statistic(name="balanced error", figure=_balanced_error)
"""Mean of the false negative and the false positive rate; does not depend on the mix."""

YOUDEN = Statistic(name="Youden's J", figure=_youden, low=-1.0)
"""True positive rate minus false positive rate; does not depend on the mix."""

CORRELATION = Statistic(name="Matthews correlation", figure=_correlation, low=-1.0)
"""Correlation of label and decision; depends on the mix."""

CONFUSION_STATISTICS = (PRECISION, F1, BALANCED_ERROR, YOUDEN, CORRELATION)
"""All figures above, in the order reports show them."""


def estimate_ratios(
    columns: ArrayLike,
    *,
    statistics: Sequence[Statistic] = CONFUSION_STATISTICS,
    settings: BootstrapSettings = DEFAULT_SETTINGS,
) -> list[Ratio]:
    """Estimate figures of a defense from counts per group.

    Args:
        columns: Whole counts, shape (groups, 4). A group may hold attacks, benign samples or both.
        statistics: The figures wanted.
        settings: Replicates, confidence and seed.

    Returns:
        One ratio a statistic, in order; refused as `bootstrap` does.

    Raises:
        ValueError: On a bad count or shape.
    """
    return bootstrap(stratify_by_label(columns), statistics, settings=settings)


def estimate_ungrouped_ratios(
    counts: Sequence[int],
    *,
    statistics: Sequence[Statistic] = CONFUSION_STATISTICS,
    settings: BootstrapSettings = DEFAULT_SETTINGS,
) -> list[Ratio]:
    """Estimate figures from four counts, every sample its own group; see `estimate_ratios`.

    Costs the same for four samples as for a million.
    """
    if len(counts) != 4:
        raise ValueError(f"counts must be four, got {len(counts)}")
    numbers = np.array([require_count("counts", count) for count in counts], dtype=np.int64)
    patterns = np.eye(4, dtype=np.int64)
    strata = [
        Stratum(patterns=patterns[side][numbers[side] > 0], multiplicities=_present(numbers[side]))
        for side in (slice(0, 2), slice(2, 4))
    ]
    return bootstrap(strata, statistics, settings=settings)


def stratify_by_label(columns: ArrayLike) -> list[Stratum]:
    """Split groups, shape (groups, 4), into those of attacks, of benign samples, and of both.

    Groups without samples are left out.
    """
    table = np.asarray(columns)
    if table.ndim != 2 or table.shape[1] != 4:
        raise ValueError(f"columns must have shape (groups, 4), got {table.shape}")
    attack, benign = table[:, :2].sum(axis=1) > 0, table[:, 2:].sum(axis=1) > 0
    used = attack | benign
    return stratify(table[used], (benign + 2 * (attack & benign))[used].astype(np.int64))


def _present(numbers: Ints) -> Ints:
    return numbers[numbers > 0]
