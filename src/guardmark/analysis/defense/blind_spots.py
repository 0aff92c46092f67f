"""The slices on which a defense is worse than on all other samples, beyond chance.

Every value of every facet is searched, and every combination of two, of attacks and of benign
samples, for every defense of the run. That is one family: limits hold for all slices at once, half
of the error for single values and half for combinations (docs/decisions/0091).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guardmark.analysis.defense.counts import estimate_slices, sort_into_cells
from guardmark.analysis.defense.scorecard import complement
from guardmark.core.values import dataclass
from guardmark.stats.rates.clustered import EffectiveCounts
from guardmark.stats.rates.outlying import excess_over_rest, standing_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.core.estimate import Difference, Estimate

    Marks = NDArray[np.bool_]
    Codes = NDArray[np.integer]

LEAST_SAMPLES: Final = 20
"""Answered samples of a slice, and of all others, from which on it is searched."""

_CLOSELY: Final = 40  # slices of a defense and label that get a close look, the farthest off first
_WITHIN: Final = {"subcategory": "category"}  # facets that lie within another are not crossed
_SAME: Final = 0.95  # share of samples in common from which on two slices are one
_MOST_COUNTED: Final = 1 << 22  # codes that are counted in a table; more are sorted


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindSpot:
    """A slice whose error rate lies above that of all other samples of its label.

    Attributes:
        facets: Facet and value; two where it is a combination.
        is_attack: Whether attacks get through there, or benign samples are blocked.
        rate: Of the slice.
        rest: Of all other samples of the label.
        excess: Slice minus rest; its limits hold for all slices that were searched.
        searched: How many slices were searched, over all defenses of the run.
        also: Other names of the same samples.
    """

    DERIVED: ClassVar = ("name",)

    facets: tuple[tuple[str, str], ...]
    is_attack: bool
    rate: Estimate
    rest: Estimate
    excess: Difference
    searched: int
    also: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the slice is called, such as `language de and variant base64`."""
        return " and ".join(f"{facet} {value}" for facet, value in self.facets)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """The samples of a label by one facet, or by two: slices that have enough samples.

    Attributes:
        codes: Of each sample: the number of its slice, from 1 on; 0 for none.
        values: Of each slice, one value for each facet.
    """

    facets: tuple[str, ...]
    codes: Codes
    values: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    """A slice that gets a close look.

    Attributes:
        within: Which samples are in it.
    """

    facets: tuple[tuple[str, str], ...]
    within: Marks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """Attacks or benign samples of a run, cut in every way.

    Attributes:
        marks: Which samples have the label.
    """

    is_attack: bool
    marks: Marks
    single: tuple[_Cut, ...]
    crossed: tuple[_Cut, ...]

    def count(self, *, is_crossed: bool) -> int:
        """Count the slices of single values, or of combinations."""
        cuts = self.single
        if is_crossed:
            cuts = self.crossed
        return sum(len(cut.values) for cut in cuts)


def find_blind_spots(
    frame: Frame, arms: Sequence[DefenseColumn], facets: Sequence[str]
) -> dict[str, tuple[BlindSpot, ...]]:
    """Find the blind spots of each defense, those that are farthest above the rest for sure first.

    A defense that a rule ended early has none: its slices have no interval that covers.
    """
    sides = [_cut_side(frame, facets, is_attack=is_attack) for is_attack in (True, False)]
    searched = {False: 0, True: 0}  # by whether they are combinations of two facets
    for side in sides:
        for is_crossed in searched:
            searched[is_crossed] += len(arms) * side.count(is_crossed=is_crossed)
    by_defense: dict[str, tuple[BlindSpot, ...]] = {}
    for arm in arms:
        if frame.stopped(arm):
            continue
        spots: list[BlindSpot] = []
        for side in sides:
            spots.extend(_Examiner(frame, arm, side, searched=searched).blind_spots())
        spots.sort(key=lambda spot: -(spot.excess.low or 0.0))
        by_defense[arm.name] = tuple(spots)
    return by_defense


def _cut_side(frame: Frame, facets: Sequence[str], *, is_attack: bool) -> _Side:
    """Cut the samples of a label by each facet, and by every two that do not lie within another."""
    marks: Marks = frame.samples.is_attack == is_attack
    single, crossed = [], []
    for facet in facets:
        cut = _cut_by(frame, facet, marks)
        if cut.values:
            single.append(cut)
    for one, two in combinations(single, 2):
        (first,), (second,) = one.facets, two.facets
        if second == _WITHIN.get(first) or first == _WITHIN.get(second):
            continue
        cut = _cross(frame, one, two, marks)
        if cut.values:
            crossed.append(cut)
    return _Side(is_attack=is_attack, marks=marks, single=tuple(single), crossed=tuple(crossed))


