"""Defenses of matched runs against each other, with what lies behind each pair."""

from __future__ import annotations

from dataclasses import field, replace
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guardmark.analysis.compare.chains import ChainRanking, rank_chains
from guardmark.analysis.compare.comparison import (
    PairedSide,
    RunComparison,
    adjust_sides,
    compare_arms,
    compare_where,
    mark_pair,
)
from guardmark.analysis.compare.matching import match_runs
from guardmark.analysis.defense.costs import compare_costs
from guardmark.analysis.defense.latency import is_timed
from guardmark.analysis.defense.scorecard import estimate_rates
from guardmark.analysis.defense.scores import areas_in_family
from guardmark.analysis.defense.slices import NOT_STATED, SEVERITIES
from guardmark.analysis.pipeline.frame import DEFENSE, SYSTEM, holds_parts
from guardmark.core.errors import GuardmarkError, IncomparableRuns, UnknownName
from guardmark.core.sample import minimum_of
from guardmark.core.values import dataclass
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.quantiles import estimate_quantiles, median_difference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.analysis.compare.comparison import PairedComparison, PairMarks
    from guardmark.analysis.compare.matching import ComparedRun, MatchedRuns, OpenRun, Origin
    from guardmark.analysis.defense.costs import CostDifference
    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.defense.scorecard import RatePair
    from guardmark.analysis.defense.scores import AreaPair
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Difference
    from guardmark.core.sample import Sample
    from guardmark.stats.arguments import Flags, Floats, Ints
    from guardmark.stats.figures import Quantile

