"""What several seeds of the search came to: their mean, and how far one differs from another."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.adaptive.rows import FULL, STRICT
from guardmark.analysis.adaptive.success import NEVER, ROUNDS, AttackMask, SearchTimes
from guardmark.stats.attempts.success_area import areas_of
from guardmark.stats.attempts.survival import chance_of_any, restricted_mean
from guardmark.stats.rates.means import (
    SeedMean,
    figure_over_seeds,
    mean_over_seeds,
    share_over_seeds,
)
from guardmark.store.layers import ADAPTIVE, BLIND, NULL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.rows import AdaptiveRecords
    from guardmark.analysis.defense.counts import SampleRates
    from guardmark.core.estimate import Estimate

    Marks = NDArray[np.bool_]
    Figures = NDArray[np.float64]

GAINS: Final = (1, 2, 5, 16, 64)
"""Numbers of tries at which arms are compared, beside the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRound:
    """What had got through by the end of a round of the search, over seeds."""

    # `R2` to `R4`; what comes before is the same at every seed.
    name: str = field(metadata={"json": "round"})
    strict: SeedMean  # By variants that are provably the same text (V0, V1).
    full: SeedMean  # By all proved tiers.


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedCurve:
    """Success of an arm by search tries, over seeds."""

    arm: str  # `adaptive`, `blind` or `null`.
    # Tries and the share of all attacks that had got through by then; the last one is that of the
    # whole budget.
    points: tuple[tuple[int, SeedMean], ...]

    @property
    def at_budget(self) -> SeedMean:
        """The share at the end of the budget."""
        return self.points[-1][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedsCard:
    """What a measurement of several seeds says of one defense."""

    seeds: int  # Seeds carried out.
    # Numbers of those the figures are over. The first is left out where an attacker model had its
    # round there and nowhere else.
    counted: tuple[int, ...]
    rounds: tuple[SeedRound, ...]
    arms: tuple[SeedCurve, ...]
    # ASR@k of the blind arm by Chen's estimator, by k.
    asr_at: tuple[tuple[int, SeedMean], ...] = field(metadata={"json": "blind_asr_at"})
    gains: tuple[tuple[int, SeedMean], ...]  # Adaptive minus blind at equal tries, by k.
    null_gain: SeedMean  # Null arm minus static.
    delta: SeedMean = field(metadata={"json": "robustness_delta"})  # Last round minus static.
    # Mean tries up to the budget of attacks blocked at first, or None without any.
    mean_tries: SeedMean | None
    area_adaptive: SeedMean  # Area under success by search tries, adaptive arm.
    area_blind: SeedMean  # The same of the blind arm.
    # Attacks that fell at one seed at least: an attacker who tries them all. It rises with the
    # number of seeds and is no estimate of any single one.
    any_seed_strict: Estimate
    any_seed_full: Estimate  # The same, all proved tiers.

    @property
    def headline(self) -> SeedMean | None:
        """All proved tiers by the end of the last round, or None where nothing was searched."""
        return self.rounds[-1].full if self.rounds else None


def measure_seeds(
    battle: AdaptiveRecords, attack: NDArray[np.bool_], rates: SampleRates, *, ks: Sequence[int]
) -> SeedsCard | None:
    """Compute what several seeds came to."""
    if not battle.repeated:
        return None
    stories = [battle.stories, *battle.repeated]
    numbers = tuple(range(2 if battle.attacker else 1, len(stories) + 1))
    views = [AttackMask(replace(battle, stories=stories[n - 1]), attack, rates) for n in numbers]
    over, budget, static = _Over(views), ks[-1], views[0].static[:, None]
    strict, full = over.fallen(ROUNDS[4], STRICT), over.fallen(ROUNDS[4], FULL)
    return SeedsCard(
        seeds=len(stories),
        counted=numbers,
        rounds=tuple(
            SeedRound(
                name=name,
                strict=over.share(over.fallen(name, STRICT)),
                full=over.share(over.fallen(name, FULL)),
            )
            for name in ROUNDS
            if any(name in view.rounds for view in views)
        ),
        arms=tuple(
            SeedCurve(arm=name, points=tuple((k, over.share(over.by(layer, k))) for k in ks))
            for name, layer in (("adaptive", ADAPTIVE), ("blind", BLIND), ("null", NULL))
        ),
        asr_at=over.blind_asr_at(ks),
        gains=tuple(
            (k, over.gap(over.by(ADAPTIVE, k), over.by(BLIND, k)))
            for k in ks
            if k in {*GAINS, budget}
        ),
        null_gain=over.gap(over.by(NULL, budget), static),
        delta=over.gap(full, static),
        mean_tries=over.mean_tries(budget),
        area_adaptive=over.area(ADAPTIVE, budget),
        area_blind=over.area(BLIND, budget),
        any_seed_strict=views[0].rate(np.logical_or.reduce(strict, axis=1)),
        any_seed_full=views[0].rate(np.logical_or.reduce(full, axis=1)),
    )


class _Over:
    """Tables of the same attacks at several seeds, shape (attacks, seeds), and their means."""

    def __init__(self, views: Sequence[AttackMask]) -> None:
        self.views = views
        self.groups, self.confidence = views[0].groups, views[0].confidence

    def fallen(self, name: str, tiers: frozenset[str]) -> Marks:
        """Mark what had got through by the end of a round."""
        return np.stack([view.fallen(name, tiers) for view in self.views], axis=1)

    def by(self, layer: str, k: int) -> Marks:
        """Mark what had got through by the k-th try of an arm."""
        return np.stack([view.by(layer, k) for view in self.views], axis=1)

    def share(self, table: Marks | Figures) -> SeedMean:
        """Estimate the mean of figures in [0, 1]."""
        return share_over_seeds(table, self.groups, confidence=self.confidence)

    def gap(self, first: Marks, second: Marks) -> SeedMean:
        """Estimate the mean of what the first marks have beyond the second."""
        table = first.astype(float) - second
        return mean_over_seeds(table, self.groups, least=-1.0, most=1.0, confidence=self.confidence)

    def area(self, layer: str, budget: int) -> SeedMean:
        """Estimate the area under the curve of an arm."""
        firsts = [view.firsts(layer) for view in self.views]
        areas = [areas_of(np.where(f < NEVER, f, 0), f < NEVER, budget=budget) for f in firsts]
        return self.share(np.stack(areas, axis=1))

    def blind_asr_at(self, ks: Sequence[int]) -> tuple[tuple[int, SeedMean], ...]:
        """Estimate success of exchangeable tries, as far as every attack was tried."""
        counts = [view.blind_counts() for view in self.views]
        least = min((tries for seed in counts for tries, _ in seed), default=0)
        tables = (
            (k, np.array([[chance_of_any(*each, k) for each in seed] for seed in counts]).T)
            for k in ks
            if k <= least
        )
        return tuple((k, self.share(np.ascontiguousarray(table))) for k, table in tables)

    def mean_tries(self, budget: int) -> SeedMean | None:
        """Estimate the mean tries to a bypass, of attacks blocked at first."""
        seeds = [SearchTimes(view) for view in self.views]
        if not all(each.times.size for each in seeds):
            return None
        horizon = min(float(budget), *(float(each.times.max()) for each in seeds))
        groups = sorted({group for each in seeds for group in each.groups.tolist()})
        figures = [_mean(each, horizon) for each in seeds]
        without = [[_mean(each, horizon, without=group) for each in seeds] for group in groups]
        return figure_over_seeds(
            figures,
            without if len(groups) > 1 else [figures],
            trials=max(len(each.times) for each in seeds),
            most=horizon,
            confidence=self.confidence,
        )


def _mean(each: SearchTimes, horizon: float, *, without: int | None = None) -> float:
    """Return the restricted mean, one group left out on demand; NaN where undefined."""
    kept = each.groups != (-1 if without is None else without)
    value = restricted_mean(each.times[kept], each.fell[kept], horizon=horizon).value
    return float("nan") if value is None else value
