"""From answers to counts and rates, by group; failures are counted apart, never as decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guardmark.analysis.defense.frame import REWRITTEN
from guardmark.core.values import dataclass
from guardmark.stats.arguments import distinct_keys
from guardmark.stats.rates.clustered import (
    is_dominated,
    wilson_default,
    wilson_default_slices,
)
from guardmark.store.schema import ERROR_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.core.estimate import Difference, Estimate
    from guardmark.stats.arguments import Ints as Codes
    from guardmark.store.columns import Facet, RecordColumns

    Marks = NDArray[np.bool_]


_OUTCOMES: Final = REWRITTEN + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCounts:
    """How often each outcome occurred.

    Attributes:
        allow: Allowed.
        block: Blocked.
        malformed: Answered, but not understandably.
        error: Not answered.
        rewritten: Let go on as another text: a decision, and in neither rate.
    """

    DERIVED: ClassVar = ("answered", "total")

    allow: int
    block: int
    malformed: int
    error: int
    rewritten: int = 0

    @property
    def answered(self) -> int:
        """Samples with a decision."""
        return self.allow + self.block + self.rewritten

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
        """Unreadable answers."""
        return self.attacks.malformed + self.benign.malformed

    @property
    def errors(self) -> int:
        """Samples without an answer."""
        return self.attacks.error + self.benign.error

    @property
    def rewritten(self) -> int:
        """Samples that went on as another text."""
        return self.attacks.rewritten + self.benign.rewritten

    @property
    def total(self) -> int:
        """All samples asked."""
        return self.attacks.total + self.benign.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Samples sorted into slices, and within a slice into groups.

    Attributes:
        of_sample: Cell of each sample, in the smallest integers that hold four times the number of
            cells.
        slices: Slice of each cell, shape (cells,).
        slice_count: How many slices there are; some may be empty.
        groups: Name of each group, and group of each cell; None where each record is its own group.
        weights: How many such groups a counted run has, by cell.
    """

    of_sample: NDArray[np.unsignedinteger]
    slices: NDArray[np.int64]
    slice_count: int
    groups: tuple[Sequence[str], NDArray[np.int64]] | None = None
    weights: NDArray[np.int64] | None = None


def sort_into_cells(
    frame: Frame,
    codes: NDArray[np.int32] | None = None,
    slice_count: int = 1,
    *,
    by_label: bool = True,
) -> Cells:
    """Sort the samples of a run into slices and groups; without codes, by label alone."""
    count = 1
    if by_label:
        count = 2 * slice_count
    slices = slice_codes(frame, codes, slice_count)
    if not by_label:
        slices = np.zeros_like(slices)
    if not frame.is_grouped:
        return Cells(of_sample=slices, slices=np.arange(count), slice_count=count)
    groups = len(frame.samples.group.names)
    keys, cells = distinct_keys(
        slices.astype(np.int64) * groups + frame.samples.group.codes, span=count * groups
    )
    narrow = cells.astype(np.min_scalar_type(4 * len(keys)))
    owner, weights = keys % groups, frame.group_weights
    if weights is not None:
        weights = weights[owner]
    return Cells(
        of_sample=narrow,
        slices=keys // groups,
        slice_count=count,
        groups=(frame.samples.group.names, owner),
        weights=weights,
    )


def slice_codes(
    frame: Frame, codes: NDArray[np.int32] | None, slice_count: int
) -> NDArray[np.unsignedinteger]:
    """Return twice the code of each sample, plus one for attacks, in few bytes."""
    attack = frame.samples.is_attack.view(np.uint8)
    if codes is None:
        return attack
    # Room for four outcomes a slice: see `tally`.
    narrow: NDArray[np.unsignedinteger] = codes.astype(np.min_scalar_type(8 * slice_count))
    return narrow * 2 + attack


