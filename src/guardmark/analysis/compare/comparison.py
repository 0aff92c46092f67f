"""Defenses against each other on the same samples: differences, tests, and who stands where."""

from __future__ import annotations

import math
from dataclasses import field, replace
from enum import StrEnum
from functools import partial
from html import escape
from importlib import import_module
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from guardmark.analysis.defense.counts import grouped_difference
from guardmark.analysis.defense.frame import BLOCK, MISSING, is_decision
from guardmark.analysis.pipeline.frame import DEFENSE
from guardmark.core.errors import needs
from guardmark.core.values import dataclass
from guardmark.stats.multiplicity import CochranQ, cochran_q, holm, tier_letters
from guardmark.stats.paired.intervals import clustered_bonett_price, summarise_pairs
from guardmark.stats.paired.noninferiority import NonInferiority, noninferiority_clustered
from guardmark.stats.planning import pairs_to_tell_apart, smallest_detectable
from guardmark.stats.rates.clustered import FEW_GROUPS, is_dominated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.defense.scores import AreaPair
    from guardmark.analysis.pipeline.frame import Codes
    from guardmark.core.estimate import Difference
    from guardmark.stats.arguments import Flags, Ints


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedSide:
    """Two defenses on the same attacks, or on the same benign samples.

    Attributes:
        difference: First error rate minus second, with test and discordant counts; below 0 the
            first is better.
        adjusted_p: Holm's p over the family of the report (pairs on both labels, areas), or None
            without a test.
        both: Pairs on which both erred.
        neither: Pairs on which neither erred.
        unpaired: Samples left out since a side gave no decision.
        detectable: About the smallest difference found in 80 % of runs, or None; see
            `smallest_detectable`.
        largest_group: Share of the pairs in the largest group, or None without pairs.
    """

    DERIVED: ClassVar = ("first_not_worse", "second_not_worse", "margin", "few_groups")

    difference: Difference
    adjusted_p: float | None
    both: int
    neither: int
    unpaired: int
    detectable: float | None
    largest_group: float | None = None
    largest_name: str = field(default="", metadata={"json": False})
    not_worse: tuple[NonInferiority, NonInferiority] | None = field(
        default=None, metadata={"json": False}
    )

    @property
    def first_not_worse(self) -> bool | None:
        """Whether the first is not worse by more than the margin, or None without one."""
        return self.not_worse and self.not_worse[0].is_noninferior

    @property
    def second_not_worse(self) -> bool | None:
        """Whether the second is not worse by more than the margin, or None without one."""
        return self.not_worse and self.not_worse[1].is_noninferior

    @property
    def margin(self) -> float | None:
        """The margin fixed before the run, or None without one."""
        return self.not_worse and self.not_worse[0].margin

    @property
    def few_groups(self) -> bool:
        """Whether the pairs fall into fewer groups than show how groups differ."""
        return 0 < (self.difference.groups or 0) < FEW_GROUPS

    @property
    def caution(self) -> str:
        """What makes the groups behind the comparison weak, to end a sentence with; or empty."""
        if self.few_groups:
            return f", over few groups ({self.difference.groups})"
        share = self.largest_group or 0.0
        if not is_dominated(share, self.difference.groups or 1):
            return ""
        return f", of which the group {self.largest_name!r} holds {100 * share:.0f} %"

    def groups_needed(self, *, tests: int) -> int | None:
        """Return about how many groups would tell the two apart in 80 % of runs, if they differ so.

        `tests` are in the family of the report, over which p is adjusted by Holm. None where both
        err alike, or where it is more than anybody collects.
        """
        pairs = self.difference.pairs
        groups = self.difference.groups or pairs
        alpha = 1.0 - self.difference.confidence
        needed = pairs_to_tell_apart(self.difference, alpha=alpha, tests=tests)
        if needed is None or not pairs:
            return None
        return max(groups + 1, math.ceil(needed * groups / pairs))

    def direction(self, alpha: float) -> int:
        """Return -1 if adjusted test and interval say the first errs less, 1 if more, else 0."""
        low, high = self.difference.low, self.difference.high
        is_found = self.adjusted_p is not None and self.adjusted_p < alpha
        if not is_found or low is None or high is None:
            return 0
        return (low > 0) - (high < 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """Two defenses on the same samples.

    Attributes:
        first: Name of the first.
        second: Name of the second.
        attacks: Attack success rates against each other.
        benign: False positive rates against each other.
        scope: `defense`; or `system`, where the rates are system attack success and over-refusal.
    """

    first: str
    second: str
    attacks: PairedSide = field(metadata={"json": "attack_success_rate"})
    benign: PairedSide = field(metadata={"json": "false_positive_rate"})
    verdict: PairVerdict
    scope: str = DEFENSE


@dataclass(frozen=True, slots=True, kw_only=True)
class DefenseTier:
    """Where a defense stands among all: two share a letter unless they are told apart.

    Attributes:
        defense: Its name.
        letters: Its letters, `a` from the lowest rate on.
    """

    defense: str
    letters: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSet:
    """Which defenses the data cannot tell from the best one.

    Attributes:
        best: The defense with the lowest rate; empty when no rate is defined.
        undistinguished: It and all that are not distinguishable from it.
        omnibus: Whether all share one rate (Cochran's Q; ungrouped, three or more defenses only),
            or None.
        tiers: Every defense, the lowest rate first; empty where not every pair was compared.
    """

    best: str
    undistinguished: tuple[str, ...] = field(metadata={"json": "not_distinguishable"})
    omnibus: CochranQ | None = None
    tiers: tuple[DefenseTier, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunComparison:
    """The defenses of a run against each other.

    Attributes:
        attacks: Who is not distinguishable from the lowest attack success rate.
        benign: Who is not distinguishable from the lowest false positive rate.
        left_out: Baselines that were not compared, since they are no candidates.
        is_whole_family: Whether p values are adjusted over every pair of the run, shown here or
            not.
        tests: How many tests there are in the family over which p is adjusted.
        system: The systems of the same runs against each other, where they have a pipeline.
    """

    pairs: tuple[PairedComparison, ...]
    attacks: BestSet = field(metadata={"json": "lowest_attack_success_rate"})
    benign: BestSet = field(metadata={"json": "lowest_false_positive_rate"})
    left_out: tuple[str, ...] = ()
    areas: tuple[AreaPair, ...] = field(default=(), metadata={"json": False})
    is_whole_family: bool = field(default=True, metadata={"json": False})
    tests: int = field(default=0, metadata={"json": False})
    system: RunComparison | None = field(default=None, metadata={"json": False})

    def __repr__(self) -> str:
        """Tell the verdicts of the first pairs."""
        texts = [f"{pair.first} and {pair.second}: {pair.verdict.value}" for pair in self.pairs[:3]]
        if len(self.pairs) > 3:
            texts.append(f"{len(self.pairs) - 3} more pairs")
        return f"Comparison({'; '.join(texts)})"

    def rows(self) -> list[dict[str, str | float | int | None]]:
        """Return one flat row a pair: differences in shares, intervals, adjusted p."""
        rows = []
        for pair in self.pairs:
            row: dict[str, str | float | int | None] = {
                "first": pair.first,
                "second": pair.second,
                "verdict": pair.verdict.value,
            }
            sides = (("attack_success_rate", pair.attacks), ("false_positive_rate", pair.benign))
            for name, side in sides:
                difference = side.difference
                row[f"{name}_difference"] = difference.value
                row[f"{name}_low"] = difference.low
                row[f"{name}_high"] = difference.high
                row[f"{name}_pairs"] = difference.pairs
                row[f"{name}_p"] = difference.p_value
                row[f"{name}_adjusted_p"] = side.adjusted_p
            rows.append(row)
        return rows

    def to_frame(self) -> Any:
        """Return the pairs as a pandas data frame, one row a pair.

        Raises:
            ConfigError: If pandas is not installed.
        """
        with needs("A data frame needs pandas", "pandas"):
            pandas = import_module("pandas")
        return pandas.DataFrame(self.rows())

    def _repr_html_(self) -> str:
        """Draw the pairs as a table, for a notebook."""
        head = ("First", "Second", "Verdict", "ASR, points", "p", "FPR, points", "p")
        lines = [_table_row("th", head)]
        for pair in self.pairs:
            cells = [pair.first, pair.second, pair.verdict.value.replace("_", " ")]
            for side in (pair.attacks, pair.benign):
                cells += [_points(side.difference), _p_text(side.adjusted_p)]
            lines.append(_table_row("td", cells))
        caption = "First minus second; p adjusted by Holm over all pairs on both rates and areas"
        return f"<table><caption>{caption}</caption>{''.join(lines)}</table>"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the compared defenses."""
        names: dict[str, None] = {}
        for pair in self.pairs:
            names[pair.first] = None
            names[pair.second] = None
        return tuple(names)

    @property
    def front(self) -> tuple[str, ...]:
        """Defenses that none is shown to beat; empty where not every pair was compared."""
        if len(self.pairs) < math.comb(len(self.names), 2):
            return ()
        beaten = set()
        for pair in self.pairs:
            if pair.verdict is PairVerdict.FIRST_BETTER:
                beaten.add(pair.second)
            elif pair.verdict is PairVerdict.SECOND_BETTER:
                beaten.add(pair.first)
        return tuple(name for name in self.names if name not in beaten)


def _table_row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _points(difference: Difference) -> str:
    """Write a difference and its interval in percentage points."""
    value, low, high = difference.value, difference.low, difference.high
    if value is None or low is None or high is None:
        return "undefined"
    return f"{100 * value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _p_text(p_value: float | None) -> str:
    if p_value is None:
        return ""
    if p_value < 0.0001:
        return "< 0.0001"
    return f"{p_value:.4f}"


def compare_arms(
    frame: Frame,
    *,
    chosen: Sequence[tuple[str, str]] | None = None,
    areas: Sequence[AreaPair] = (),
    scope: str = DEFENSE,
    known: RunComparison | None = None,
    is_one_run: bool = False,
) -> RunComparison | None:
    """Compare chosen pairs, or all candidates, in a family with `areas`; `known` pairs stand.

    The family of one run is every pair of its candidates, also where a few of them are chosen: a
    pair has the same p wherever it is printed.
    """
    arms = _compared_arms(frame, chosen)
    if len(arms) < 2:
        return None
    outcomes = {arm.name: frame.matrix(arm) for arm in arms}
    everyone = list(combinations(outcomes, 2))
    names = everyone
    if chosen is not None:
        names = list(chosen)
    counted = {}
    if known is not None:
        for pair in known.pairs:
            counted[pair.first, pair.second] = pair
    family = _Family(frame, dict(outcomes), counted)
    sides = family.sides(names)
    of_areas = [area.difference.p_value for area in areas]
    family_pairs = len(names)
    if is_one_run:
        family_pairs = math.comb(len(frame.candidates(2)), 2)
        adjusted, adjusted_areas = family.adjust(names, sides, beside=of_areas)
    else:
        adjusted, adjusted_areas = adjust_sides(sides, of_areas)
    alpha = 1 - frame.settings.confidence
    on_attacks, on_benign = adjusted[: len(names)], adjusted[len(names) :]
    pairs = []
    for (first, second), attacks, benign in zip(names, on_attacks, on_benign, strict=True):
        pair = PairedComparison(
            first=first,
            second=second,
            attacks=attacks,
            benign=benign,
            verdict=judge_pair(attacks, benign, alpha=alpha),
            scope=scope,
        )
        pairs.append(pair)
    ranked = {}
    if len(names) == len(everyone):
        ranked = outcomes
    areas_of_family = []
    for area, p in zip(areas, adjusted_areas[: len(areas)], strict=True):
        areas_of_family.append(replace(area, adjusted_p=p))
    return RunComparison(
        pairs=tuple(pairs),
        attacks=_best_set(frame, ranked, pairs, is_attack=True),
        benign=_best_set(frame, ranked, pairs, is_attack=False),
        left_out=tuple(arm.name for arm in frame.arms if arm.name not in outcomes),
        areas=tuple(areas_of_family),
        is_whole_family=chosen is None or is_one_run,
        tests=2 * family_pairs + len(areas),
    )


def _compared_arms(
    frame: Frame, chosen: Sequence[tuple[str, str]] | None
) -> Sequence[DefenseColumn]:
    """Return the defenses of chosen pairs, or all candidates, of which there must be two."""
    if chosen is None:
        return frame.candidates(2)
    named: set[str] = set()
    for pair in chosen:
        named.update(pair)
    return [arm for arm in frame.arms if arm.name in named]


class _Family:
    """The tests of one run, adjusted together: every pair of candidates, on both rates."""

    def __init__(
        self,
        frame: Frame,
        outcomes: dict[str, Codes],
        counted: Mapping[tuple[str, str], PairedComparison],
    ) -> None:
        self._frame, self._outcomes, self._counted = frame, outcomes, counted
        self._candidates = [arm.name for arm in frame.candidates(2)]

    def sides(self, names: Sequence[tuple[str, str]]) -> list[PairedSide]:
        """Compare pairs on attacks, then on benign samples."""
        on_attacks = [self._side(pair, is_attack=True) for pair in names]
        on_benign = [self._side(pair, is_attack=False) for pair in names]
        return on_attacks + on_benign

    def adjust(
        self,
        names: Sequence[tuple[str, str]],
        sides: Sequence[PairedSide],
        *,
        beside: Sequence[float | None],
    ) -> tuple[list[PairedSide], list[float | None]]:
        """Adjust the sides of chosen pairs; a baseline enlarges the family for itself alone."""
        taken = [set(pair) for pair in names]
        left = [pair for pair in combinations(self._candidates, 2) if set(pair) not in taken]
        others = [*beside]
        others += [side.difference.p_value for side in self.sides(left)]
        adjusted, _ = adjust_sides(sides, others)
        own = []  # where the sides of candidates stand
        for position, pair in enumerate((*taken, *taken)):
            if pair <= set(self._candidates):
                own.append(position)
        of_run, adjusted_others = adjust_sides([sides[position] for position in own], others)
        for position, side in zip(own, of_run, strict=True):
            adjusted[position] = side
        return adjusted, adjusted_others

    def _side(self, pair: tuple[str, str], *, is_attack: bool) -> PairedSide:
        known = self._counted.get(pair)
        if known is not None:
            if is_attack:
                return known.attacks
            return known.benign
        for name in pair:
            if name not in self._outcomes:
                self._outcomes[name] = self._frame.matrix(self._frame.arm(name))
        return _compare(self._frame, self._outcomes, pair, is_attack=is_attack)


def _compare(
    frame: Frame, outcomes: dict[str, Codes], pair: tuple[str, str], *, is_attack: bool
) -> PairedSide:
    """Compare two defenses on one label."""
    marks = mark_pair(frame, outcomes[pair[0]], outcomes[pair[1]])
    side = compare_where(frame, marks, frame.is_attack == is_attack)
    if frame.stops is None or not any(frame.stopped(frame.arm(name)) for name in pair):
        return side
    difference = frame.stops.difference(*pair, is_attack=is_attack)
    p_value = difference.p_value
    return replace(side, difference=difference, adjusted_p=p_value, detectable=None, not_worse=None)


def judge_pair(attacks: PairedSide, benign: PairedSide, *, alpha: float) -> PairVerdict:
    """Say what two sides carry together."""
    on_attacks, on_benign = attacks.direction(alpha), benign.direction(alpha)
    if on_attacks * on_benign < 0:
        return PairVerdict.TRADE_OFF
    if on_attacks < 0:
        if on_benign < 0 or benign.first_not_worse:
            return PairVerdict.FIRST_BETTER
        return PairVerdict.FIRST_FEWER_BYPASSES
    if on_attacks > 0:
        if on_benign > 0 or benign.second_not_worse:
            return PairVerdict.SECOND_BETTER
        return PairVerdict.SECOND_FEWER_BYPASSES
    verdict = PairVerdict.UNDECIDED
    if on_benign < 0:
        verdict = PairVerdict.FIRST_FEWER_FALSE_ALARMS
    elif on_benign > 0:
        verdict = PairVerdict.SECOND_FEWER_FALSE_ALARMS
    return verdict


class PairMarks(NamedTuple):
    """Where two defenses stand by position; an error is an allowed attack or a blocked benign.

    Attributes:
        both: Both erred.
        first_only: Only the first erred.
        second_only: Only the second erred.
    """

    asked: Flags
    paired: Flags
    both: Flags
    first_only: Flags
    second_only: Flags


def mark_pair(frame: Frame, first: Codes, second: Codes) -> PairMarks:
    """Mark where two defenses were asked, both decided, and either erred."""
    paired = is_decision(first) & is_decision(second)
    first_erred = paired & ((first == BLOCK) != frame.is_attack)
    second_erred = paired & ((second == BLOCK) != frame.is_attack)
    return PairMarks(
        asked=(first != MISSING) | (second != MISSING),
        paired=paired,
        both=first_erred & second_erred,
        first_only=first_erred & ~second_erred,
        second_only=second_erred & ~first_erred,
    )


def compare_where(frame: Frame, marks: PairMarks, where: Flags) -> PairedSide:
    """Compare two defenses on some of the samples, paired and by group."""
    settings, groups = frame.settings, frame.groups

    def by_group(chosen: Flags) -> Ints:
        return np.bincount(groups[where & chosen], minlength=len(frame.samples.group.names))

    first, second, sizes = map(by_group, (marks.first_only, marks.second_only, marks.paired))
    difference = clustered_bonett_price(first, second, sizes=sizes, confidence=settings.confidence)
    if frame.crossing is not None:
        pairs = where & marks.paired
        difference = grouped_difference(
            marks.first_only[pairs],
            marks.second_only[pairs],
            groups=groups[pairs],
            crossing=frame.crossing[pairs],
            confidence=settings.confidence,
        )
    table = summarise_pairs(first, second, sizes=sizes)
    both = int((where & marks.both).sum())
    margin, alpha, not_worse = settings.non_inferiority_margin, 1 - settings.confidence, None
    if margin is not None:
        test = partial(noninferiority_clustered, sizes=sizes, margin=margin, alpha=min(0.49, alpha))
        not_worse = (test(first, second), test(second, first))
    detectable, largest_share, largest_name = None, None, ""
    if table.pairs:
        largest_share = float(sizes.max() / sizes.sum())
        largest_name = frame.samples.group.names[int(sizes.argmax())]
        detectable = smallest_detectable(difference, largest_group=largest_share)
    return PairedSide(
        difference=difference,
        adjusted_p=difference.p_value,
        both=both,
        neither=table.pairs - both - table.first_only - table.second_only,
        unpaired=int((where & marks.asked).sum()) - table.pairs,
        detectable=detectable,
        largest_group=largest_share,
        largest_name=largest_name,
        not_worse=not_worse,
    )


def adjust_sides(
    sides: Sequence[PairedSide], beside: Sequence[float | None] = ()
) -> tuple[list[PairedSide], list[float | None]]:
    """Adjust the tests of one family by Holm; `beside` are p values of its other tests."""
    p_values = [side.difference.p_value for side in sides]
    adjusted = holm([*p_values, *beside])
    adjusted_sides = []
    for side, p in zip(sides, adjusted, strict=False):
        adjusted_sides.append(replace(side, adjusted_p=p))
    return adjusted_sides, adjusted[len(sides) :]


def _best_set(
    frame: Frame,
    outcomes: dict[str, Codes],
    pairs: Sequence[PairedComparison],
    *,
    is_attack: bool,
) -> BestSet:
    """Rank defenses by their rate on the samples that all decided, and say who is told apart."""
    stacked = np.array(list(outcomes.values()), dtype=np.int8)
    common = (frame.is_attack == is_attack) & is_decision(stacked).all(axis=0)
    if not outcomes or not common.any():
        return BestSet(best="", undistinguished=())
    erred = (stacked[:, common] == BLOCK) != is_attack
    known = list(outcomes)
    ranked = [known[at] for at in erred.sum(axis=1).argsort(kind="stable").tolist()]
    best = ranked[0]
    alpha = 1 - frame.settings.confidence
    apart = []
    worse = set()
    for pair in pairs:
        side = pair.benign
        if is_attack:
            side = pair.attacks
        if not side.direction(alpha):
            continue
        apart.append((ranked.index(pair.first), ranked.index(pair.second)))
        if pair.first == best:
            worse.add(pair.second)
        elif pair.second == best:
            worse.add(pair.first)
    omnibus: CochranQ | None = None
    if len(ranked) > 2 and not frame.is_grouped:
        omnibus = cochran_q(erred.T)
    tiers = []
    for name, letters in zip(ranked, tier_letters(len(ranked), apart), strict=True):
        tiers.append(DefenseTier(defense=name, letters=letters))
    return BestSet(
        best=best,
        undistinguished=tuple(name for name in known if name not in worse),
        omnibus=omnibus,
        tiers=tuple(tiers),
    )
