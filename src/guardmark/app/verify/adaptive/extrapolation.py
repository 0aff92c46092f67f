"""What more blind tries would reach, fitted a second time by a way of its own.

The reports narrow the likelihood down by golden sections with special functions; here its slope,
a sum of reciprocals, is followed to 0 by Newton's steps and by false position.
"""

from __future__ import annotations

import math
from collections import Counter
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guardmark.app.verify.difference import Near
from guardmark.app.verify.formulas.drawing import draw_groups, on_request
from guardmark.app.verify.formulas.rates import quantile, wilson

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Json = dict[str, Any]

_DRAWS: Final = 500
_REACH: Final = 10
_LOWEST, _HIGHEST = -7.0, 14.0
"""Logarithms of a + b: from "never or always broken" to "all samples alike"."""
_WITHIN: Final = 1e-6
"""How far the two searches may end apart: the likelihood is flat at its top."""
_MOST_TRIES: Final = 200
"""With more tries an attack, fitting hundreds of draws in plain loops takes minutes."""


class Told(NamedTuple):
    """One attack of the blind arm."""

    group: str
    tries: int
    hits: int


def extrapolate(told: Sequence[Told], k: int, confidence: float) -> Json:
    """Return the modelled chance that one of k blind tries gets through."""
    groups = list(dict.fromkeys(each.group for each in told))
    said: Json = {
        "value": None,
        "low": None,
        "high": None,
        "confidence": confidence,
        "trials": len(told),
        "groups": len(groups),
        "replicates": 0,
    }
    tries, hits = sum(each.tries for each in told), sum(each.hits for each in told)
    is_fitted = max(each.tries for each in told) > 1 and 0 < hits < tries
    if not is_fitted or k > _REACH * tries / len(told):
        return said
    cells = Counter((each.tries, each.hits) for each in told)
    value = success_at(k, cells.items())
    said["value"] = Near(value=value, within=_WITHIN)
    if len(groups) < 2:
        return said

    def count() -> Json:
        low, high = _band(told, groups, k, confidence)
        seen = wilson(value, len(groups), NormalDist().inv_cdf((1 + confidence) / 2))
        return {
            "low": Near(value=min(low, seen[0]), within=_WITHIN),
            "high": Near(value=max(high, seen[1]), within=_WITHIN),
            "replicates": _DRAWS,
        }

    is_long = max(each.tries for each in told) > _MOST_TRIES
    draws = math.inf if is_long else _DRAWS * len(groups)
    return said | on_request(draws, ("low", "high", "replicates"), count)


def _band(
    told: Sequence[Told], groups: Sequence[str], k: int, confidence: float
) -> tuple[float, float]:
    """Return the percentile limits of whole groups drawn again; seed 0, as the reports take it."""
    numbers = {group: number for number, group in enumerate(groups)}
    known: dict[tuple[tuple[tuple[int, int], int], ...], float] = {}
    drawn = []
    near = _Sums(Counter((each.tries, each.hits) for each in told).items()).best()
    for weights in draw_groups([range(len(groups))], seed=0, replicates=_DRAWS):
        tally = Counter[tuple[int, int]]()
        for each in told:
            tally[each.tries, each.hits] += weights[numbers[each.group]]
        cells = tuple(sorted((cell, times) for cell, times in tally.items() if times))
        if cells not in known:
            known[cells] = success_at(k, cells, near)
        drawn.append(known[cells])
    drawn.sort()
    tail = (1 - confidence) / 2
    return quantile(drawn, tail), quantile(drawn, 1 - tail)


def success_at(
    k: int, cells: Iterable[tuple[tuple[int, int], int]], near: tuple[float, float] | None = None
) -> float:
    """Return the fitted chance that one of k tries gets through."""
    sums = _Sums(cells)
    if not sums.hits:
        return 0.0
    if not sums.misses:
        return 1.0
    size, mean = (sums.beside(*near) if near else None) or sums.best()
    a, b = mean * size, (1 - mean) * size
    missed = math.fsum(math.log1p(-a / (a + b + step)) for step in range(k))
    return -math.expm1(min(0.0, missed))


