"""Which chain to try next: Thompson sampling over what has worked so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.attacks.priors import FAMILY_PRIOR

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from guardmark.attacks.chain import Chain
    from guardmark.engine.adaptive.diagnosis import Diagnosis

_VIEWS: Final = 16  # posterior draws a wave; attacks share them in turn
_TRUST: Final = 0.5  # tries that a diagnosis is worth
_FOLDED: Final = ("F3", "F4", "F5", "F6")


class Bandit:
    """Beliefs on how often each chain gets through.

    Args:
        chains: What there is to choose from, in a fixed order.
        beliefs: Passes and blocks believed beforehand, both above 0, one pair a chain.
    """

    __slots__ = ("_passes", "_stops", "chains", "used")

    def __init__(self, chains: Sequence[Chain], beliefs: Sequence[tuple[float, float]]) -> None:
        self.chains = tuple(chains)
        self._passes = [belief[0] for belief in beliefs]
        self._stops = [belief[1] for belief in beliefs]
        self.used = [0] * len(self.chains)

    def rankings(self, draw: Random, most: int = _VIEWS) -> list[list[int]]:
        """Draw some views of which chain is best.

        Args:
            draw: Where chance comes from.
            most: How many views are of use, at least 1; never more than 16 are drawn.

        Returns:
            Numbers of chains, the most promising first, once for each view.
        """
        if not self.chains:
            return [[]]
        views = []
        for _ in range(min(most, _VIEWS)):
            drawn = [
                draw.betavariate(passes, stops)
                for passes, stops in zip(self._passes, self._stops, strict=True)
            ]
            views.append(sorted(range(len(drawn)), key=lambda i: -drawn[i]))
        return views

    def learn(self, number: int, *, passed: bool) -> None:
        """Take note of an outcome.

        Args:
            number: Of the chain.
            passed: Whether it got through.
        """
        self.used[number] += 1
        if passed:
            self._passes[number] += 1
        else:
            self._stops[number] += 1

    def mean(self, number: int) -> float:
        """Return how often a chain is believed to get through, in (0, 1)."""
        return self._passes[number] / (self._passes[number] + self._stops[number])

    def best(self, count: int) -> list[int]:
        """Return the chains believed to be best, best first."""
        return sorted(range(len(self.chains)), key=lambda i: (-self.mean(i), i))[:count]


def believe(chains: Sequence[Chain], diagnosis: Diagnosis) -> list[tuple[float, float]]:
    """Turn a diagnosis into beliefs on chains of one arm.

    Args:
        chains: One arm each.
        diagnosis: What the defense seems to be.

    Returns:
        Passes and blocks believed beforehand, one pair a chain.
    """
    weights: dict[str, float] = {}
    for label, share in diagnosis.shares.items() if diagnosis.findings else ():
        for rank, family in enumerate(FAMILY_PRIOR.get(label, ())):
            weights[family] = weights.get(family, 0.0) + share * (1 - 0.2 * rank)
    beliefs = []
    for chain in chains:
        family = chain.arms[0].family
        weight = min(1.0, weights.get(family, 0.0))
        if diagnosis.folds and family in _FOLDED:
            weight = 0.0
            beliefs.append((0.5, 1.0 + _TRUST))
            continue
        beliefs.append((1.0 + _TRUST * weight, 1.0 + _TRUST * (1 - weight)))
    return beliefs
