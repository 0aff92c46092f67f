"""What is believed of a chain: from the battery on other attacks, then from tries."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import field, replace
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.adaptive.diagnosis import UNKNOWN
from guardmark.attacks.catalogue import FAMILY_PRIOR
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from numpy.typing import NDArray

    from guardmark.adaptive.diagnosis import Diagnosis
    from guardmark.adaptive.state import Query
    from guardmark.attacks.contract import OperatorChain
    from guardmark.core.outcome import Decision

    Counts = defaultdict[str, list[float]]
    Floats = NDArray[np.float64]


_UNLIKE: Final = 0.03  # weight of an attack for each chain that passed there and failed here
_TRUST: Final = 0.5  # share of a doubt that a diagnosis removes
_FOLDED: Final = ("F3", "F4", "F5", "F6")
_MOST: Final = (4.0, 1.0, 2.0, 12.0)
"""Tries that records are worth at most: of the whole battery, a family, an operator, a chain.
Chains of one operator differ less than operators of one family."""


@dataclass(frozen=True, slots=True)
class Belief:
    """How often a chain is believed to get through."""

    mean: float
    weight: float


@dataclass(slots=True, kw_only=True)
class BatteryRecord:
    """What the fixed list came to."""

    wins: dict[int, Query] = field(default_factory=dict)
    passes: list[Query] = field(default_factory=list)
    outcomes: dict[str, dict[int, bool]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """What is known of a defense before the search, whatever the seed; nothing by default.

    Attributes:
        diagnosis: What probes say of the defense.
        record: What came of the fixed list.
        answers: What was answered so far, by sample and text.
    """

    diagnosis: Diagnosis = UNKNOWN
    record: BatteryRecord = field(default_factory=BatteryRecord)
    answers: Mapping[tuple[int, str], Decision] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Attacks on which the fixed list had the same outcomes."""

    passed: int
    asked: tuple[int, ...]
    count: int


