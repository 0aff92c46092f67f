"""Which chain to try next: Thompson sampling over what has worked so far."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from guardmark.adaptive.beliefs import Belief
    from guardmark.attacks.contract import OperatorChain

_VIEWS: Final = 16  # draws a wave; attacks share them in turn
_LUCK: Final = 0.3  # of the posterior's spread; more explores at the cost of the first tries
_WARY: Final = 4  # tries until chance has its full part
_CURIOSITY: Final = 0.1  # added variance, so that a short record of failures is not the last word
_FADE: Final = 0.5  # what is left, after a wave, of what passes have taught


class Bandit:
    """What tries have taught about chains, whatever the attack."""

    __slots__ = ("chains", "passes", "stops")

    def __init__(self, chains: Sequence[OperatorChain]) -> None:
        self.chains = tuple(chains)
        self.passes = [0.0] * len(self.chains)
        self.stops = [0] * len(self.chains)

    def views(self, draw: Random, most: int = _VIEWS) -> list[list[float]]:
        """Draw how far each chain may be better or worse than it seems."""
        return [[draw.gauss(0.0, 1.0) for _ in self.chains] for _ in range(min(most, _VIEWS))]

    def ranking(self, beliefs: Sequence[Belief], view: Sequence[float], *, tries: int) -> list[int]:
        """Rank the chains for one attack."""
        luck = _LUCK * min(1.0, (1 + tries) / _WARY)
        drawn = []
        for belief, passes, stops, deviate in zip(
            beliefs, self.passes, self.stops, view, strict=True
        ):
            weight = belief.weight + passes + stops
            mean = (belief.mean * belief.weight + passes) / weight
            spread = sqrt((mean * (1 - mean) + _CURIOSITY) / (1 + weight))
            drawn.append(mean + luck * spread * deviate)
        return sorted(range(len(drawn)), key=drawn.__getitem__, reverse=True)

    def learn(self, number: int, *, passed: bool) -> None:
        """Take note of an outcome."""
        if passed:
            self.passes[number] += 1
        else:
            self.stops[number] += 1

    def fade(self) -> None:
        """Let passes count half as much: what they were about has fallen.

        A pass takes its attack out of the search, so it tells of those left only as far as
        these are like it; a stop tells of an attack that is still there.
        """
        self.passes = [_FADE * passes for passes in self.passes]

    def means(self, beliefs: Sequence[Belief]) -> list[float]:
        """Return how often each chain is believed to get through, in [0, 1]."""
        return [
            (belief.mean * belief.weight + passes) / (belief.weight + passes + stops)
            for belief, passes, stops in zip(beliefs, self.passes, self.stops, strict=True)
        ]

    def joined(self, chains: Sequence[OperatorChain]) -> Bandit:
        """Return a bandit that may choose from more chains, and forgets nothing."""
        larger = Bandit((*self.chains, *chains))
        larger.passes[: len(self.chains)] = self.passes
        larger.stops[: len(self.chains)] = self.stops
        return larger


def best(means: Sequence[float], count: int) -> list[int]:
    """Return the numbers of the highest means, highest first; the first of equals first."""
    return sorted(range(len(means)), key=lambda i: (-means[i], i))[:count]
