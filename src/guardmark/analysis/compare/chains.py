"""Which defenses work best together: chosen on one half of the groups, measured on the other."""

from __future__ import annotations

import math
from dataclasses import field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from guardmark.analysis.compare.comparison import RunComparison, compare_arms
from guardmark.analysis.compare.matching import MatchedRuns, subset
from guardmark.analysis.defense.counts import grouped_rate
from guardmark.analysis.defense.frame import ALLOW, BLOCK, ERROR, column_of, is_decision
from guardmark.analysis.defense.latency import measure_latency, spread_times
from guardmark.analysis.defense.scorecard import RatePair, estimate_rates
from guardmark.core.errors import IncomparableRuns
from guardmark.core.manifest import PartManifest
from guardmark.core.values import dataclass
from guardmark.stats.rates.means import share_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.defense.frame import Frame
    from guardmark.analysis.pipeline.frame import Codes
    from guardmark.core.estimate import Estimate
    from guardmark.stats.arguments import Flags, Floats, Ints
    from guardmark.stats.figures import Quantile, Ratio

_LISTED: Final = 12


class Chain(NamedTuple):
    """Members by number, and what one of them can settle: to block, or to allow."""

    members: tuple[int, ...]
    settling: int = BLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainCard:
    """One chain, or one defense by itself.

    Attributes:
        name: What it blocks on, `any` or `all`, and its members, the fastest first.
        p95_ms: Of benign samples; the times of those that had to be asked, added up.
        cost: Mean price of a benign sample; None where no price is known.
        priced: Benign samples behind the cost.
    """

    name: str
    rates: RatePair = field(metadata={"json": ("attack_success_rate", "false_positive_rate")})
    p95_ms: Quantile
    cost: float | None
    priced: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberShare:
    """How much a member settles, by blocking in `any` or allowing in `all`, of what all decided.

    Attributes:
        chain: Name of the chain.
        member: Name of the defense.
        is_attack: Whether these are attacks or benign samples.
        alone: That no other member settles: they change sides when it is left out.
        shapley: Its Shapley value, in which all members that settle a sample share it in equal
            parts.
    """

    chain: str
    member: str
    is_attack: bool
    alone: Estimate
    shapley: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRanking:
    """The chains that none beats in all of ASR, FPR, p95 and cost, by balanced error.

    Attributes:
        cards: The first of them, and the best defense by itself.
        comparison: Each against the best by itself; None where that is all.
        shares: What each member adds to each of these chains.
        alone: The best by itself.
        measured_on: Samples of the half of the groups that all figures stand on.
        chosen_on: Samples of the other half, on which these chains were chosen.
        tried: Chains and single defenses that were looked at there.
        front: Those of them that none beats.
        confidence: Nominal coverage of the intervals.
    """

    cards: tuple[ChainCard, ...]
    comparison: RunComparison | None
    shares: tuple[MemberShare, ...]
    alone: str
    measured_on: int
    chosen_on: int
    tried: int
    front: int
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainBench:
    """What candidates decided on some samples, and what that took; the fastest stands first.

    Attributes:
        frame: The samples, with every candidate.
        names: Names of the candidates.
        outcome: What each decided, shape (defenses, positions).
        spent: Milliseconds and money, nan if unknown, shape (defenses, 2, positions).
        ranks: When the fastest was asked about each position.
    """

    frame: Frame
    names: list[str]
    outcome: Codes
    spent: Floats
    ranks: Ints

    def part(self, chosen: Flags) -> ChainBench:
        """Keep some of the samples."""
        at, samples = np.tile(chosen, self.frame.manifest.repeats), self.frame.samples
        frame = replace(self.frame, samples=subset(samples, np.flatnonzero(chosen)), stops=None)
        return replace(
            self,
            frame=frame,
            outcome=self.outcome[:, at],
            spent=self.spent[:, :, at],
            ranks=self.ranks[at],
        )

    def name(self, chain: Chain) -> str:
        """Name a chain by what it blocks on and its members."""
        members = ", ".join(self.names[member] for member in chain.members)
        if len(chain.members) == 1:
            return members
        if chain.settling == BLOCK:
            return f"any({members})"
        return f"all({members})"

    def ask(self, chain: Chain) -> tuple[Codes, Floats, Floats]:
        """Ask members until one settles it, failures settle nothing: outcome, time and money."""
        spent = np.zeros_like(self.spent[0])
        is_open, is_whole = np.ones((2, self.outcome.shape[1]), dtype=np.bool_)
        for at in chain.members:
            spent += np.where(is_open, self.spent[at], 0.0)
            is_open &= self.outcome[at] != chain.settling
            is_whole &= is_decision(self.outcome[at])
        unsettled = np.where(is_whole, BLOCK + ALLOW - chain.settling, ERROR)
        return np.where(is_open, unsettled, chain.settling).astype(np.int8), spent[0], spent[1]

    def score(self, chain: Chain) -> tuple[float, float, float, float]:
        """Return ASR and FPR, 1 without an answer; p95 to two digits and price, nan if unknown."""
        outcome, waited, paid = self.ask(chain)
        is_attack = self.frame.is_attack
        wrong, decided = outcome == np.where(is_attack, ALLOW, BLOCK), is_decision(outcome)
        waited = waited[~is_attack & ~np.isnan(waited)]
        p95 = np.nan
        if waited.size:
            p95 = float(f"{np.quantile(waited, 0.95):.2g}")
        return (
            _mean(wrong[decided & is_attack], otherwise=1.0),
            _mean(wrong[decided & ~is_attack], otherwise=1.0),
            p95,
            _mean(paid[~is_attack & ~np.isnan(paid)], otherwise=np.nan),
        )

    def measure(self, chains: Sequence[Chain]) -> tuple[Frame, tuple[ChainCard, ...]]:
        """Measure chains as defenses are."""
        arms, cards = [], []
        for chain in chains:
            outcome, waited, paid = self.ask(chain)
            part = PartManifest(name=self.name(chain), kind="defense", type="chain")
            arm = column_of(self.frame, part, outcome, latency_ns=waited * 1e6)
            known = paid[~self.frame.is_attack & ~np.isnan(paid)]
            latency = measure_latency(self.frame, arm.records, ranks=self.ranks)
            cost = None
            if known.size:
                cost = float(known.mean())
            card = ChainCard(
                name=arm.name,
                rates=estimate_rates(self.frame, arm),
                p95_ms=latency.benign.quantiles[1],
                cost=cost,
                priced=known.size,
            )
            arms.append(arm)
            cards.append(card)
        return replace(self.frame, arms=tuple(arms)), tuple(cards)

    def shares(self, chain: Chain) -> Iterator[MemberShare]:
        """Yield what each member of a chain settles; none where a defense stands by itself."""
        if len(chain.members) == 1:
            return
        outcome, confidence = self.outcome[list(chain.members)], self.frame.settings.confidence
        settled, is_whole = outcome == chain.settling, is_decision(outcome).all(axis=0)
        parts = settled / np.maximum(settled.sum(axis=0), 1)
        for at, member in enumerate(chain.members):
            for is_attack in (True, False):
                where = is_whole & (self.frame.is_attack == is_attack)
                groups, part = self.frame.groups[where], parts[at, where]
                yield MemberShare(
                    chain=self.name(chain),
                    member=self.names[member],
                    is_attack=is_attack,
                    alone=grouped_rate(part == 1, groups, confidence=confidence),
                    shapley=share_mean(part, groups, name="shapley", confidence=confidence),
                )