_DETAILED: Final = 12  # most pairs described at length; beyond, one names the pair of interest
_LEAST_DRAWS: Final = 200
_MOST_CELLS: Final = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryDifference:
    """Two defenses on one category.

    Attributes:
        category: Its name; `(not stated)` for samples without one.
        is_attack: Whether these are attacks (ASR) or benign samples (FPR).
        side: First minus second; p by Holm over the pair.
        is_greyed: Whether the pairs are fewer than the minimum of a category.
    """

    category: str
    is_attack: bool
    side: PairedSide = field(metadata={"json": "*"})
    is_greyed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyDifference:
    """How much longer the first takes than the second, on the same samples.

    Attributes:
        is_attack: Whether these are attacks or benign samples; never pooled.
        median: First minus second.
        first: Of the first by itself.
        second: Of the second by itself.
        untimed: Left out: not timed, out of time, kept, or the first call, on a side.
    """

    is_attack: bool
    median: Difference = field(metadata={"json": "median_difference_ms"})
    first: Quantile = field(metadata={"json": "first_median_ms"})
    second: Quantile = field(metadata={"json": "second_median_ms"})
    untimed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordantSample:
    """A sample on which only one of two defenses erred.

    Attributes:
        sample: In full.
        erred: Name of the defense that was wrong.
    """

    DERIVED: ClassVar = ("sha256", "text")

    sample: Sample = field(metadata={"json": ("id", "label", "category", "severity")})
    erred: str

    @property
    def sha256(self) -> str:
        """Content hash (hex) of the prompt."""
        return self.sample.prompt.digest().hex()

    @property
    def text(self) -> str | None:
        """The text under test; null where texts are withheld."""
        return self.sample.prompt.words


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDetail:
    """What lies behind the comparison of two defenses.

    Attributes:
        categories: Attacks, then benign; greatest difference first.
        latency: By label.
        costs: Tokens and money, where both sides report them.
        discordant: To read: what only the first got wrong comes first.
        first_only: Samples only the first got wrong, at least once.
        second_only: Samples only the second got wrong, at least once.
    """

    first: str = field(metadata={"json": False})
    second: str = field(metadata={"json": False})
    categories: tuple[CategoryDifference, ...]
    latency: tuple[LatencyDifference, ...] = field(metadata={"json": "timing"})
    costs: tuple[CostDifference, ...]
    discordant: tuple[DiscordantSample, ...]
    first_only: int
    second_only: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DefenseRates:
    """Where one defense of a comparison stands by itself.

    Attributes:
        name: Its name in the comparison.
        rates: Attack success rate and false positive rate over the common samples it answered.
    """

    name: str = field(metadata={"json": "defense"})
    rates: RatePair = field(metadata={"json": ("attack_success_rate", "false_positive_rate")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Defenses against each other, in one run or across runs.

    Attributes:
        scope: `defense` (what each decided) or `system` (what came out of guard and model).
        origins: Where each comes from.
        attacks: Attacks compared.
        benign: Benign samples compared.
        is_grouped: Whether samples share groups or are run more than once.
        confidence: Nominal coverage of the intervals.
        margin: False positive rates higher by no more count as not worse; or None.
        comparison: Differences and tests.
    """

    scope: str
    runs: tuple[ComparedRun, ...]
    origins: tuple[Origin, ...] = field(metadata={"json": "defenses"})
    attacks: int
    benign: int
    is_grouped: bool
    confidence: float
    min_per_category: int = field(metadata={"json": False})
    margin: float | None
    comparison: RunComparison = field(
        metadata={
            "json": {
                "lowest_attack_success_rate": "attacks",
                "lowest_false_positive_rate": "benign",
                "left_out": "left_out",
                "front": "front",
            }
        }
    )
    details: tuple[PairDetail, ...] = field(metadata={"json": False})
    rates: tuple[DefenseRates, ...]
    remarks: tuple[str, ...] = field(metadata={"json": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is compared: all candidates where `only` is empty, every pair without a base.

    Attributes:
        listed: Discordant samples read for each side of a pair, at most.
        chains: Most members of the chains to rank, in place of pairs.
        known: Comparisons of these runs by scope, whose pairs are not counted again.
    """

    only: tuple[str, ...] = ()
    against: str = ""
    listed: int = 5
    latency: bool = True
    chains: int = 0
    known: Mapping[str, RunComparison | None] = field(default_factory=dict)


def compare_matched(matched: MatchedRuns, wanted: Wanted) -> Compared:
    """Compare the defenses of matched runs."""
    frame, settings = matched.frame, matched.frame.settings
    scope, chosen = matched.scope, choose_pairs(matched, wanted)
    known = wanted.known.get(scope)
    is_one_run = len(matched.runs) == 1
    areas: Sequence[AreaPair] = ()
    if scope == DEFENSE and (is_one_run or not (wanted.only or wanted.against)):
        # The family of tests of the report, so that a p is the same wherever it is printed.
        if known is not None:
            areas = known.areas
        else:
            areas = areas_in_family(frame)
    comparison = compare_arms(
        frame, chosen=chosen, areas=areas, scope=scope, known=known, is_one_run=is_one_run
    )
    if comparison is None or not comparison.pairs:
        raise IncomparableRuns(
            "There is one defense only, so there is nothing to compare it with.\n"
            "Next: name a second run over the same samples, or measure two defenses in one run."
        )
    attacks = int(frame.samples.is_attack.sum())
    rates = []
    for arm in frame.arms:
        if arm.name in comparison.names:
            rates.append(DefenseRates(name=arm.name, rates=estimate_rates(frame, arm)))
    return Compared(
        scope=scope,
        runs=matched.runs,
        origins=matched.origins,
        attacks=attacks,
        benign=frame.sample_count - attacks,
        is_grouped=frame.is_grouped,
        confidence=settings.confidence,
        min_per_category=settings.min_per_category,
        margin=settings.non_inferiority_margin,
        comparison=comparison,
        details=tuple(_detail_pair(matched, pair, wanted) for pair in comparison.pairs[:_DETAILED]),
        rates=tuple(rates),
        remarks=matched.remarks,
    )


def choose_pairs(matched: MatchedRuns, wanted: Wanted) -> list[tuple[str, str]]:
    """Choose pairs: in one run every two, across runs each with its successor, else all across."""
    names = choose_names(matched, wanted.only)
    if wanted.against:
        base = _find(matched.origins, wanted.against)[0]
        return [(name, base) for name in names if name != base]
    if len(matched.runs) == 1:
        return list(combinations(names, 2))
    chosen = [origin for origin in matched.origins if origin.name in names]
    return _successors(chosen, matched.runs[0].label) or _across(chosen)


def _successors(origins: Sequence[Origin], first_run: str) -> list[tuple[str, str]]:
    """Pair each defense of a later run with the one of that name in the first run."""
    before = {origin.defense: origin.name for origin in origins if origin.run == first_run}
    pairs = []
    for origin in origins:
        if origin.run != first_run and origin.defense in before:
            pairs.append((origin.name, before[origin.defense]))
    return pairs


def _across(origins: Sequence[Origin]) -> list[tuple[str, str]]:
    """Pair every two defenses of different runs, the later one first."""
    pairs = []
    for earlier, later in combinations(origins, 2):
        if earlier.run != later.run:
            pairs.append((later.name, earlier.name))
    return pairs


def choose_names(matched: MatchedRuns, only: Sequence[str]) -> list[str]:
    """Return the names of the defenses that words name; without any, of all candidates."""
    if not only:
        return [arm.name for arm in matched.frame.candidates(2)]
    named: list[str] = []
    for word in only:
        named.extend(_find(matched.origins, word))
    return named


def _find(origins: Sequence[Origin], word: str) -> list[str]:
    """Return the defenses a word names: by the name in the comparison, or in any of the runs."""
    exact = [origin.name for origin in origins if origin.name == word]
    names = exact or [origin.name for origin in origins if origin.defense == word]
    if not names:
        raise UnknownName("defense", word, {origin.name for origin in origins})
    return names


def _detail_pair(matched: MatchedRuns, pair: PairedComparison, wanted: Wanted) -> PairDetail:
    """Look behind the comparison of two defenses: categories, times, costs, single samples."""
    frame = matched.frame
    first, second = frame.arm(pair.first), frame.arm(pair.second)
    marks = mark_pair(frame, frame.matrix(first), frame.matrix(second))
    first_only = _differing(frame, marks.first_only)
    second_only = _differing(frame, marks.second_only)
    latency = []
    if wanted.latency:
        for is_attack in (True, False):
            latency.append(_latency(matched, (first, second), is_attack=is_attack))
    # What a system consumes is the sum of its parts, and is not compared.
    used_first = matched.consumption.get(pair.first)
    used_second = matched.consumption.get(pair.second)
    costs: tuple[CostDifference, ...] = ()
    if used_first is not None and used_second is not None:
        costs = tuple(compare_costs(frame, used_first, used_second))
    discordant = []
    for name, positions in ((pair.first, first_only), (pair.second, second_only)):
        for at in positions[: wanted.listed]:
            sample = matched.reader.sample_at(int(matched.places[at]))
            discordant.append(DiscordantSample(sample=sample, erred=name))
    return PairDetail(
        first=pair.first,
        second=pair.second,
        categories=_categories(frame, marks),
        latency=tuple(latency),
        costs=costs,
        discordant=tuple(discordant),
        first_only=len(first_only),
        second_only=len(second_only),
    )


def _categories(frame: Frame, marks: PairMarks) -> tuple[CategoryDifference, ...]:
    """Compare each category of attacks and of benign samples; all are one family of tests."""
    category, rows = frame.samples.category, []
    codes = np.tile(category.codes, frame.manifest.repeats)
    for is_attack in (True, False):
        label = frame.is_attack == is_attack
        for code in np.unique(codes[label]).tolist():
            side = compare_where(frame, marks, label & (codes == code))
            least = frame.settings.min_per_category
            if is_attack:
                least = minimum_of(category.names[code], least)
            row = CategoryDifference(
                category=category.names[code] or NOT_STATED,
                is_attack=is_attack,
                side=side,
                is_greyed=side.difference.pairs < least,
            )
            rows.append(row)
    adjusted, _ = adjust_sides([row.side for row in rows])
    family = []
    for row, side in zip(rows, adjusted, strict=True):
        family.append(replace(row, side=side))
    family.sort(
        key=lambda row: (not row.is_attack, -abs(row.side.difference.value or 0.0), row.category)
    )
    return tuple(family)


def _latency(
    matched: MatchedRuns, arms: tuple[DefenseColumn, DefenseColumn], *, is_attack: bool
) -> LatencyDifference:
    """Compare medians over the samples that both timed, in the order of the calls."""
    frame = matched.frame
    settings, label = frame.settings, frame.is_attack == is_attack
    first, second = (_times_to_end(frame, arm) for arm in arms)
    both = label & ~np.isnan(first) & ~np.isnan(second)
    first, second = first[both], second[both]
    orders = [matched.ranks[arm.name][both] for arm in arms]
    groups: Ints | None = None
    if frame.is_grouped:
        groups = frame.groups[both].astype(np.int64)
    first_alone = _median(first, orders[0], groups, confidence=settings.confidence)
    second_alone = _median(second, orders[1], groups, confidence=settings.confidence)
    if _is_one_order(*orders):
        orders = orders[:1]
    # Draw less often where there are many pairs: the limits of a median hardly move then.
    most = max(_LEAST_DRAWS, _MOST_CELLS // max(1, len(first)))
    return LatencyDifference(
        is_attack=is_attack,
        median=median_difference(
            first,
            second,
            groups=groups,
            orders=orders,
            confidence=settings.confidence,
            drawing=DrawPlan(seed=settings.seed, replicates=min(settings.replicates, most)),
        ),
        first=first_alone,
        second=second_alone,
        untimed=int(label.sum() - both.sum()),
    )


def _times_to_end(frame: Frame, arm: DefenseColumn) -> Floats:
    """Return the milliseconds of a defense by place; nan where it was not timed to the end.

    A time limit that was hit says how long one waited, not how long it took.
    """
    records = arm.records
    return frame.spread(
        records, records.latency_ns / 1e6, is_timed(records) & (records.error_kind < 0)
    )


def _median(times: Floats, asked: Ints, groups: Ints | None, *, confidence: float) -> Quantile:
    """Estimate a median of times, in the order of the calls; without limits the value stands."""
    order = np.argsort(asked, kind="stable")
    if groups is not None:
        groups = groups[order]
    (median,) = estimate_quantiles(
        times[order],
        [0.5],
        groups=groups,
        is_in_time_order=True,
        confidence=confidence,
    )
    if median.value is None and times.size:
        return replace(median, value=float(np.median(times)), low=None, high=None)
    return median


def _is_one_order(first: Ints, second: Ints) -> bool:
    """Tell whether both sides were asked about the same samples one after the other."""
    return bool((np.argsort(first, kind="stable") == np.argsort(second, kind="stable")).all())


def _differing(frame: Frame, alone: Flags) -> list[int]:
    """Return the samples only one side got wrong: attacks before benign ones, by severity."""
    rows = alone.reshape(frame.manifest.repeats, frame.sample_count)
    samples = np.flatnonzero(rows.any(axis=0))
    names = frame.samples.severity.names
    ranks = np.full(len(names), -1)
    for code, name in enumerate(names):
        if name in SEVERITIES:
            ranks[code] = SEVERITIES.index(name)
    severity = ranks[frame.samples.severity.codes[samples]]
    order = np.lexsort((samples, -severity, ~frame.samples.is_attack[samples]))
    positions: list[int] = samples[order].tolist()
    return positions


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedComparisons:
    """What a comparison says at each scope that the runs have, the system first."""

    system: Compared | None
    defenses: Compared | None
    chains: ChainRanking | None = None

    @property
    def all(self) -> tuple[Compared, ...]:
        """Every comparison there is; at least one."""
        return tuple(each for each in (self.system, self.defenses) if each is not None)

    @property
    def comparison(self) -> RunComparison:
        """The comparison of the defenses, with that of the systems in it."""
        first = self.all[-1].comparison
        if self.system is None or self.defenses is None:
            return first
        return replace(first, system=self.system.comparison)


def compare_scopes(
    opened: Sequence[OpenRun], settings: AnalysisSettings, wanted: Wanted
) -> ScopedComparisons:
    """Compare opened runs at every scope they have; refused where there is nothing at any."""
    if wanted.chains:
        matched = match_runs(opened, settings)
        names = choose_names(matched, wanted.only)
        ranking = rank_chains(matched, names=names, size=wanted.chains)
        return ScopedComparisons(system=None, defenses=None, chains=ranking)
    refusal: GuardmarkError | None = None
    compared: dict[str, Compared] = {}
    for scope in (DEFENSE, SYSTEM):
        kinds = ("model", "judge") if scope == SYSTEM else ()
        if not all(holds_parts(run.reader, *kinds) for run in opened):
            continue
        try:
            compared[scope] = compare_matched(match_runs(opened, settings, scope=scope), wanted)
        except (IncomparableRuns, UnknownName) as error:
            refusal = refusal or error
    if refusal is not None and not compared:
        raise refusal
    return ScopedComparisons(system=compared.get(SYSTEM), defenses=compared.get(DEFENSE))
