"""Two yes-or-no marks on the same samples: difference, limits and test, from their formulas."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

from tests.oracles.slow.formulas.rates import freedom, rate_of, student, student_tail

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

Json = dict[str, Any]

_POWER_Z: Final = NormalDist().inv_cdf(0.8)
_ONE_GROUP: Final = "one group only: nothing shows how groups differ"
_SMALLEST: Final = 1e-18
"""Chances below this move no digit of a p value that is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One sample that both sides answered."""

    group: Hashable
    first: bool
    second: bool


class Pairs:
    """Pairs counted by group."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self.rows, self.first, self.second = (
            Counter[object](),
            Counter[object](),
            Counter[object](),
        )
        self.both = 0
        for pair in pairs:
            self.rows[pair.group] += 1
            self.first[pair.group] += pair.first and not pair.second
            self.second[pair.group] += pair.second and not pair.first
            self.both += pair.first and pair.second
        self.n, self.k = sum(self.rows.values()), len(self.rows)
        self.b, self.c = sum(self.first.values()), sum(self.second.values())

    @property
    def is_alone(self) -> bool:
        """Whether every group has one pair."""
        return self.n == self.k

    @property
    def freedom(self) -> float:
        """Degrees of freedom of Student's t over the groups."""
        return freedom(Counter((m, 0) for m in self.rows.values()))

    @property
    def effect(self) -> float | None:
        """What a pair is discounted by; None without pairs and with one group of several."""
        if self.is_alone:
            return 1.0 if self.n else None
        if self.k < 2:
            return None
        n, gap = self.n, (self.b - self.c) / self.n
        limit = sum(m * m for m in self.rows.values()) / n
        residual = math.fsum(
            (self.first[g] - self.second[g] - gap * m) ** 2 for g, m in self.rows.items()
        )
        variance = residual * self.k / (self.k - 1) / n**2
        alone = ((self.b + self.c) / n - gap**2) / n
        seen = min(max(variance / alone, 1.0), limit) if alone > 1e-15 else limit
        telling = sum(self.first[g] + self.second[g] > 0 for g in self.rows)
        weight = telling / (telling + 2)
        return weight * seen + (1 - weight) * limit

    def limits(self, effect: float, confidence: float) -> tuple[float, float]:
        """Return the limits of Bonett & Price (2012), no narrower than both sides' shares allow."""
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        t = z if self.is_alone else student((1 + confidence) / 2, self.freedom)
        centre, error = self.shrunk(effect)
        value = (self.b - self.c) / self.n
        low, high = min(centre - t * error, value), max(centre + t * error, value)
        if not self.is_alone:
            first, second = (self._share(side, confidence) for side in (self.first, self.second))
            low = min(low, value - math.hypot(first[0], second[1]))
            high = max(high, value + math.hypot(first[1], second[0]))
        return max(-1.0, low), min(1.0, high)

    def _share(self, side: Counter[object], confidence: float) -> tuple[float, float]:
        """Return how far the limits of one side's share lie below and above it."""
        share = rate_of(Counter((m, side[g]) for g, m in self.rows.items()), confidence)
        return share["value"] - share["low"], share["high"] - share["value"]

    def shrunk(self, effect: float) -> tuple[float, float]:
        """Return the shrunk difference and its standard error."""
        total = self.n / effect + 2
        one, two = (self.b / effect + 1) / total, (self.c / effect + 1) / total
        return one - two, math.sqrt((one + two - (one - two) ** 2) / total)

    def p_value(self) -> float:
        """Return the mid-p of the sign-flip test; McNemar's where every group has one pair."""
        return flipped([self.first[g] - self.second[g] for g in self.rows])


def difference(pairs: Pairs, confidence: float) -> Json:
    """Return the difference of two rates as `summary.json` states it."""
    effect = pairs.effect
    limits = pairs.limits(effect, confidence) if effect else (None, None)
    return {
        "value": (pairs.b - pairs.c) / pairs.n if pairs.n else None,
        "low": limits[0],
        "high": limits[1],
        "confidence": confidence,
        "method": "bonett_price" if pairs.is_alone else "bonett_price_clustered",
        "p_value": pairs.p_value() if effect else None,
        "test": ("mcnemar_midp" if pairs.is_alone else "sign_flip_midp") if effect else "",
        "pairs": pairs.n,
        "groups": pairs.k,
        "first_only": pairs.b,
        "second_only": pairs.c,
        "reason": "" if effect else _ONE_GROUP if pairs.n else "no pairs",
    }


