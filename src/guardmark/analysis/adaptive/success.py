"""Which attacks count and when each got through: at one seed of the search, and over several."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from guardmark.analysis.adaptive.rows import FULL, STRICT, AttackHistory
from guardmark.analysis.defense.counts import grouped_difference
from guardmark.core.values import dataclass
from guardmark.stats.attempts.success_area import areas_of, success_area
from guardmark.stats.attempts.survival import chance_of_any, restricted_mean
from guardmark.stats.rates.means import (
    SeedMean,
    figure_over_seeds,
    mean_over_seeds,
    share_over_seeds,
)
from guardmark.store.layers import ADAPTIVE, BLIND, GRADIENT, NULL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.rows import AdaptiveRecords
    from guardmark.analysis.defense.counts import SampleRates
    from guardmark.core.estimate import Difference, Estimate
    from guardmark.stats.figures import Ratio

    Marks = NDArray[np.bool_]
    Numbers = NDArray[np.int64]


ROUNDS: Final = ("R0", "R1", "R2", "R3", "R4", "R5")  # rounds, in order
NAMED_ARMS: Final = (("adaptive", ADAPTIVE), ("blind", BLIND), ("null", NULL))
"""Arms by the names that reports have for them."""
NEVER: Final = np.iinfo(np.int64).max  # number of the first bypass of an attack that held
_GAINS: Final = (1, 2, 5, 16, 64)


def tries_compared(ks: Sequence[int]) -> list[int]:
    """Return the numbers of tries at which arms are compared: a few, and the budget."""
    return [k for k in ks if k in {*_GAINS, ks[-1]}]


class AttackMask:
    """The attacks of a measurement that count, with their groups.

    Attributes:
        groups: Their groups, which `rates.crossing` may cross.
        clusters: The groups of figures that know one factor: of two the one with fewer levels.
    """

    def __init__(self, records: AdaptiveRecords, attack: Marks, rates: SampleRates) -> None:
        self.records = records
        self.attack = attack
        self.rates = rates
        self.confidence = rates.confidence
        self.places = sorted(p for p in records.baseline if attack[p])
        self.groups = rates.groups[self.places]
        self.clusters = rates.clusters_at(self.places)
        self.static = np.array([records.baseline[p] for p in self.places], dtype=bool)
        self._firsts: dict[tuple[str, frozenset[str]], Numbers] = {}
        self._rounds: dict[frozenset[str], Numbers] = {}

    def rate(self, hits: Marks) -> Estimate:
        """Estimate the rate of a mark over the attacks."""
        return self.rates.at(self.places, hits)

    def difference(self, first: Marks, second: Marks) -> Difference:
        """Estimate the difference of two marks on the same attacks."""
        crossing = self.rates.crossing
        if crossing is not None:
            crossing = crossing[self.places]
        return grouped_difference(
            first,
            second,
            groups=self.groups,
            crossing=crossing,
            strata=self.rates.strata_at(self.places),
            confidence=self.confidence,
        )

    @property
    def rounds(self) -> set[str]:
        """The rounds of the search that some attack came to."""
        rounds: set[str] = set()
        for history in self.records.arms[ADAPTIVE].values():
            rounds.update(attempt.round for attempt in history.tries)
        return rounds

    def firsts(self, arm: str, tiers: frozenset[str] = FULL) -> Numbers:
        """Return the number of each attack's first bypass by search, in the order of places."""
        if (arm, tiers) in self._firsts:
            return self._firsts[arm, tiers]
        numbers = np.full(len(self.places), NEVER, dtype=np.int64)
        for at, sample in enumerate(self.places):
            history = self.records.arms[arm].get(sample)
            first = None
            if history is not None:
                first = history.first(tiers)
            if first is not None:
                numbers[at] = first
        firsts = np.where(self.static, 0, numbers)
        self._firsts[arm, tiers] = firsts
        return firsts

    def by(self, arm: str, k: int) -> Marks:
        """Mark attacks that got through as they are or by the k-th try of an arm."""
        marks: Marks = self.firsts(arm) <= k
        return marks

    def within(self, calls: int) -> Marks:
        """Mark attacks that got through within calls that count those which taught the search."""
        diagnosis = self.records.calls.get((ADAPTIVE, "diagnosis"), 0) / max(1, len(self.places))
        needed = []
        for sample, first in zip(self.places, self.firsts(ADAPTIVE).tolist(), strict=True):
            listed = self.records.battery.get(sample, AttackHistory())
            in_list = listed.first() or len(listed.tries) + first
            needed.append(diagnosis + in_list)
        return self.static | (np.array(needed) <= calls)

    def bypassed(self, until: str, tiers: frozenset[str]) -> Marks:
        """Mark attacks that had got through by the end of a round."""
        if tiers not in self._rounds:
            rounds = np.array([self._round(index, tiers) for index in self.places], dtype=np.int64)
            self._rounds[tiers] = np.where(self.static, 0, rounds)
        marks: Marks = self._rounds[tiers] <= ROUNDS.index(until)
        return marks

    def _round(self, index: int, tiers: frozenset[str]) -> int:
        """Return the number of the first round that brought an attack through."""
        listed = self.records.battery.get(index)
        if listed is not None and listed.first(tiers) is not None:
            return 1
        history = self.records.arms[ADAPTIVE].get(index)
        if history is None:
            return len(ROUNDS)
        first = len(ROUNDS)
        for attempt in history.tries:
            if history.holds(attempt, tiers):
                first = min(first, ROUNDS.index(attempt.round))
        return first

    def blind_counts(self) -> list[tuple[int, int]]:
        """Return tries and wins of each attack by the blind arm; one that passes always does."""
        budget = self.records.budget
        counts = []
        for sample, passes_as_it_is in zip(self.places, self.static, strict=True):
            history = self.records.arms[BLIND].get(sample)
            if passes_as_it_is:
                counts.append((budget, budget))
            elif history is None:
                counts.append((0, 0))
            else:
                counts.append((len(history.tries), history.wins(budget)))
        return counts

    def area(self, arm: str) -> Ratio:
        """Estimate the area under the curve of an arm."""
        reached, budget = self.reached(arm), self.records.budget
        return success_area(
            *reached, budget=budget, groups=self.clusters, confidence=self.confidence
        )

    def reached(self, arm: str) -> tuple[Numbers, Marks]:
        """Return the tries of an arm to each attack's first bypass, and whether there was one."""
        firsts = self.firsts(arm)
        return np.where(firsts < NEVER, firsts, 0), firsts < NEVER