class Precedents:
    """Beliefs on chains of one arm, drawn from what the battery did to attacks of other groups.

    Each record (chain, operator, family, all) is shrunk towards the next wider one. Attacks count
    the less, the more of what failed on the attack in question got through to them.
    """

    def __init__(
        self,
        chains: Sequence[OperatorChain],
        diagnosis: Diagnosis,
        record: BatteryRecord,
        *,
        folds: Mapping[int, int],
    ) -> None:
        self._chains = tuple(chains)
        self._diagnosis = diagnosis
        self._weights = _family_weights(diagnosis)
        self._listed = [chain for chain in self._chains if chain.key in record.outcomes]
        self._known: dict[tuple[int, int], list[Belief]] = {}
        self._kinds: list[tuple[_Kind, ...]] = []
        self._useful: list[int] = []  # by fold: bits of the chains that got any attack through
        for fold in range(1 + max(folds.values(), default=0)):
            kinds = self._kinds_outside(fold, record, folds)
            useful = 0
            for kind in kinds:
                useful |= kind.passed
            self._kinds.append(kinds)
            self._useful.append(useful)

    def _kinds_outside(
        self, fold: int, record: BatteryRecord, folds: Mapping[int, int]
    ) -> tuple[_Kind, ...]:
        """Count attacks of all folds but one by what the fixed list did to them."""
        kinds: Counter[tuple[int, tuple[int, ...]]] = Counter()
        for position, number in folds.items():
            if number == fold:
                continue
            passed, asked = 0, list[int]()
            for index, chain in enumerate(self._listed):
                has_passed = record.outcomes[chain.key].get(position)
                if has_passed is not None:
                    asked.append(index)
                if has_passed:
                    passed |= 1 << index
            kinds[passed, tuple(asked)] += 1
        return tuple(_Kind(*kind, count) for kind, count in kinds.items())

    def failed(self, chain: OperatorChain) -> int:
        """Return the bits that stand for the failure of a chain of one arm."""
        bits, name = 0, chain.arms[0].operator.name
        for index, listed in enumerate(self._listed):
            if listed.arms[0].operator.name == name:
                bits |= 1 << index
        return bits

    def kind(self, fold: int, failed: int) -> tuple[int, int]:
        """Return what attacks share of which the same is believed."""
        return fold, failed & self._useful[fold]

    def beliefs(self, kind: tuple[int, int]) -> list[Belief]:
        """Return what is believed of each chain, for attacks of a kind."""
        if kind not in self._known:
            self._known[kind] = self._believe(*kind)
        return self._known[kind]

    def _believe(self, fold: int, failed: int) -> list[Belief]:
        """Work out what is believed of each chain, for attacks on which some operators failed."""
        per_chain = [[0.0, 0.0] for _ in self._listed]
        for kind in self._kinds[fold]:
            weight = kind.count * _UNLIKE ** (kind.passed & failed).bit_count()
            for i in kind.asked:
                per_chain[i][0] += weight
                if kind.passed >> i & 1:
                    per_chain[i][1] += weight
        counts: Counts = defaultdict(lambda: [0.0, 0.0])
        for chain, (tried, passed) in zip(self._listed, per_chain, strict=True):
            for name in _names(chain):
                counts[name][0] += tried
                counts[name][1] += passed
        if not counts["all"][0]:
            return [self._by_diagnosis(chain.arms[0].family) for chain in self._chains]
        return [self._belief(_names(chain), counts) for chain in self._chains]

    def _belief(self, names: tuple[str, str, str, str], counts: Counts) -> Belief:
        own, kin, family, every = names
        belief = _shrunk(counts[every], Belief(0.5, 1.0), most=_MOST[0])
        mean = belief.mean + (1 - belief.mean) * _TRUST * self._weights.get(family, 0.0)
        if self._diagnosis.folds and family in _FOLDED:
            mean = 0.0
        belief = Belief(mean, 1.0)
        for name, most in zip((family, kin, own), _MOST[1:], strict=True):
            belief = _shrunk(counts[name], belief, most=most)
        return belief

    def _by_diagnosis(self, family: str) -> Belief:
        """Believe the diagnosis alone, and that little."""
        if self._diagnosis.folds and family in _FOLDED:
            return Belief(0.25, 2.0)
        weight = self._weights.get(family, 0.0)
        return Belief((1.0 + _TRUST * weight) / (2.0 + _TRUST), 2.0 + _TRUST)


def _shrunk(counts: list[float], wider: Belief, *, most: float) -> Belief:
    """Shrink a record towards the next wider one, as if by a single try of it."""
    tried, passed = counts
    if not tried:
        return wider
    weight = min(most, tried)
    return Belief((passed / tried * weight + wider.mean) / (weight + 1), weight + 1)


def _names(chain: OperatorChain) -> tuple[str, str, str, str]:
    """Name what a chain of one arm belongs to, from near to far."""
    return chain.key, chain.arms[0].operator.key, chain.arms[0].family, "all"


def _family_weights(diagnosis: Diagnosis) -> dict[str, float]:
    """Return how much a diagnosis speaks for each family of operators, from 0 to 1."""
    if diagnosis.is_gated:
        # Behind a gate, what helps against the content is turned away: other attacks tell more.
        return {}
    weights: dict[str, float] = {}
    for label, share in diagnosis.shares.items():
        for rank, family in enumerate(FAMILY_PRIOR.get(label, ())):
            weights[family] = weights.get(family, 0.0) + share * (1 - 0.2 * rank)
    return {family: min(1.0, weight) for family, weight in weights.items()}


_VIEWS: Final = 16  # draws a wave; attacks share them in turn
_LUCK: Final = 0.3  # of the posterior's spread; more explores at the cost of the first tries
_WARY: Final = 4  # tries until chance has its full part
_CURIOSITY: Final = 0.1  # added variance, so that a short record of failures is not the last word
_FADE: Final = 0.5  # what is left, after a wave, of what passes have taught