def tally(
    of_sample: NDArray[np.unsignedinteger],
    records: RecordColumns,
    *,
    count: int,
    hits: Marks,
    trials: Marks,
    weights: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the hits and the trials of each cell in one pass over the records."""
    cells = of_sample.take(records.sample)
    where = cells * 4 + trials.view(np.uint8) * 2 + (hits & trials).view(np.uint8)
    counts = np.bincount(where, weights=weights, minlength=4 * count)
    table = counts.astype(np.int64).reshape(count, 4)
    return table[:, 3], table[:, 2] + table[:, 3]


def count_outcomes(frame: Frame, arm: DefenseColumn) -> Confusion:
    """Count the outcomes of one defense."""
    attack = frame.samples.is_attack.take(arm.records.sample).view(np.int8)
    often, places = frame.record_weights(arm.records), len(ERROR_KINDS) + 1
    by_label = attack * _OUTCOMES + arm.records.outcome
    table = np.bincount(by_label, weights=often, minlength=2 * _OUTCOMES).astype(np.int64).tolist()
    kinds = np.bincount(arm.records.error_kind + 1, weights=often, minlength=places)
    named = []
    for kind, count in zip(ERROR_KINDS, kinds.astype(np.int64).tolist()[1:], strict=True):
        if count:
            named.append((kind.value, count))
    return Confusion(
        attacks=_outcome_counts(table[_OUTCOMES:]),
        benign=_outcome_counts(table[:_OUTCOMES]),
        error_kinds=tuple(sorted(named, key=lambda pair: (-pair[1], pair[0]))),
    )


def _outcome_counts(counts: Sequence[int]) -> OutcomeCounts:
    """Name counts that stand in the order of the codes of outcomes."""
    allow, block, malformed, error, rewritten = counts
    return OutcomeCounts(
        allow=allow, block=block, malformed=malformed, error=error, rewritten=rewritten
    )


def estimate_slices(
    frame: Frame, cells: Cells, records: RecordColumns, *, hits: Marks, trials: Marks
) -> list[Estimate]:
    """Estimate a rate in every slice, with the interval that groups call for."""
    slices, often, is_alone = cells.slices, cells.weights, cells.groups is None
    successes, sizes = tally(
        cells.of_sample,
        records,
        count=len(slices),
        hits=hits,
        trials=trials,
        weights=frame.record_weights(records) if is_alone else None,
    )
    if is_alone:  # groups of one row are hits or misses
        often, slices = np.concatenate([successes, sizes - successes]), np.tile(slices, 2)
        successes, sizes = np.repeat([1, 0], len(sizes)), np.ones_like(often)
    crossing = frame.samples.crossing
    if crossing is not None and cells.groups is not None:
        return _crossed_slices(frame, cells, records, hits=hits, trials=trials, crossing=crossing)
    rates = wilson_default_slices(
        successes,
        sizes,
        slices=slices,
        slice_count=cells.slice_count,
        weights=often,
        confidence=frame.settings.confidence,
    )
    for at, rate in enumerate(rates):
        if cells.groups and is_dominated(rate.largest_group or 0.0, rate.groups or 1):
            largest = cells.groups[1][np.where(slices == at, sizes, -1).argmax()]
            rates[at] = replace(rate, dominant_group=cells.groups[0][largest])
    return rates


def _crossed_slices(
    frame: Frame,
    cells: Cells,
    records: RecordColumns,
    *,
    hits: Marks,
    trials: Marks,
    crossing: Facet,
) -> list[Estimate]:
    """Estimate a rate in every slice of crossed rows."""
    sample = records.sample[trials]
    hit, slices = hits[trials], cells.slices[cells.of_sample.take(sample)]
    first = frame.samples.group.codes[sample].astype(np.int64)
    second = crossing.codes[sample].astype(np.int64)
    rates = []
    for number in range(cells.slice_count):
        here = slices == number
        rates.append(
            crossed_or_grouped(
                hit[here], first[here], second[here], confidence=frame.settings.confidence
            )
        )
    return rates


def crossed_or_grouped(
    hits: Marks,
    first: Codes,
    second: Codes,
    *,
    strata: Codes | None = None,
    confidence: float,
) -> Estimate:
    """Estimate a rate of crossed rows, or of grouped ones where one factor plays no part.

    Where a stratum has one level of a factor, as a slice may, the strata are taken as one.
    """
    from guardmark.stats.rates.crossed import crossed_rate  # few runs have crossed rows

    groups = sole_factor(first, second)
    if groups is not None:
        return grouped_rate(hits, groups, confidence=confidence)
    rate = crossed_rate(hits, first=first, second=second, strata=strata, confidence=confidence)
    if rate.low is None and strata is not None:
        return crossed_rate(hits, first=first, second=second, confidence=confidence)
    return rate


def sole_factor(first: Codes, second: Codes) -> Codes | None:
    """Return the groups of rows of which one factor has no level with two rows, else None."""
    for lone, other in ((first, second), (second, first)):
        if len(np.unique(lone)) == len(lone):
            groups: Codes = np.unique(other, return_inverse=True)[1].reshape(-1)
            return groups
    return None


def estimate_share(
    frame: Frame, arm: DefenseColumn, hits: Marks, trials: Marks | None = None
) -> Estimate:
    """Estimate a share of records of a defense, all unless said, of both labels together."""
    cells = sort_into_cells(frame, by_label=False)
    if trials is None:
        trials = np.ones_like(hits)
    return estimate_slices(frame, cells, arm.records, hits=hits, trials=trials)[0]


def grouped_rate(
    hits: ArrayLike, groups: ArrayLike, *, confidence: float, names: Sequence[str] = ()
) -> Estimate:
    """Estimate a rate of marks with the project's default interval, by group."""
    marks, codes = np.asarray(hits, dtype=bool), np.asarray(groups, dtype=np.int64)
    sizes = np.bincount(codes)
    caught = np.bincount(codes[marks], minlength=len(sizes))
    rate = wilson_default(caught, sizes, confidence=confidence)
    if names and is_dominated(rate.largest_group or 0.0, rate.groups or 1):
        return replace(rate, dominant_group=names[int(sizes.argmax())])
    return rate


class SampleRates:
    """Estimates rates of marks on samples, by the groups of the samples and what crosses them.

    Attributes:
        groups: Group of each sample.
        crossing: What crosses the groups, or None.
        strata: Suite of each sample, where several share no level of either; None: one.
    """

    def __init__(
        self,
        groups: ArrayLike,
        confidence: float,
        names: Sequence[str] = (),
        *,
        crossing: ArrayLike | None = None,
        strata: ArrayLike | None = None,
    ) -> None:
        self.groups, self.confidence, self.names = np.asarray(groups), confidence, names
        self.crossing = None if crossing is None else np.asarray(crossing, dtype=np.int64)
        self.strata = None if strata is None else np.asarray(strata, dtype=np.int64)

    def strata_at(self, places: ArrayLike) -> Codes | None:
        """Return the suites of samples, or None where they are of one."""
        if self.strata is None:
            return None
        suites: Codes = self.strata[np.asarray(places, dtype=np.int64)]
        return suites

    def clusters_at(self, places: Sequence[int]) -> Codes:
        """Return the groups of samples for figures that know one factor.

        Of crossed rows it is the factor with fewer levels: limits by the other one hold the truth
        in a third of the runs, by this one in .94 and more.
        """
        at = np.asarray(places, dtype=np.int64)
        groups: Codes = self.groups[at]
        if self.crossing is None or sole_factor(groups, self.crossing[at]) is not None:
            return groups
        crossing: Codes = self.crossing[at]
        if len(np.unique(crossing)) < len(np.unique(groups)):
            return crossing
        return groups

    def of(self, marks: Iterable[tuple[int, bool]]) -> Estimate:
        """Estimate the share of marks that are true; each names the position of its sample."""
        listed = list(marks)
        return self.at([place for place, _ in listed], [hit for _, hit in listed])

    def at(self, places: Sequence[int], hits: ArrayLike) -> Estimate:
        """Estimate the share of hits, one a sample at these positions."""
        at = np.asarray(places, dtype=np.int64)
        groups = self.groups[at]
        if self.crossing is not None:
            first = groups.astype(np.int64)
            return crossed_or_grouped(
                np.asarray(hits, dtype=bool),
                first,
                self.crossing[at],
                strata=self.strata_at(at),
                confidence=self.confidence,
            )
        return grouped_rate(hits, groups, confidence=self.confidence, names=self.names)


def grouped_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    groups: ArrayLike,
    crossing: Codes | None = None,
    strata: Codes | None = None,
    confidence: float,
) -> Difference:
    """Estimate the difference of two marks on the same rows, by groups and what crosses them."""
    from guardmark.stats.paired.intervals import clustered_bonett_price  # few runs need it

    one, two = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    codes = np.asarray(groups, dtype=np.int64)
    if crossing is not None and sole_factor(codes, crossing) is None:
        from guardmark.stats.paired.crossed import crossed_difference

        return crossed_difference(
            one & ~two,
            two & ~one,
            first=codes,
            second=crossing,
            strata=strata,
            confidence=confidence,
        )
    sizes = np.bincount(codes)
    return clustered_bonett_price(
        np.bincount(codes[one & ~two], minlength=len(sizes)),
        np.bincount(codes[two & ~one], minlength=len(sizes)),
        sizes=sizes,
        confidence=confidence,
    )