def read_bench(matched: MatchedRuns, names: Sequence[str]) -> ChainBench:
    """Read what the candidates decided; the fastest stands first, for it is asked first."""
    frame = matched.frame
    arms = [arm for arm in frame.arms if arm.name in names]
    stopped = [arm.name for arm in arms if frame.stopped(arm)]
    if stopped:
        raise IncomparableRuns(
            f"{', '.join(stopped)} was ended early by a rule: chains with it cannot be measured.\n"
            "Next: measure it on all samples, or leave it out with --only."
        )
    taken = [spread_times(frame, arm.records) for arm in arms]
    order = np.argsort(list(map(_median_ms, taken)), kind="stable").tolist()
    names, outcome, spent = [], [], []
    for at in order:
        arm = arms[at]
        names.append(arm.name)
        outcome.append(frame.matrix(arm))
        spent.append((taken[at], matched.consumption[arm.name].money))
    return ChainBench(
        frame=frame,
        names=names,
        outcome=np.array(outcome),
        spent=np.array(spent),
        ranks=matched.ranks[names[0]],
    )


def _mean(values: Floats | Flags, *, otherwise: float) -> float:
    """Return the mean of some values, or another number where there is none."""
    if not values.size:
        return otherwise
    return float(values.mean())


def _median_ms(times_ms: Floats) -> float:
    """Return the median of the times that are known; infinite where none is."""
    known = times_ms[~np.isnan(times_ms)]
    if not len(known):
        return math.inf
    return float(np.median(known))


def _chains(defenses: int, size: int) -> Iterator[Chain]:
    """Yield every chain of at most `size` of so many defenses; one alone settles by blocking."""
    for count in range(1, size + 1):
        for members in combinations(range(defenses), count):
            yield Chain(members, BLOCK)
            if count > 1:
                yield Chain(members, ALLOW)


def rank_chains(matched: MatchedRuns, *, names: Sequence[str], size: int) -> ChainRanking:
    """Try every chain of at most `size` of the named defenses."""
    bench, is_first = read_bench(matched, names), matched.frame.is_calibration
    choosing, measuring = bench.part(is_first), bench.part(~is_first)
    if any(len(set(half.frame.is_attack.tolist())) < 2 for half in (choosing, measuring)):
        raise IncomparableRuns(
            "Chains are chosen on one half of the groups and measured on the other, and a half "
            "lacks attacks or benign samples.\nNext: measure on more data of both labels."
        )
    chains = list(_chains(len(bench.names), size))
    scores = np.array([choosing.score(chain) for chain in chains])
    error, known = scores[:, :2].mean(axis=1), scores[:, ~np.isnan(scores).any(axis=0)]
    front = []
    for at in error.argsort(kind="stable").tolist():
        is_better = (known <= known[at]).all(axis=1) & (known < known[at]).any(axis=1)
        if not is_better.any():
            front.append(chains[at])
    alone = chains[int(error[: len(bench.names)].argmin())]
    listed = list(dict.fromkeys((*front[:_LISTED], alone)))
    frame, cards = measuring.measure(listed)
    base = bench.name(alone)
    shares: list[MemberShare] = []
    for chain in listed:
        shares += measuring.shares(chain)
    pairs = [(card.name, base) for card in cards if card.name != base]
    return ChainRanking(
        cards=cards,
        shares=tuple(shares),
        comparison=compare_arms(frame, chosen=pairs),
        alone=base,
        measured_on=frame.sample_count,
        chosen_on=int(is_first.sum()),
        tried=len(chains),
        front=len(front),
        confidence=frame.settings.confidence,
    )
