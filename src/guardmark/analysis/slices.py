"""The two error rates by category, severity, language, length, variant and technique."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.confusion import estimate_slices, slice_codes, sort_into_cells
from guardmark.analysis.scorecard import complement
from guardmark.core.sample import Severity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.confusion import Cells
    from guardmark.analysis.frame import Arm, Frame
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Estimate

FACETS: Final = (
    "category",
    "subcategory",
    "severity",
    "language",
    "length",
    "variant",
    "technique",
    "source",
)
"""What samples are sliced by, in the order of the report."""

NOT_STATED: Final = "(not stated)"
SEVERITIES: Final = tuple(severity.value for severity in Severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRate:
    """One error rate on one slice.

    Attributes:
        name: Value of the facet; `(not stated)` for samples without one.
        rate: Attacks allowed, or benign samples blocked, of those answered.
        asked: Samples asked, answered or not.
        median_latency_ms: Of all timed answers, or None without any.
        is_greyed: Whether the samples are fewer than the minimum, or the groups too few.
    """

    name: str
    rate: Estimate
    asked: int
    median_latency_ms: float | None
    is_greyed: bool

    @property
    def unanswered(self) -> int:
        """Samples without a decision."""
        return self.asked - self.rate.trials


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceTable:
    """One defense's error rate by the values of one facet.

    Attributes:
        facet: Name of the facet.
        is_attack: Whether these are attacks (ASR) or benign samples (FPR).
        rates: Worst first; slices without any answer last.
    """

    facet: str
    is_attack: bool
    rates: tuple[SliceRate, ...]

    def greyed(self) -> SliceTable:
        """Return the same table, every slice greyed: nobody should lean on it."""
        return replace(self, rates=tuple(replace(each, is_greyed=True) for each in self.rates))


class Slicer:
    """Sorts the samples of a run once, for all of its defenses.

    Attributes:
        facet: Name of the facet.
        names: Value of each slice.
    """

    def __init__(self, frame: Frame, facet: str) -> None:
        column = frame.facet(facet)
        self.facet = facet
        self.names = tuple(name or NOT_STATED for name in column.names)
        self._cells: Cells = sort_into_cells(frame, column.codes, len(self.names))
        self._slices = slice_codes(frame, column.codes, len(self.names))

    def tables(
        self, arm: Arm, settings: AnalysisSettings, *, by_latency: NDArray[np.int64]
    ) -> tuple[SliceTable, SliceTable]:
        """Slice one defense's error rates.

        Args:
            arm: Whose records are counted.
            settings: Confidence and the minimum below which a slice is greyed.
            by_latency: Timed records of the defense, fastest first; see `order_by_latency`.

        Returns:
            Attacks, then benign samples; slices nobody was asked about are left out.
        """
        blocked, answered = arm.is_blocked, arm.is_answered
        rates = estimate_slices(
            self._cells, arm, hits=blocked, trials=answered, confidence=settings.confidence
        )
        of_record = self._slices.take(arm.records.sample)
        asked = np.bincount(of_record, minlength=len(rates)).tolist()
        medians = self._medians(arm, of_record, by_latency)
        sides: tuple[list[SliceRate], list[SliceRate]] = ([], [])
        for number, rate in enumerate(rates):
            if not asked[number]:
                continue
            is_attack = number % 2 == 1
            sides[is_attack].append(
                SliceRate(
                    name=self.names[number // 2],
                    rate=complement(rate) if is_attack else rate,
                    asked=asked[number],
                    median_latency_ms=medians[number],
                    is_greyed=rate.trials < settings.min_per_category or rate.few_groups,
                )
            )
        benign, attacks = (tuple(sorted(side, key=_worst_first)) for side in sides)
        return (
            SliceTable(facet=self.facet, is_attack=True, rates=attacks),
            SliceTable(facet=self.facet, is_attack=False, rates=benign),
        )

    def _medians(
        self, arm: Arm, of_record: NDArray[np.unsignedinteger], by_latency: NDArray[np.int64]
    ) -> list[float | None]:
        """Return the median latency of each slice in milliseconds."""
        count = len(self.names) * 2
        slices = of_record.take(by_latency)
        # A stable sort by slice keeps the fastest first within each; quick on small integers.
        order = np.argsort(slices, kind="stable")
        sizes = np.bincount(slices, minlength=count)
        starts = np.cumsum(sizes) - sizes
        medians: list[float | None] = [None] * count
        for number in np.flatnonzero(sizes).tolist():
            first, size = int(starts[number]), int(sizes[number])
            middle = order[[first + (size - 1) // 2, first + size // 2]]
            low, high = arm.records.latency_ns[by_latency[middle]]
            medians[number] = float((low + high) / 2) / 1e6
        return medians


def has_slices(table: SliceTable) -> bool:
    """Tell whether a facet splits the samples at all.

    Args:
        table: One facet of one defense.

    Returns:
        False when every sample falls into the same slice.
    """
    return len(table.rates) > 1


def by_severity(table: SliceTable) -> tuple[SliceRate, ...]:
    """Return the slices of the facet `severity` from low to critical.

    Args:
        table: The facet `severity` of one defense.
    """
    ranked = {name: rank for rank, name in enumerate(SEVERITIES)}
    known = [rate for rate in table.rates if rate.name in ranked]
    return tuple(sorted(known, key=lambda rate: ranked[rate.name]))


def _worst_first(entry: SliceRate) -> tuple[float, int, str]:
    value = entry.rate.value
    return (1.0 if value is None else -value, -entry.rate.trials, entry.name)