def _cut_by(frame: Frame, facet: str, marks: Marks) -> _Cut:
    """Cut samples by the stated values of a facet."""
    column = frame.facet(facet)
    is_stated = np.array([bool(name) for name in column.names], dtype=np.bool_)
    codes = column.codes
    kept = _common(frame, codes, marks & is_stated[codes], of=marks)
    values = tuple((column.names[code],) for code in kept)
    return _Cut(facets=(facet,), codes=_numbered(codes, kept, where=marks), values=values)


def _cross(frame: Frame, one: _Cut, two: _Cut, marks: Marks) -> _Cut:
    """Cut samples by two facets at once."""
    width = len(two.values) + 1
    codes = one.codes.astype(np.int64) * width + two.codes
    kept = _common(frame, codes, (one.codes > 0) & (two.codes > 0), of=marks)
    values = tuple(one.values[code // width - 1] + two.values[code % width - 1] for code in kept)
    return _Cut(
        facets=one.facets + two.facets, codes=_numbered(codes, kept, where=marks), values=values
    )


def _common(frame: Frame, codes: Codes, where: Marks, *, of: Marks) -> list[int]:
    """Return the codes that enough samples have, and enough others of the label have not."""
    often = np.ones(len(codes))
    if frame.weights is not None:
        often = frame.weights.astype(float)
    stated = codes[where].astype(np.int64)
    if not len(stated):
        return []
    names = np.arange(int(stated.max()) + 1)
    if len(names) > _MOST_COUNTED:
        names, stated = np.unique(stated, return_inverse=True)
    counts = np.bincount(stated, weights=often[where], minlength=len(names))
    counts *= frame.manifest.repeats
    others = often[of].sum() * frame.manifest.repeats - counts
    enough = (counts >= LEAST_SAMPLES) & (others >= LEAST_SAMPLES)
    kept: list[int] = names[enough].tolist()
    return kept


def _numbered(codes: Codes, kept: Sequence[int], *, where: Marks) -> Codes:
    """Number the kept codes from 1 on, in few bytes; all others are 0."""
    if not kept:
        return np.zeros(len(codes), dtype=np.uint8)
    sorted_codes = np.array(kept)
    places = np.searchsorted(sorted_codes, codes).clip(max=len(kept) - 1)
    is_kept = where & (sorted_codes[places] == codes)
    return np.where(is_kept, places + 1, 0).astype(np.min_scalar_type(len(kept)))


class _Examiner:
    """Looks at the slices of one defense on one label."""

    def __init__(
        self, frame: Frame, arm: DefenseColumn, side: _Side, *, searched: dict[bool, int]
    ) -> None:
        self._frame, self._arm, self._side = frame, arm, side
        self._searched = searched
        self._is_wrong = arm.is_blocked
        if side.is_attack:
            self._is_wrong = ~arm.is_blocked
        self._all = searched[False] + searched[True]

    def blind_spots(self) -> list[BlindSpot]:
        """Find single values and combinations, and drop values that a combination explains."""
        pairs = []
        for slice_, spot in self._worse_slices(self._side.crossed, is_crossed=True):
            if self._is_more_than_parts(slice_):
                pairs.append((slice_, spot))
        combined = [slice_ for slice_, _ in pairs]
        singles = []
        for slice_, spot in self._worse_slices(self._side.single, is_crossed=False):
            if not self._is_explained(slice_, combined):
                singles.append((slice_, spot))
        return [spot for _, spot in _without_doubles([*singles, *pairs])]

    def _worse_slices(
        self, cuts: Sequence[_Cut], *, is_crossed: bool
    ) -> Iterator[tuple[_Slice, BlindSpot]]:
        """Yield the slices that are shown to be worse than the rest, with the figures."""
        for slice_ in self._far_off(cuts):
            spot = self._spot(slice_, searched=self._searched[is_crossed])
            if spot is not None:
                yield slice_, spot

    def _far_off(self, cuts: Sequence[_Cut]) -> list[_Slice]:
        """Return the slices far enough above the rest for a close look, the farthest first."""
        trials, hits = self._by_sample()
        all_trials, all_hits = int(trials.sum()), int(hits.sum())
        candidates: list[tuple[float, _Cut, int]] = []
        for cut in cuts:
            count = len(cut.values) + 1
            answered = np.bincount(cut.codes, weights=trials, minlength=count).astype(np.int64)
            wrong = np.bincount(cut.codes, weights=hits, minlength=count).astype(np.int64)
            far = standing_out(wrong, answered, all_hits=all_hits, all_trials=all_trials)
            far[(answered < LEAST_SAMPLES) | (np.arange(count) == 0)] = 0.0
            for number in np.flatnonzero(far).tolist():
                candidates.append((float(far[number]), cut, number))
        candidates.sort(key=lambda candidate: -candidate[0])
        slices = []
        for _, cut, number in candidates[:_CLOSELY]:
            facets = tuple(zip(cut.facets, cut.values[number - 1], strict=True))
            slices.append(_Slice(facets=facets, within=cut.codes == number))
        return slices

    def _by_sample(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Count the answers of each sample of the label, and the wrong ones."""
        answered = self._arm.is_answered
        trials = self._count_by_sample(answered)
        hits = self._count_by_sample(answered & self._is_wrong)
        return np.where(self._side.marks, trials, 0.0), np.where(self._side.marks, hits, 0.0)

    def _count_by_sample(self, answers: Marks) -> NDArray[np.float64]:
        """Count the marked answers of each sample."""
        records, count = self._arm.records, self._frame.sample_count
        weights = answers.astype(np.float64)
        often = self._frame.record_weights(records)
        if often is not None:
            weights *= often
        return np.bincount(records.sample, weights=weights, minlength=count).astype(np.float64)

    def _spot(self, slice_: _Slice, *, searched: int) -> BlindSpot | None:
        """Return a slice with its figures where it is shown to be worse than the rest."""
        rest, rate = self._rates(slice_.within.astype(np.int32), 2)
        excess = self._excess(rate, rest, searched=searched)
        if excess is None:
            return None
        return BlindSpot(
            facets=slice_.facets,
            is_attack=self._side.is_attack,
            rate=rate,
            rest=rest,
            excess=excess,
            searched=self._all,
        )

    def _rates(self, codes: Codes, count: int) -> list[Estimate]:
        """Estimate the error rate of the label for samples of each code."""
        cells = sort_into_cells(self._frame, codes.astype(np.int32), count)
        rates = estimate_slices(
            self._frame,
            cells,
            self._arm.records,
            hits=self._arm.is_blocked,
            trials=self._arm.is_answered,
        )
        if self._side.is_attack:
            return [complement(rate) for rate in rates[1::2]]
        return rates[0::2]

    def _excess(self, rate: Estimate, rest: Estimate, *, searched: int) -> Difference | None:
        """Return by how much a rate lies above another, where that is shown; else None."""
        for estimate in (rate, rest):
            if estimate.trials < LEAST_SAMPLES or estimate.few_groups:
                return None
        part, others = EffectiveCounts.of(rate), EffectiveCounts.of(rest)
        # Each kind of slice has half of the error.
        confidence = (1.0 + self._frame.settings.confidence) / 2.0
        excess = excess_over_rest(part, others, searched=searched, confidence=confidence)
        if excess.low is None or excess.low <= 0.0:
            return None
        return replace(excess, confidence=self._frame.settings.confidence)

    def _is_more_than_parts(self, slice_: _Slice) -> bool:
        """Tell whether a combination is worse than what is left of each of its two values."""
        first, second = slice_.facets
        codes = 2 * self._with_value(*first) + self._with_value(*second)
        _, only_second, only_first, both = self._rates(codes, 4)
        for left in (only_first, only_second):
            if self._excess(both, left, searched=self._searched[True]) is None:
                return False
        return True

    def _is_explained(self, slice_: _Slice, pairs: Sequence[_Slice]) -> bool:
        """Tell whether a value is as good as all others once its combinations are left out."""
        inside = [pair.within for pair in pairs if slice_.facets[0] in pair.facets]
        if not inside:
            return False
        is_combined = np.logical_or.reduce(inside)
        codes = np.where(is_combined, 2, slice_.within)
        rest, left, _ = self._rates(codes, 3)
        return self._excess(left, rest, searched=self._searched[False]) is None

    def _with_value(self, facet: str, value: str) -> NDArray[np.int32]:
        column = self._frame.facet(facet)
        code = list(column.names).index(value)
        codes: NDArray[np.int32] = (self._side.marks & (column.codes == code)).astype(np.int32)
        return codes


def _without_doubles(spots: Sequence[tuple[_Slice, BlindSpot]]) -> list[tuple[_Slice, BlindSpot]]:
    """Tell slices of nearly the same samples once, with their other names."""

    def rank(entry: tuple[_Slice, BlindSpot]) -> tuple[int, float]:
        slice_, spot = entry
        return len(slice_.facets), -(spot.excess.low or 0.0)

    kept: list[tuple[_Slice, BlindSpot]] = []
    for slice_, spot in sorted(spots, key=rank):
        for position, (other, first) in enumerate(kept):
            if _are_same(slice_, other):
                kept[position] = (other, replace(first, also=(*first.also, spot.name)))
                break
        else:
            kept.append((slice_, spot))
    return kept


def _are_same(one: _Slice, two: _Slice) -> bool:
    both = int(np.count_nonzero(one.within & two.within))
    either = int(np.count_nonzero(one.within | two.within))
    return both >= _SAME * either