class SearchTimes:
    """Search tries of each attack that was blocked at first, up to its first bypass."""

    def __init__(self, view: AttackMask) -> None:
        samples, times, bypassed = [], [], []
        for sample, history in sorted(view.records.arms[ADAPTIVE].items()):
            first = history.first()
            samples.append(sample)
            times.append(first or len(history.tries))
            bypassed.append(first is not None)
        self.times = np.array(times, dtype=float)
        self.bypassed = np.array(bypassed, dtype=bool)
        self.groups = view.rates.clusters_at(samples)


class SurvivalTime(NamedTuple):
    """When an attack first passed (0: as it is; None: never), and whether by the end."""

    sample: int
    group: int
    adaptive: int | None
    bypassed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaCard:
    """The area under ASR@k on log k, from one try to the budget.

    Attributes:
        adaptive: Of the adaptive arm; lower is better for the defense.
        blind: Of the blind arm; None without control arms.
        given_up: Attacks that count as held after fewer answers than the budget; the area may be
            too low.
        fates: What each attack came to, in the order of the samples.
    """

    adaptive: Ratio
    blind: Ratio | None
    given_up: int
    fates: tuple[SurvivalTime, ...] = field(metadata={"json": False})


def measure_area(view: AttackMask, *, last: Marks) -> AreaCard:
    """Estimate the areas of both arms; the last round's marks say what got through at all."""
    given_up = 0
    for history in view.records.arms[ADAPTIVE].values():
        if history.first() is None and len(history.tries) < view.records.budget:
            given_up += 1
    times = []
    firsts = view.firsts(ADAPTIVE).tolist()
    for row in zip(view.places, view.clusters.tolist(), firsts, last.tolist(), strict=True):
        sample, group, first, bypassed = row
        adaptive = None
        if first != NEVER:
            adaptive = first
        times.append(SurvivalTime(sample, group, adaptive, bypassed))
    blind = None
    if view.records.has_controls:
        blind = view.area(BLIND)
    return AreaCard(
        adaptive=view.area(ADAPTIVE),
        blind=blind,
        given_up=given_up,
        fates=tuple(times),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCard:
    """The arm with gradient access, beside the arms that only see answers.

    Attributes:
        attack: Name and version of the attack that follows the gradient.
        strict: Share of all attacks through as they are or by variants of tiers V0 and V1.
        full: The same by all proved tiers.
        gain: Full minus the attacks that pass as they are, paired.
        unproved: Attacks that got through by unproved variants (V4) alone; in no rate.
        tries: Variants the defense answered.
    """

    attack: str
    strict: Estimate
    full: Estimate
    gain: Difference
    unproved: int
    tries: int


def measure_gradient(view: AttackMask) -> GradientCard | None:
    """Compute what following the gradient came to."""
    tries = sum(len(history.tries) for history in view.records.arms[GRADIENT].values())
    if not tries:
        return None
    strict = view.firsts(GRADIENT, STRICT) < NEVER
    full = view.firsts(GRADIENT, FULL) < NEVER
    any_tier = view.firsts(GRADIENT, FULL | {"V4"}) < NEVER
    return GradientCard(
        attack=str(view.records.settings.get("gradient", "")),
        strict=view.rate(strict),
        full=view.rate(full),
        gain=view.difference(full, view.static),
        unproved=int((any_tier & ~full).sum()),
        tries=tries,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRound:
    """What had got through by the end of a round of the search, over seeds.

    Attributes:
        name: `R2` to `R4`; what comes before is the same at every seed.
        strict: By variants that are provably the same text (V0, V1).
        full: By all proved tiers.
    """

    name: str = field(metadata={"json": "round"})
    strict: SeedMean
    full: SeedMean


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedCurve:
    """Success of an arm by search tries, over seeds.

    Attributes:
        arm: `adaptive`, `blind` or `null`.
        points: Tries and the share of all attacks through by then, the whole budget last.
    """

    arm: str
    points: tuple[tuple[int, SeedMean], ...]

    @property
    def at_budget(self) -> SeedMean:
        """The share at the end of the budget."""
        return self.points[-1][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedsCard:
    """What a measurement of several seeds says of one defense.

    Attributes:
        seeds: Seeds carried out.
        counted: Seeds the figures are over; not the first where only there an attacker model had
            its round.
        asr_at: ASR@k of the blind arm by Chen's estimator, by k.
        gains: Adaptive minus blind at equal tries, by k.
        null_gain: Null arm minus static.
        delta: Last round minus static.
        mean_tries: Mean tries up to the budget of attacks blocked at first, or None without any.
        area_adaptive: Area under success by search tries, adaptive arm.
        area_blind: The same of the blind arm.
        any_seed_strict: Attacks that got through at one seed at least, so of an attacker who tries
            them all.
        any_seed_full: The same, all proved tiers.
    """

    seeds: int
    counted: tuple[int, ...]
    rounds: tuple[SeedRound, ...]
    arms: tuple[SeedCurve, ...]
    asr_at: tuple[tuple[int, SeedMean], ...] = field(metadata={"json": "blind_asr_at"})
    gains: tuple[tuple[int, SeedMean], ...]
    null_gain: SeedMean
    delta: SeedMean = field(metadata={"json": "robustness_delta"})
    mean_tries: SeedMean | None
    area_adaptive: SeedMean
    area_blind: SeedMean
    any_seed_strict: Estimate
    any_seed_full: Estimate

    @property
    def headline(self) -> SeedMean | None:
        """All proved tiers by the end of the last round, or None where nothing was searched."""
        if self.rounds:
            return self.rounds[-1].full
        return None


def measure_seeds(view: AttackMask, ks: Sequence[int]) -> SeedsCard | None:
    """Compute what several seeds came to."""
    records = view.records
    if not records.repeated:
        return None
    histories = [records.arms, *records.repeated]
    first = 1
    if records.attacker:  # an attacker model had its round at the first seed alone
        first = 2
    numbers = tuple(range(first, len(histories) + 1))
    views = []
    for number in numbers:
        of_seed = replace(records, arms=histories[number - 1])
        views.append(AttackMask(of_seed, view.attack, view.rates))
    over = _Over(views)
    static = view.static[:, None]
    strict, full = over.bypassed(ROUNDS[4], STRICT), over.bypassed(ROUNDS[4], FULL)
    gains = []
    for k in tries_compared(ks):
        gains.append((k, over.gap(over.by(ADAPTIVE, k), over.by(BLIND, k))))
    return SeedsCard(
        seeds=len(histories),
        counted=numbers,
        rounds=over.rounds(),
        arms=over.curves(ks),
        asr_at=over.blind_asr_at(ks),
        gains=tuple(gains),
        null_gain=over.gap(over.by(NULL, ks[-1]), static),
        delta=over.gap(full, static),
        mean_tries=over.mean_tries(ks[-1]),
        area_adaptive=over.area(ADAPTIVE),
        area_blind=over.area(BLIND),
        any_seed_strict=view.rate(np.logical_or.reduce(strict, axis=1)),
        any_seed_full=view.rate(np.logical_or.reduce(full, axis=1)),
    )


class _Over:
    """Tables of the same attacks at several seeds, shape (attacks, seeds), and their means."""

    def __init__(self, views: Sequence[AttackMask]) -> None:
        self.views = views
        self.groups = views[0].clusters
        self.confidence = views[0].confidence

    def rounds(self) -> tuple[SeedRound, ...]:
        """Return what had got through by the end of every round that some seed came to."""
        reached: set[str] = set()
        for view in self.views:
            reached |= view.rounds
        rounds = []
        for name in ROUNDS:
            if name in reached:
                strict = self.share(self.bypassed(name, STRICT))
                full = self.share(self.bypassed(name, FULL))
                rounds.append(SeedRound(name=name, strict=strict, full=full))
        return tuple(rounds)

    def curves(self, ks: Sequence[int]) -> tuple[SeedCurve, ...]:
        """Return the success of each arm by tries."""
        curves = []
        for name, arm in NAMED_ARMS:
            points = tuple((k, self.share(self.by(arm, k))) for k in ks)
            curves.append(SeedCurve(arm=name, points=points))
        return tuple(curves)

    def bypassed(self, name: str, tiers: frozenset[str]) -> Marks:
        """Mark what had got through by the end of a round."""
        return np.stack([view.bypassed(name, tiers) for view in self.views], axis=1)

    def by(self, arm: str, k: int) -> Marks:
        """Mark what had got through by the k-th try of an arm."""
        return np.stack([view.by(arm, k) for view in self.views], axis=1)

    def share(self, table: Marks | NDArray[np.float64]) -> SeedMean:
        """Estimate the mean of figures in [0, 1]."""
        return share_over_seeds(table, self.groups, confidence=self.confidence)

    def gap(self, first: Marks, second: Marks) -> SeedMean:
        """Estimate the mean of what the first marks have beyond the second."""
        table = first.astype(float) - second
        return mean_over_seeds(table, self.groups, least=-1.0, most=1.0, confidence=self.confidence)

    def area(self, arm: str) -> SeedMean:
        """Estimate the area under the curve of an arm."""
        budget = self.views[0].records.budget
        areas = [areas_of(*view.reached(arm), budget=budget) for view in self.views]
        return self.share(np.stack(areas, axis=1))

    def blind_asr_at(self, ks: Sequence[int]) -> tuple[tuple[int, SeedMean], ...]:
        """Estimate success of exchangeable tries, as far as every attack was tried."""
        by_seed = [view.blind_counts() for view in self.views]
        fewest = [min(tried for tried, _ in counts) for counts in by_seed if counts]
        least = min(fewest, default=0)
        rates = []
        for k in ks:
            if k > least:
                continue
            columns = []
            for counts in by_seed:
                columns.append([chance_of_any(tried, wins, k) for tried, wins in counts])
            rates.append((k, self.share(np.stack(columns, axis=1))))
        return tuple(rates)

    def mean_tries(self, budget: int) -> SeedMean | None:
        """Estimate the mean tries to a bypass, of attacks blocked at first."""
        seeds = [SearchTimes(view) for view in self.views]
        if not all(each.times.size for each in seeds):
            return None
        horizon = min(float(budget), *(float(each.times.max()) for each in seeds))
        figures = [_mean(each, horizon) for each in seeds]
        groups: set[int] = set()
        for each in seeds:
            groups.update(each.groups.tolist())
        without = [figures]
        if len(groups) > 1:
            without = []
            for group in sorted(groups):
                without.append([_mean(each, horizon, without=group) for each in seeds])
        return figure_over_seeds(
            figures,
            without,
            trials=max(len(each.times) for each in seeds),
            most=horizon,
            confidence=self.confidence,
        )


def _mean(each: SearchTimes, horizon: float, *, without: int | None = None) -> float:
    """Return the restricted mean, one group left out on demand; NaN where undefined."""
    kept = each.groups != (-1 if without is None else without)
    value = restricted_mean(each.times[kept], each.bypassed[kept], horizon=horizon).value
    if value is None:
        return float("nan")
    return value