def marked(places: Iterable[tuple[str, bool, bool]]) -> Pairs:
    """Count pairs."""
    return Pairs(Pair(group=group, first=one, second=two) for group, one, two in places)


def flipped(differences: Sequence[int]) -> float:
    """Return the mid-p of a sum of whole differences under all signs."""
    sizes = Counter(abs(each) for each in differences if each)
    total, gap = sum(size * count for size, count in sizes.items()), abs(sum(differences))
    if not total:
        return 1.0
    shares, start = [1.0], 0
    for size, count in sorted(sizes.items()):
        first, weights = _coins(count)
        start += first * size
        shares = _shifted(shares, weights, size)
        while shares[0] < _SMALLEST:
            del shares[0]
            start += 1
    # The sum of those that fell upwards says the same as the sum of all with their signs.
    place = (total + gap) // 2 - start
    at = shares[place] if 0 <= place < len(shares) else 0.0
    if not gap:
        return 1 - at / 2
    return min(1.0, 2 * math.fsum(shares[max(0, place + 1) :]) + at)


def _coins(count: int) -> tuple[int, list[float]]:
    """Return the chances of so many heads of fair coins, from the first that is worth a digit."""
    log_chances = [
        math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        for k in range(count + 1)
    ]
    chances = [math.exp(each - count * math.log(2)) for each in log_chances]
    kept = [k for k, chance in enumerate(chances) if chance > _SMALLEST]
    return kept[0], chances[kept[0] : kept[-1] + 1]


def _shifted(shares: list[float], weights: list[float], step: int) -> list[float]:
    wide = [0.0] * (len(shares) + step * (len(weights) - 1))
    for at, weight in zip(range(0, step * len(weights), step), weights, strict=True):
        end = at + len(shares)
        moved = zip(wide[at:end], shares, strict=True)
        wide[at:end] = [old + weight * share for old, share in moved]
    while wide[-1] < _SMALLEST:
        wide.pop()
    return wide


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p values adjusted step by step downwards (Holm 1979); None stays None."""
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    most = 0.0
    for rank, (p, place) in enumerate(order):
        most = max(most, min(1.0, p * (len(order) - rank)))
        adjusted[place] = most
    return adjusted


def detectable(pairs: Pairs, told: dict[str, object], confidence: float) -> float | None:
    """Return the smallest difference found with 80 % power, from the width of the interval."""
    low, high = told["low"], told["high"]
    if not isinstance(low, float) or not isinstance(high, float):
        return None
    largest = max(pairs.rows.values()) / pairs.n
    if not pairs.is_alone and largest > max(0.2, 2 / pairs.k):
        return None
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    return min(1.0, (high - low) * (z + _POWER_Z) / (2 * z))


def is_not_worse(pairs: Pairs, *, margin: float, alpha: float, is_swapped: bool) -> bool:
    """Tell whether one side is shown to be at most a margin above the other."""
    effect = pairs.effect
    if not effect:
        return False
    if pairs.is_alone:
        b, c = (pairs.c, pairs.b) if is_swapped else (pairs.b, pairs.c)
        return NormalDist().cdf(_tango(b, c, pairs.n, margin)) < alpha
    low, high = pairs.limits(effect, 1 - 2 * alpha)
    if (-low if is_swapped else high) >= margin:
        return False
    centre, error = pairs.shrunk(effect)
    t = (margin - (-centre if is_swapped else centre)) / error
    tail = student_tail(abs(t), pairs.freedom)
    return (tail if t > 0 else 1 - tail) < alpha


def _tango(b: int, c: int, n: int, margin: float) -> float:
    """Return the score statistic of a difference of `margin` (Tango 1998)."""
    half = 2 * n
    linear = (half - (b - c)) * margin - (b + c)
    constant = -c * margin * (1 - margin)
    share = (math.sqrt(max(0.0, linear**2 - 4 * half * constant)) - linear) / (2 * half)
    variance = n * (2 * share + margin * (1 - margin))
    gap = b - c - n * margin
    if variance > 1e-15:
        return gap / math.sqrt(variance)
    return 0.0 if abs(gap) < 1e-12 else math.copysign(math.inf, gap)
