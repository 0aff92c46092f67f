"""Defenses against each other on the same samples: differences, tests, and who stands where."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from guardmark.analysis.defense.frame import BLOCK, MISSING
from guardmark.stats.distributions import two_sided_z
from guardmark.stats.multiplicity import CochranQ, cochran_q, holm
from guardmark.stats.paired.intervals import clustered_bonett_price, summarise_pairs
from guardmark.stats.paired.noninferiority import NonInferiority, noninferiority_clustered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedSide:
    """Two defenses on the same attacks, or on the same benign samples.

    Attributes:
        difference: First error rate minus second (ASR on attacks, FPR on benign samples), with
            interval, test and discordant counts; below zero the first is better.
        adjusted_p: Holm's p over the family of the report, or None without a test.
        both: Pairs on which both erred.
        neither: Pairs on which neither erred.
        unpaired: Samples left out since a side gave no decision.
        detectable: Smallest difference that would have been found with 80 % power (normal
            approximation), or None without pairs.
        not_worse: Whether the first error rate is not higher by more than the margin, tested
            both ways round; None without a margin fixed before the run.
    """

    DERIVED: ClassVar = ("first_not_worse", "second_not_worse", "margin")

    difference: Difference
    adjusted_p: float | None
    both: int
    neither: int
    unpaired: int
    detectable: float | None
    not_worse: tuple[NonInferiority, NonInferiority] | None = field(
        default=None, metadata={"json": False}
    )

    @property
    def first_not_worse(self) -> bool | None:
        """Whether the first is not worse by more than the margin, or None without one."""
        return None if self.not_worse is None else self.not_worse[0].is_noninferior

    @property
    def second_not_worse(self) -> bool | None:
        """Whether the second is not worse by more than the margin, or None without one."""
        return None if self.not_worse is None else self.not_worse[1].is_noninferior

    @property
    def margin(self) -> float | None:
        """The margin fixed before the run, or None without one."""
        return None if self.not_worse is None else self.not_worse[0].margin


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """Two defenses on the same samples.

    Attributes:
        first: Name of the first.
        second: Name of the second.
        attacks: Attack success rates against each other.
        benign: False positive rates against each other.
        verdict: What the data carries.
    """

    first: str
    second: str
    attacks: PairedSide = field(metadata={"json": "attack_success_rate"})
    benign: PairedSide = field(metadata={"json": "false_positive_rate"})
    verdict: PairVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSet:
    """Which defenses the data cannot tell from the best one.

    Attributes:
        best: The defense with the lowest rate; empty when no rate is defined.
        undistinguished: It and all that are not distinguishable from it.
        omnibus: Whether all share one rate (Cochran's Q, ungrouped samples and three or more
            defenses only), or None.
    """

    best: str
    undistinguished: tuple[str, ...] = field(metadata={"json": "not_distinguishable"})
    omnibus: CochranQ | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """The defenses of a run against each other.

    Attributes:
        pairs: Every pair of the compared defenses.
        attacks: Who is not distinguishable from the lowest attack success rate.
        benign: Who is not distinguishable from the lowest false positive rate.
        left_out: Baselines that were not compared, since they are no candidates.
    """

    pairs: tuple[PairedComparison, ...]
    attacks: BestSet = field(metadata={"json": "lowest_attack_success_rate"})
    benign: BestSet = field(metadata={"json": "lowest_false_positive_rate"})
    left_out: tuple[str, ...] = ()


def compare_arms(
    frame: Frame,
    settings: AnalysisSettings,
    *,
    chosen: Sequence[tuple[str, str]] | None = None,
) -> RunComparison | None:
    """Compare the defenses of a run, pair by pair.

    Baselines are left out when two other defenses are there.
    """
    arms = _compared_arms(frame, chosen)
    if len(arms) < 2:
        return None
    outcomes = {arm.name: frame.matrix(arm) for arm in arms}
    attack = np.tile(frame.samples.is_attack, frame.manifest.repeats)
    everyone = list(combinations(outcomes, 2))
    names = everyone if chosen is None else list(chosen)
    sides: list[list[PairedSide]] = []
    for label in (True, False):
        where = attack == label
        sides.append(
            adjust_sides(
                [
                    _hold_at_any_look(
                        frame,
                        compare_where(
                            frame,
                            outcomes[one],
                            second=outcomes[two],
                            where=where,
                            settings=settings,
                        ),
                        names=(one, two),
                        is_attack=label,
                    )
                    for one, two in names
                ]
            )
        )
    pairs = tuple(
        PairedComparison(
            first=one,
            second=two,
            attacks=on_attacks,
            benign=on_benign,
            verdict=judge_pair(on_attacks, on_benign, alpha=1 - settings.confidence),
        )
        for (one, two), on_attacks, on_benign in zip(names, *sides, strict=True)
    )
    ranked = outcomes if len(names) == len(everyone) else {}
    return RunComparison(
        pairs=pairs,
        attacks=_best_set(frame, ranked, pairs, settings=settings, is_attack=True),
        benign=_best_set(frame, ranked, pairs, settings=settings, is_attack=False),
        left_out=tuple(arm.name for arm in frame.arms if arm.name not in outcomes),
    )


def _hold_at_any_look(
    frame: Frame, side: PairedSide, *, names: tuple[str, str], is_attack: bool
) -> PairedSide:
    """Put an interval and a test that hold at any look where a rule ended a defense early.

    Neither a smallest detectable difference nor a test of a margin is left then: both suppose
    a size fixed beforehand.
    """
    ended = any(frame.stopped(arm) for arm in frame.arms if arm.name in names)
    if frame.stops is None or not ended:
        return side
    difference = frame.stops.difference(*names, is_attack=is_attack)
    return replace(
        side,
        difference=difference,
        adjusted_p=difference.p_value,
        detectable=None,
        not_worse=None,
    )


def judge_pair(attacks: PairedSide, benign: PairedSide, *, alpha: float) -> PairVerdict:
    """Say what two sides carry together.

    Nobody is called better for fewer bypasses alone: false alarms must be shown to be fewer,
    or no more than the margin fixed before the run allows.
    """
    on_attacks, on_benign = _direction(attacks, alpha), _direction(benign, alpha)
    if on_attacks * on_benign < 0:
        return PairVerdict.TRADE_OFF
    if on_attacks and (on_benign == on_attacks or _is_not_worse(benign, on_attacks)):
        return PairVerdict.FIRST_BETTER if on_attacks < 0 else PairVerdict.SECOND_BETTER
    if on_attacks:
        first = on_attacks < 0
        return PairVerdict.FIRST_FEWER_BYPASSES if first else PairVerdict.SECOND_FEWER_BYPASSES
    if on_benign:
        return (
            PairVerdict.FIRST_FEWER_FALSE_ALARMS
            if on_benign < 0
            else PairVerdict.SECOND_FEWER_FALSE_ALARMS
        )
    return PairVerdict.UNDECIDED


def _compared_arms(frame: Frame, chosen: Sequence[tuple[str, str]] | None) -> list[DefenseColumn]:
    if chosen is not None:
        named = {name for pair in chosen for name in pair}
        return [arm for arm in frame.arms if arm.name in named]
    arms = [arm for arm in frame.arms if not arm.is_baseline]
    return arms if len(arms) > 1 else list(frame.arms)


def compare_where(
    frame: Frame,
    first: NDArray[np.int8],
    *,
    second: NDArray[np.int8],
    where: NDArray[np.bool_],
    settings: AnalysisSettings,
) -> PairedSide:
    """Compare two defenses on some of the samples, paired and by group.

    An error is an allowed attack or a blocked benign sample; both sides of the table follow
    from where the two outcomes differ.
    """
    asked = where & ((first != MISSING) | (second != MISSING))
    paired = where & (first <= BLOCK) & (second <= BLOCK) & (first >= 0) & (second >= 0)
    groups = np.tile(frame.samples.group.codes, frame.manifest.repeats)
    # Which outcome is the error: to allow an attack, to block a benign sample.
    is_attack = np.tile(frame.samples.is_attack, frame.manifest.repeats)
    erred_first = (first == BLOCK) != is_attack
    erred_second = (second == BLOCK) != is_attack
    count = len(frame.samples.group.names)

    def by_group(chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(groups[paired & chosen], minlength=count)

    only_first, only_second = (
        by_group(erred_first & ~erred_second),
        by_group(erred_second & ~erred_first),
    )
    sizes = by_group(paired)
    difference = clustered_bonett_price(
        only_first, only_second, sizes=sizes, confidence=settings.confidence
    )
    both = int((paired & erred_first & erred_second).sum())
    table = summarise_pairs(only_first, only_second, sizes=sizes)
    return PairedSide(
        difference=difference,
        adjusted_p=difference.p_value,
        both=both,
        neither=table.pairs - both - table.first_only - table.second_only,
        unpaired=int(asked.sum()) - table.pairs,
        detectable=smallest_detectable(difference, table.design_effect, settings.confidence),
        not_worse=_not_worse(only_first, only_second, sizes=sizes, settings=settings),
    )


def _not_worse(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    *,
    sizes: NDArray[np.int64],
    settings: AnalysisSettings,
) -> tuple[NonInferiority, NonInferiority] | None:
    margin = settings.non_inferiority_margin
    if margin is None:
        return None
    alpha = min(0.49, 1 - settings.confidence)
    return (
        noninferiority_clustered(first, second, sizes=sizes, margin=margin, alpha=alpha),
        noninferiority_clustered(second, first, sizes=sizes, margin=margin, alpha=alpha),
    )


def adjust_sides(sides: list[PairedSide]) -> list[PairedSide]:
    """Adjust the tests of one family by Holm."""
    tested = [at for at, side in enumerate(sides) if side.difference.p_value is not None]
    values = [p for side in sides if (p := side.difference.p_value) is not None]
    adjusted = list(sides)
    for at, p_value in zip(tested, holm(values), strict=True):
        adjusted[at] = replace(sides[at], adjusted_p=p_value)
    return adjusted


def _direction(side: PairedSide, alpha: float) -> int:
    """Return -1 when the first errs less, 1 when more, 0 when it cannot be told."""
    value = side.difference.value
    if value is None or side.adjusted_p is None or side.adjusted_p >= alpha:
        return 0
    return (value > 0) - (value < 0)


def _is_not_worse(benign: PairedSide, direction: int) -> bool:
    if benign.not_worse is None:
        return False
    return benign.not_worse[0 if direction < 0 else 1].is_noninferior


def _best_set(
    frame: Frame,
    outcomes: dict[str, NDArray[np.int8]],
    pairs: tuple[PairedComparison, ...],
    *,
    settings: AnalysisSettings,
    is_attack: bool,
) -> BestSet:
    if not outcomes:
        return BestSet(best="", undistinguished=())
    attack = np.tile(frame.samples.is_attack, frame.manifest.repeats)
    stacked = np.stack(list(outcomes.values()))
    common = (attack == is_attack) & ((stacked >= 0) & (stacked <= BLOCK)).all(axis=0)
    if not common.any():
        return BestSet(best="", undistinguished=())
    erred = (stacked[:, common] == BLOCK) != is_attack
    names = list(outcomes)
    best = names[int(erred.sum(axis=1).argmin())]
    worse = set()
    for pair in pairs:
        if best not in {pair.first, pair.second}:
            continue
        side = pair.attacks if is_attack else pair.benign
        direction = _direction(side, 1 - settings.confidence)
        if direction:
            worse.add(pair.second if direction < 0 else pair.first)
    omnibus = cochran_q(erred.T) if len(names) > 2 and not frame.is_grouped else None
    return BestSet(
        best=best,
        undistinguished=tuple(name for name in names if name not in worse),
        omnibus=omnibus,
    )


__all__ = [
    "BestSet",
    "PairedComparison",
    "PairedSide",
    "RunComparison",
    "adjust_sides",
    "compare_arms",
    "compare_where",
    "judge_pair",
]


_POWER_Z = 0.8416212335729143
"""Normal quantile of 80 % power."""


def smallest_detectable(
    difference: Difference, design_effect: float | None, confidence: float
) -> float | None:
    """Return the smallest difference found with 80 % power, by the normal approximation.

    Solves d = (z sqrt(q) + z_power sqrt(q - d^2)) / sqrt(n) for the observed discordance q.

    References:
        Miettinen (1968), doi:10.2307/2528297.
    """
    if not difference.pairs or design_effect is None:
        return None
    worth = difference.pairs / design_effect
    discordant = (difference.first_only or 0) + (difference.second_only or 0)
    # Without any discordant pair there is still the chance of having missed one.
    share = max(discordant, 1) / difference.pairs
    z = two_sided_z(confidence)
    found = (z + _POWER_Z) * math.sqrt(share / worth)
    return min(1.0, found)


class PairVerdict(StrEnum):
    """What the data carries about two defenses."""

    FIRST_BETTER = "first better"
    SECOND_BETTER = "second better"
    TRADE_OFF = "trade-off"
    FIRST_FEWER_BYPASSES = "first fewer bypasses"
    SECOND_FEWER_BYPASSES = "second fewer bypasses"
    FIRST_FEWER_FALSE_ALARMS = "first fewer false alarms"
    SECOND_FEWER_FALSE_ALARMS = "second fewer false alarms"
    UNDECIDED = "undecided"
