"""Intervals and tests that hold however often one looks, from their formulas in plain loops."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Groups = Sequence[tuple[float, float]]
    """Events and size of each group, as shares of the largest."""

_HALVINGS: Final = 60
_BET_ALPHA: Final = 0.05
"""The level that bets on a difference are tuned to; the test holds at every level."""


def mixture_limits(hits: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the rates that a Beta(1/2, 1/2) mixture has not ruled out (Robbins 1970)."""
    missed = trials - hits
    wall = _log_mixture(hits, missed) + math.log(1 - confidence)

    def is_possible(rate: float) -> bool:
        likelihood = hits * math.log(rate) if hits else 0.0
        return likelihood + (missed * math.log1p(-rate) if missed else 0.0) > wall

    share = hits / trials
    low = _border(0.0, share, is_possible) if hits else 0.0
    return low, _border(1.0, share, is_possible) if missed else 1.0


def mixture_p_value(first_only: int, second_only: int) -> float:
    """Return the p of "alike" for pairs that stand alone: one over the e-value (Ville 1939)."""
    log_e = _log_mixture(first_only, second_only) + (first_only + second_only) * math.log(2)
    return math.exp(-max(0.0, log_e))


def betting_limits(groups: Groups, confidence: float) -> tuple[float, float]:
    """Return the lowest and the highest rate of rows that no bet so far has ruled out.

    References:
        Waudby-Smith & Ramdas (2024), doi:10.1093/jrsssb/qkad009, hedged capital.
    """
    return _lowest(groups, confidence), 1 - _lowest(missed(groups), confidence)


def missed(groups: Groups) -> list[tuple[float, float]]:
    """Return the groups with their other events."""
    return [(size - events, size) for events, size in groups]


def ruled_out_after(groups: Groups, rate: float, confidence: float) -> int | None:
    """Return which group, from 0, first shows that the true rate lies above one; None if none."""
    return _bankrupt(groups, list(_bets(groups, 1 - confidence)), rate, 1 - confidence)


def betting_p_values(gaps: Sequence[float]) -> list[float]:
    """Return after each group the p of "alike", which never rises again."""
    halves = [(gap + 1) / 2 for gap in gaps]
    ahead = behind = most = 0.0
    found = []
    alone = [(half, 1.0) for half in halves]
    for half, bet in zip(halves, _bets(alone, _BET_ALPHA), strict=True):
        gain = min(bet, 1.0) * (half - 0.5)
        ahead, behind = ahead + math.log1p(gain), behind + math.log1p(-gain)
        top = max(ahead, behind)
        both = top + math.log1p(math.exp(-abs(ahead - behind)))
        most = max(most, both - math.log(2))
        found.append(math.exp(-most))
    return found


def _log_mixture(hits: int, missed: int) -> float:
    """Return the logarithm of B(hits + 1/2, missed + 1/2) / B(1/2, 1/2); the latter is pi."""
    beta = math.lgamma(hits + 0.5) + math.lgamma(missed + 0.5) - math.lgamma(hits + missed + 1)
    return beta - math.log(math.pi)


def _border(outside: float, inside: float, holds: Callable[[float], bool]) -> float:
    for _ in range(_HALVINGS):
        middle = (outside + inside) / 2
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return inside


def _bets(groups: Groups, alpha: float) -> Iterator[float]:
    """Yield what is bet on each group; it rests on those before it alone."""
    total, rows, squares, variance = 0.5, 1.0, 0.25, 0.25
    for n, (events, size) in enumerate(groups, 1):
        yield math.sqrt(2 * math.log(2 / alpha) / (variance * n * math.log(n + 1)))
        total, rows = total + events, rows + size
        squares += (events - total / rows * size) ** 2
        variance = squares / (n + 1)


def _lowest(groups: Groups, confidence: float) -> float:
    bets, alpha = list(_bets(groups, 1 - confidence)), 1 - confidence

    def is_possible(rate: float) -> bool:
        return _bankrupt(groups, bets, rate, alpha) is None

    least = 2.0**-52
    return 0.0 if is_possible(least) else _border(least, 1.0, is_possible)


def _bankrupt(groups: Groups, bets: Sequence[float], rate: float, alpha: float) -> int | None:
    """Return when who bets that the rate lies above one has won 2 / alpha times the stake."""
    wall, most, capital = math.log(2 / alpha), 0.5 / rate, 0.0
    for at, ((events, size), bet) in enumerate(zip(groups, bets, strict=True)):
        capital += math.log1p(min(bet, most) * (events - rate * size))
        if capital >= wall:
            return at
    return None
