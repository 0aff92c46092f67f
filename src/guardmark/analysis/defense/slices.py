"""The two error rates by category, severity, language, length, variant and technique."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.confusion import estimate_slices, slice_codes, sort_into_cells
from guardmark.analysis.defense.scorecard import complement
from guardmark.core.sample import Severity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.defense.confusion import Cells
    from guardmark.analysis.defense.frame import DefenseColumn, Frame
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

MIN_SLICE_SAMPLES: Final = 5
"""Samples that a value of an open field needs for a slice of its own.

Below it the 95 % Wilson interval of a rate spans 49 points at the least, so the figure tells
nothing that the samples themselves do not.
"""

_OPEN_ATTACK_FACETS: Final = frozenset({"technique", "source"})
_OPEN_BENIGN_FACETS: Final = _OPEN_ATTACK_FACETS | {"category", "subcategory"}
"""Fields whose values a data set is free to invent, so that there may be one for each sample.

Categories and subcategories of attacks are the taxonomy's, which gates and coverage name.
"""

NOT_STATED: Final = "(not stated)"
SEVERITIES: Final = tuple(severity.value for severity in Severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRate:
    """One error rate on one slice.

    Attributes:
        name: Value of the facet; `(not stated)` for samples without one; for several rare
            values together `other (N values with fewer than 5 samples)`.
        rate: Attacks allowed, or benign samples blocked, of those answered.
        asked: Samples asked, answered or not.
        median_latency_ms: Of all timed answers, or None without any.
        is_greyed: Whether the samples are fewer than the minimum, or the groups too few.
        folded: How many rare values it holds together; 0 for a value by itself.
    """

    name: str
    rate: Estimate
    asked: int
    median_latency_ms: float | None = field(metadata={"json": False})
    is_greyed: bool
    folded: int = 0

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
        rates: Worst first; slices without any answer after them; rare values together last.
    """

    facet: str
    is_attack: bool
    rates: tuple[SliceRate, ...]

    def greyed(self) -> SliceTable:
        """Return the same table, every slice greyed: nobody should lean on it."""
        return replace(self, rates=tuple(replace(each, is_greyed=True) for each in self.rates))


class Slicer:
    """Sorts the samples of a run once, for all of its defenses.

    Values of an open field with fewer than `MIN_SLICE_SAMPLES` samples of a label share one
    slice, if there are several. The samples of the run decide, not the answers, so that all
    defenses have the same slices.

    Attributes:
        facet: Name of the facet.
    """

    def __init__(self, frame: Frame, facet: str) -> None:
        column = frame.facet(facet)
        names = [name or NOT_STATED for name in column.names]
        rare = _rare_values(frame, facet, codes=column.codes, names=names)
        codes = _fold(frame, column.codes, rare) if rare.any() else column.codes
        self.facet = facet
        # The slices of rare values come after those of values, and are named by how many.
        self._names = names
        self._folded = (int(rare[:, 0].sum()), int(rare[:, 1].sum()))
        count = len(names) + bool(rare.any())
        self._cells: Cells = sort_into_cells(frame, codes, count)
        self._slices = slice_codes(frame, codes, count)

    def tables(
        self, arm: DefenseColumn, settings: AnalysisSettings, *, by_latency: NDArray[np.int64]
    ) -> tuple[SliceTable, SliceTable]:
        """Slice one defense's error rates."""
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
            is_value = number // 2 < len(self._names)
            folded = 0 if is_value else self._folded[is_attack]
            sides[is_attack].append(
                SliceRate(
                    name=self._names[number // 2] if is_value else folded_name(folded),
                    rate=complement(rate) if is_attack else rate,
                    asked=asked[number],
                    median_latency_ms=medians[number],
                    is_greyed=rate.trials < settings.min_per_category or rate.few_groups,
                    folded=folded,
                )
            )
        benign, attacks = (tuple(sorted(side, key=_worst_first)) for side in sides)
        return (
            SliceTable(facet=self.facet, is_attack=True, rates=attacks),
            SliceTable(facet=self.facet, is_attack=False, rates=benign),
        )

    def _medians(
        self,
        arm: DefenseColumn,
        of_record: NDArray[np.unsignedinteger],
        by_latency: NDArray[np.int64],
    ) -> list[float | None]:
        """Return the median latency of each slice in milliseconds."""
        count = self._cells.slice_count
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


def folded_name(values: int) -> str:
    """Name the slice of rare values."""
    return f"other ({values:,} values with fewer than {MIN_SLICE_SAMPLES} samples)"


def has_slices(table: SliceTable) -> bool:
    """Tell whether a facet splits the samples at all."""
    return len(table.rates) > 1


def by_severity(table: SliceTable) -> tuple[SliceRate, ...]:
    """Return the slices of the facet `severity` from low to critical."""
    ranked = {name: rank for rank, name in enumerate(SEVERITIES)}
    known = [rate for rate in table.rates if rate.name in ranked]
    return tuple(sorted(known, key=lambda rate: ranked[rate.name]))


def _rare_values(
    frame: Frame, facet: str, *, codes: NDArray[np.int32], names: list[str]
) -> NDArray[np.bool_]:
    """Find the values to put together, shape (values, 2): of benign samples, of attacks."""
    is_attack = frame.samples.is_attack.view(np.uint8)
    counts = np.bincount(codes * 2 + is_attack, minlength=2 * len(names)).reshape(-1, 2)
    is_stated = np.array([name != NOT_STATED for name in names], dtype=np.bool_)
    rare: NDArray[np.bool_] = (counts > 0) & (counts < MIN_SLICE_SAMPLES) & is_stated[:, None]
    for side, facets in enumerate((_OPEN_BENIGN_FACETS, _OPEN_ATTACK_FACETS)):
        # One rare value alone is not made clearer by another name.
        if facet not in facets or rare[:, side].sum() < 2:
            rare[:, side] = False
    return rare


def _fold(frame: Frame, codes: NDArray[np.int32], rare: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Give rare values the number after the last value, whichever label they have."""
    is_rare = rare[codes, frame.samples.is_attack.view(np.uint8)]
    return np.where(is_rare, np.int32(len(rare)), codes)


def _worst_first(entry: SliceRate) -> tuple[bool, float, int, str]:
    value = entry.rate.value
    return (
        entry.folded > 0,
        1.0 if value is None else -value,
        -entry.rate.trials,
        entry.name,
    )