class _Sums:
    """The likelihood of a Beta-binomial as sums over whole numbers below the counts."""

    def __init__(self, cells: Iterable[tuple[tuple[int, int], int]]) -> None:
        rows = [(n, c, times) for (n, c), times in cells]
        self.hits = _above((c, times) for _, c, times in rows)
        self.misses = _above((n - c, times) for n, c, times in rows)
        self.tries = _above((n, times) for n, _, times in rows)

    def height(self, size: float, mean: float) -> float:
        """Return the log-likelihood."""
        a, b = mean * size, (1 - mean) * size
        parts = ((self.hits, a, 1), (self.misses, b, 1), (self.tries, size, -1))
        return sum(
            sign * sum([times * math.log(start + step) for step, times in enumerate(counts)])
            for counts, start, sign in parts
        )

    def mean(self, size: float, start: float) -> float:
        """Return the mean of greatest likelihood at a size, by Newton's steps kept in bounds."""
        low, high, mean = 1e-9, 1 - 1e-9, start
        for _ in range(100):
            ahead, bend = _slope(self.hits, mean * size)
            back, sway = _slope(self.misses, (1 - mean) * size)
            low, high = (mean, high) if ahead > back else (low, mean)
            better = mean + (ahead - back) / ((bend + sway) * size)
            if not low < better < high:
                better = (low + high) / 2
            if abs(better - mean) < 1e-12:
                return better
            mean = better
        return mean

    def rise(self, size: float, mean: float) -> float:
        """Return how the likelihood rises with the logarithm of the size, at the best mean."""
        ahead = mean * _slope(self.hits, mean * size)[0]
        ahead += (1 - mean) * _slope(self.misses, (1 - mean) * size)[0]
        return size * (ahead - _slope(self.tries, size)[0])

    def best(self) -> tuple[float, float]:
        """Return the size and the mean of greatest likelihood within bounds of the size."""
        grid = [_LOWEST + at * (_HIGHEST - _LOWEST) / 21 for at in range(22)]
        means, mean = list[float](), sum(self.hits) / sum(self.tries)
        for log_size in reversed(grid):  # alike samples first, where the plain share is best
            mean = self.mean(math.exp(log_size), mean)
            means.insert(0, mean)
        heights = [
            self.height(math.exp(each), mean) for each, mean in zip(grid, means, strict=True)
        ]
        top = max(range(22), key=heights.__getitem__)
        log_size = self._summit(grid[max(top - 1, 0)], grid[min(top + 1, 21)], means[top])
        return math.exp(log_size), self.mean(math.exp(log_size), means[top])

    def beside(self, size: float, mean: float) -> tuple[float, float] | None:
        """Return the same where a summit stands within one step of a size; else None."""
        low, high = math.log(size) - 1, math.log(size) + 1
        if low < _LOWEST or high > _HIGHEST:
            return None
        at = self._summit(low, high, mean)
        found = math.exp(at)
        return (found, self.mean(found, mean)) if low < at < high else None

    def _summit(self, low: float, high: float, mean: float) -> float:
        """Return where the rise passes 0 between two sizes, by false position (Illinois)."""

        def rise(log_size: float) -> float:
            size = math.exp(log_size)
            return self.rise(size, self.mean(size, mean))

        left, right, at = rise(low), rise(high), low
        if left <= 0 or right >= 0:
            return low if left <= 0 else high
        for _ in range(100):
            before, at = at, (low * right - high * left) / (right - left)
            found = rise(at)
            if found > 0:
                low, left, right = at, found, right if before != low else right / 2
            else:
                high, right, left = at, found, left if before != high else left / 2
            if abs(at - before) < 1e-9 or not found:
                break
        return at


def _above(counts: Iterable[tuple[int, int]]) -> list[int]:
    """Return for 0, 1, 2 ... how many attacks have a greater count."""
    tally = Counter[int]()
    for count, times in counts:
        tally[count] += times
    return [
        sum(times for count, times in tally.items() if count > step)
        for step in range(max(tally, default=0))
    ]


def _slope(counts: Sequence[int], start: float) -> tuple[float, float]:
    """Return the sums of counts over start, start + 1 ..., and over their squares."""
    shares = [1 / (start + step) for step in range(len(counts))]
    parts = [times * share for times, share in zip(counts, shares, strict=True)]
    return sum(parts), sum([part * share for part, share in zip(parts, shares, strict=True)])
