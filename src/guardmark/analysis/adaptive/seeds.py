"""What several seeds of the search came to: their mean, and how far one differs from another."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.adaptive.rows import FULL, STRICT
from guardmark.analysis.adaptive.success import NEVER, ROUNDS, AttackMask
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
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.rows import AdaptiveRecords, AttackHistory
    from guardmark.analysis.defense.counts import SampleRates
    from guardmark.core.estimate import Estimate

    Marks = NDArray[np.bool_]
    Figures = NDArray[np.float64]

GAINS: Final = (1, 2, 5, 16, 64)
"""Numbers of tries at which arms are compared, beside the budget."""


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
        points: Tries and the share of all attacks that had got through by then; the last one is
            that of the whole budget.
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
        counted: Numbers of those the figures are over. The first is left out where an attacker
            model had its round there and nowhere else.
        rounds: Cumulative success by round of the search.
        arms: Success by tries for each arm.
        asr_at: ASR@k of the blind arm by Chen's estimator, by k.
        gains: Adaptive minus blind at equal tries, by k.
        null_gain: Null arm minus static.
        delta: Last round minus static.
        mean_tries: Mean tries up to the budget of attacks blocked at first, or None without any.
        area_adaptive: Area under success by search tries, adaptive arm.
        area_blind: The same of the blind arm.
        any_seed_strict: Attacks that fell at one seed at least: an attacker who tries them all.
            It rises with the number of seeds and is no estimate of any single one.
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
        return self.rounds[-1].full if self.rounds else None


def measure_seeds(
    battle: AdaptiveRecords, attack: NDArray[np.bool_], rates: SampleRates, *, ks: Sequence[int]
) -> SeedsCard | None:
    """Compute what several seeds came to."""
    if not battle.repeated:
        return None
    told = [battle.stories, *battle.repeated]
    numbers = tuple(range(2 if "attacker" in battle.settings else 1, len(told) + 1))
    views = [AttackMask(replace(battle, stories=told[n - 1]), attack, rates) for n in numbers]
    over, budget, last = _Over(views), ks[-1], ROUNDS[4]
    return SeedsCard(
        seeds=len(told),
        counted=numbers,
        rounds=tuple(over.round(name) for name in over.rounds()),
        arms=tuple(
            SeedCurve(arm=name, points=tuple((k, over.by(layer, k)) for k in ks))
            for name, layer in (("adaptive", ADAPTIVE), ("blind", BLIND), ("null", NULL))
        ),
        asr_at=over.blind_asr_at(ks),
        gains=tuple((k, over.gain(k)) for k in ks if k in {*GAINS, budget}),
        null_gain=over.above_static(view.by(NULL, budget) for view in views),
        delta=over.above_static(view.fallen(last, FULL) for view in views),
        mean_tries=over.mean_tries(budget),
        area_adaptive=over.area(ADAPTIVE, budget),
        area_blind=over.area(BLIND, budget),
        any_seed_strict=over.any_seed(view.fallen(last, STRICT) for view in views),
        any_seed_full=over.any_seed(view.fallen(last, FULL) for view in views),
    )


class _Over:
    """Figures over the same attacks at several seeds."""

    def __init__(self, views: Sequence[AttackMask]) -> None:
        self.views = views
        self.groups, self.confidence = views[0].groups, views[0].confidence

    def rounds(self) -> list[str]:
        """Return the rounds that some seed came to."""
        stories = (story for view in self.views for story in view.battle.stories[ADAPTIVE].values())
        seen = {each.round for story in stories for each in story.tries}
        return [name for name in ROUNDS if name in seen]

    def round(self, name: str) -> SeedRound:
        """Estimate what had got through by the end of a round."""
        return SeedRound(
            name=name,
            strict=self._share(view.fallen(name, STRICT) for view in self.views),
            full=self._share(view.fallen(name, FULL) for view in self.views),
        )

    def by(self, layer: str, k: int) -> SeedMean:
        """Estimate what had got through by the k-th try of an arm."""
        return self._share(view.by(layer, k) for view in self.views)

    def gain(self, k: int) -> SeedMean:
        """Estimate what learning adds to drawing at random within k tries."""
        return self._gap(
            view.by(ADAPTIVE, k).astype(float) - view.by(BLIND, k) for view in self.views
        )

    def above_static(self, marks: Iterable[Marks]) -> SeedMean:
        """Estimate what a mark adds to the attacks that pass as they are."""
        static = self.views[0].static
        return self._gap(each.astype(float) - static for each in marks)

    def area(self, layer: str, budget: int) -> SeedMean:
        """Estimate the area under the curve of an arm."""
        firsts = [view.firsts(layer) for view in self.views]
        return self._share(
            areas_of(np.where(each < NEVER, each, 0), each < NEVER, budget=budget)
            for each in firsts
        )

    def any_seed(self, marks: Iterable[Marks]) -> Estimate:
        """Estimate the share of attacks that have a mark at one seed at least."""
        return self.views[0].rate(np.logical_or.reduce(list(marks)))

    def _share(self, columns: Iterable[Marks | Figures]) -> SeedMean:
        table = np.stack(list(columns), axis=1)
        return share_over_seeds(table, self.groups, confidence=self.confidence)

    def _gap(self, columns: Iterable[Figures]) -> SeedMean:
        table = np.stack(list(columns), axis=1)
        return mean_over_seeds(table, self.groups, least=-1.0, most=1.0, confidence=self.confidence)

    def blind_asr_at(self, ks: Sequence[int]) -> tuple[tuple[int, SeedMean], ...]:
        """Estimate success of exchangeable tries, as far as every attack was tried."""
        counts = [view.blind_counts() for view in self.views]
        least = min((tries for told in counts for tries, _ in told), default=0)
        return tuple(
            (
                k,
                self._share(
                    np.array([chance_of_any(*each, k) for each in told]) for told in counts
                ),
            )
            for k in ks
            if k <= least
        )

    def mean_tries(self, budget: int) -> SeedMean | None:
        """Estimate the mean tries to a bypass, of attacks blocked at first."""
        told = [_Spent(view, sorted(view.battle.stories[ADAPTIVE].items())) for view in self.views]
        if not all(each.times.size for each in told):
            return None
        horizon = min(float(budget), *(float(each.times.max()) for each in told))
        groups = sorted({code for each in told for code in each.codes.tolist()})
        figures = [each.mean(horizon) for each in told]
        without = [[each.mean(horizon, without=code) for each in told] for code in groups]
        return figure_over_seeds(
            figures,
            without if len(groups) > 1 else [figures],
            trials=max(len(each.times) for each in told),
            most=horizon,
            confidence=self.confidence,
        )


class _Spent:
    """Tries spent on each attack that was blocked at first, at one seed."""

    def __init__(self, view: AttackMask, stories: Sequence[tuple[int, AttackHistory]]) -> None:
        group = dict(zip(view.places, view.groups.tolist(), strict=True))
        firsts = [story.first() for _, story in stories]
        self.fell = np.array([first is not None for first in firsts], dtype=bool)
        self.times = np.array(
            [first or len(story.tries) for first, (_, story) in zip(firsts, stories, strict=True)],
            dtype=float,
        )
        self.codes = np.array([group[place] for place, _ in stories], dtype=np.int64)

    def mean(self, horizon: float, *, without: int | None = None) -> float:
        """Return the restricted mean, one group left out on demand; NaN where undefined."""
        kept = np.ones(len(self.codes), dtype=bool) if without is None else self.codes != without
        value = restricted_mean(self.times[kept], self.fell[kept], horizon=horizon).value
        return float("nan") if value is None else value
