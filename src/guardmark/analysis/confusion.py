"""From answers to counts, at a named scope; failures are counted apart, never as decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.stats.clustered import wilson_default_slices
from guardmark.store.codes import ERROR_KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.frame import Arm, Frame
    from guardmark.core.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCounts:
    """How often each outcome occurred.

    Attributes:
        allow: Allowed.
        block: Blocked.
        malformed: Answered, but not understandably.
        error: Not answered.
    """

    allow: int
    block: int
    malformed: int
    error: int

    @property
    def answered(self) -> int:
        """Samples with a decision."""
        return self.allow + self.block

    @property
    def total(self) -> int:
        """All samples asked."""
        return self.answered + self.malformed + self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """Counts of one defense at scope `defense`; positive means blocked.

    Attributes:
        attacks: Outcomes on attacks.
        benign: Outcomes on benign samples.
        error_kinds: Kind of error and how often, most frequent first.
    """

    attacks: OutcomeCounts
    benign: OutcomeCounts
    error_kinds: tuple[tuple[str, int], ...] = ()

    @property
    def malformed(self) -> int:
        """Answers nobody could read."""
        return self.attacks.malformed + self.benign.malformed

    @property
    def errors(self) -> int:
        """Samples without an answer."""
        return self.attacks.error + self.benign.error

    @property
    def total(self) -> int:
        """All samples asked."""
        return self.attacks.total + self.benign.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Samples sorted into slices, and within a slice into groups.

    Attributes:
        of_sample: Cell of each sample, shape (samples,).
        slices: Slice of each cell, shape (cells,).
        slice_count: How many slices there are; some may be empty.
    """

    of_sample: NDArray[np.int64]
    slices: NDArray[np.int64]
    slice_count: int


def sort_into_cells(frame: Frame, codes: NDArray[np.int32], slice_count: int) -> Cells:
    """Sort the samples of a run into slices and groups.

    Args:
        frame: The run.
        codes: Slice of each sample, from 0.
        slice_count: How many slices there are.

    Returns:
        Twice as many slices as asked for: slice s of benign samples has number 2 s, slice s of
        attacks 2 s + 1.
    """
    slices = codes.astype(np.int64) * 2 + frame.samples.is_attack
    if len(frame.samples.group.names) == frame.sample_count:
        own = np.arange(frame.sample_count, dtype=np.int64)
        return Cells(of_sample=own, slices=slices, slice_count=2 * slice_count)
    groups = len(frame.samples.group.names)
    keys, cells = np.unique(slices * groups + frame.samples.group.codes, return_inverse=True)
    return Cells(
        of_sample=cells.astype(np.int64), slices=keys // groups, slice_count=2 * slice_count
    )


def count_outcomes(frame: Frame, arm: Arm) -> Confusion:
    """Count the outcomes of one defense.

    Args:
        frame: The run.
        arm: One of its arms.
    """
    attack = frame.samples.is_attack[arm.records.sample].astype(np.int64)
    table = np.bincount(attack * 4 + arm.records.outcome, minlength=8).tolist()
    kinds = np.bincount(arm.records.error_kind + 1, minlength=len(ERROR_KINDS) + 1)[1:].tolist()
    named = [(kind.value, n) for kind, n in zip(ERROR_KINDS, kinds, strict=True) if n]
    return Confusion(
        attacks=_outcomes(table[4:8]),
        benign=_outcomes(table[:4]),
        error_kinds=tuple(sorted(named, key=lambda pair: (-pair[1], pair[0]))),
    )


def estimate_slices(
    cells: Cells,
    arm: Arm,
    *,
    hits: NDArray[np.bool_],
    trials: NDArray[np.bool_],
    confidence: float,
) -> list[Estimate]:
    """Estimate a rate in every slice, with the interval that groups call for.

    Args:
        cells: Samples in slices and groups.
        arm: Whose records are counted.
        hits: Which records have the property, shape (records,).
        trials: Which records count at all, shape (records,).
        confidence: Nominal coverage, in (0, 1).

    Returns:
        One estimate a slice; undefined where nothing counts.
    """
    count = len(cells.slices)
    where = cells.of_sample[arm.records.sample]
    sizes = np.bincount(where[trials], minlength=count)
    successes = np.bincount(where[trials & hits], minlength=count)
    return wilson_default_slices(
        successes,
        sizes,
        slices=cells.slices,
        slice_count=cells.slice_count,
        confidence=confidence,
    )


def _outcomes(counts: list[int]) -> OutcomeCounts:
    allow, block, malformed, error = counts
    return OutcomeCounts(allow=allow, block=block, malformed=malformed, error=error)