@dataclass(slots=True, kw_only=True)
class Bandit:
    """Chains to choose from, and what is believed of each: by precedents, then by tries.

    Attributes:
        chains: What may be chosen from.
        precedents: Beliefs on the first of them, from what the fixed list did.
        others: Beliefs on the last chains, of which precedents say nothing.
        passes: How often each chain got through, fading.
        stops: How often each was stopped.
        begun: Beliefs before any try, by kind of attack.
    """

    chains: tuple[OperatorChain, ...]
    precedents: Precedents
    others: tuple[Belief, ...] = ()
    passes: list[float] = field(default_factory=list)
    stops: list[float] = field(default_factory=list)
    begun: dict[tuple[int, int], Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin without any try of a chain that is new."""
        nothing = [0.0] * (len(self.chains) - len(self.passes))
        self.passes = self.passes + nothing
        self.stops = self.stops + nothing

    def failed(self, number: int) -> int:
        """Return the bits that stand for the failure of a chain; none but for a single operator."""
        chain = self.chains[number]
        if len(chain.arms) > 1:
            return 0
        return self.precedents.failed(chain)

    def beliefs(self, kind: tuple[int, int] = (0, 0)) -> tuple[Floats, Floats]:
        """Return what is believed of each chain by now, for attacks of a kind: mean and weight."""
        if kind not in self.begun:
            every = (*self.precedents.beliefs(kind), *self.others)
            self.begun[kind] = np.array([[each.mean, each.weight] for each in every]).T
        (mean, weight), passes = self.begun[kind], np.array(self.passes)
        weights = weight + passes + np.array(self.stops)
        return (mean * weight + passes) / weights, weights

    def rankings(
        self, draw: Random, most: int
    ) -> Callable[[int, int, tuple[int, int]], Mapping[int, float]]:
        """Draw how promising each chain is, by number of the attack, its tries and its kind.

        Chains stand in the order drawn, each with the rate at which it is believed to pass.
        """
        views = []
        for _ in range(min(most, _VIEWS)):
            views.append(np.array([draw.gauss() for _ in self.chains]))

        @cache
        def spreads(kind: tuple[int, int]) -> tuple[Floats, Floats]:
            mean, weight = self.beliefs(kind)
            return mean, np.sqrt((mean * (1 - mean) + _CURIOSITY) / (1 + weight))

        @cache
        def ranking(view: int, tries: int, kind: tuple[int, int]) -> dict[int, float]:
            luck, (mean, spread) = _LUCK * min(1.0, (1 + tries) / _WARY), spreads(kind)
            order = np.argsort(-(mean + luck * spread * views[view]), kind="stable")
            return dict(zip(order.tolist(), mean[order].tolist(), strict=True))

        return lambda number, tries, kind: ranking(number % len(views), tries, kind)

    def learn(self, number: int, *, passed: bool, alike: float = 0.0) -> None:
        """Take note of an outcome; other settings of a single operator share so much of a stop."""
        if passed:
            self.passes[number] += 1
            return
        self.stops[number] += 1
        own = self.chains[number].arms
        if not alike or len(own) > 1:
            return
        for other, chain in enumerate(self.chains):
            if len(chain.arms) == 1 and chain.arms[0].operator is own[0].operator:
                self.stops[other] += alike

    def fade(self) -> None:
        """Let passes count half as much: each took the attack that it tells of away."""
        self.passes = [_FADE * passes for passes in self.passes]

    def joined(self, made: Iterable[tuple[OperatorChain, Belief]]) -> Bandit:
        """Return a bandit that may choose from more chains, and forgets nothing."""
        chains, others = zip(*made, strict=True)
        chains, others = (*self.chains, *chains), (*self.others, *others)
        return replace(self, chains=chains, others=others, begun={})
