"""Limits that rest on drawing whole groups, drawn a second time from the run's seed.

The draws follow from the seed alone (see `generator`), so the limits are compared like any other
figure: in all digits but the last few. What takes very many draws is drawn on request only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from operator import mul
from statistics import NormalDist, stdev
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.difference import Slow
from guardmark.app.verify.formulas.generator import Generator
from guardmark.app.verify.formulas.rates import quantile

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

Json = dict[str, Any]
Counts = tuple[float, ...]
Figure = Callable[[Counts], float | None]

MOST_DRAWS: Final = 4_000_000
"""Numbers drawn unasked for one set of limits at most: some seconds of a plain loop."""
_FEW_PATTERNS: Final = 64
_DRAW_COST: Final = 25
_MOST_UNDEFINED: Final = 0.01
_CELLS_AT_ONCE: Final = 2_000_000


def on_request(
    draws: float, names: Sequence[Hashable], count: Callable[[], Mapping[Any, object]]
) -> dict[Any, Any]:
    """Figures that rest on draws; where these are many they wait until they are asked for."""
    if draws <= MOST_DRAWS:
        return {**count()}
    once = cache(count)
    return {name: Slow(count=once, name=name) for name in names}


class Strata:
    """Groups that are drawn among themselves, alike ones together."""

    def __init__(self, groups: Sequence[Sequence[Counts]], *, in_order: bool = False) -> None:
        tallies = [Counter(stratum) for stratum in groups if stratum]
        self.patterns = [
            list(tally.items()) if in_order else sorted(tally.items()) for tally in tallies
        ]
        self.sizes = [sum(tally.values()) for tally in tallies]

    @property
    def totals(self) -> Counts:
        """Sum of each count over all groups."""
        return _added([_summed(patterns) for patterns in self.patterns])

    def cost(self, replicates: int) -> int:
        """Return how many numbers as many draws take."""
        return replicates * sum(
            len(patterns) if self._is_by_pattern(at) else self.sizes[at]
            for at, patterns in enumerate(self.patterns)
        )

    def draw(self, seed: int, replicates: int) -> list[Counts]:
        """Return the totals of each draw of as many groups as there are."""
        generator = Generator(seed)
        parts = [list(self._drawn(at, generator, replicates)) for at in range(len(self.patterns))]
        return [_added(row) for row in zip(*parts, strict=True)]

    def _is_by_pattern(self, at: int) -> bool:
        return len(self.patterns[at]) <= max(_FEW_PATTERNS, self.sizes[at] // _DRAW_COST)

    def _drawn(self, at: int, generator: Generator, replicates: int) -> Iterator[Counts]:
        patterns, size = self.patterns[at], self.sizes[at]
        if self._is_by_pattern(at):
            shares = [count / size for _, count in patterns]
            columns = list(zip(*[row for row, _ in patterns], strict=True))
            for times in generator.multinomials(size, shares, times=replicates):
                yield tuple(sum(map(mul, column, times)) for column in columns)
            return
        rows = [row for row, count in patterns for _ in range(count)]
        columns = list(zip(*rows, strict=True))
        for _ in range(replicates):
            drawn = [generator.below(size) for _ in range(size)]
            yield tuple(sum(map(column.__getitem__, drawn)) for column in columns)


def _summed(patterns: Sequence[tuple[Counts, int]]) -> Counts:
    width = range(len(patterns[0][0]))
    return tuple(sum(row[column] * times for row, times in patterns) for column in width)


def _added(rows: Sequence[Counts]) -> Counts:
    return tuple(map(sum, zip(*rows, strict=True)))


def estimate(
    strata: Strata,
    figures: dict[str, tuple[Figure, float, float]],
    *,
    seed: int,
    replicates: int,
    confidence: float,
) -> dict[str, Json]:
    """Return figures of counts with bias-corrected and accelerated limits (Efron 1987)."""
    totals = strata.totals if strata.sizes else ()
    values = {name: figure(totals) if totals else None for name, (figure, _, _) in figures.items()}
    said = {name: _without_limits(value, strata, confidence) for name, value in values.items()}
    inside = {
        name: (figure, value)
        for name, (figure, least, most) in figures.items()
        if (value := values[name]) is not None and least < value < most
    }
    if not inside or min(strata.sizes) < 2:
        return said

    def count() -> dict[Hashable, object]:
        drawn = strata.draw(seed, replicates)
        return {
            (name, key): limit
            for name, (figure, value) in inside.items()
            for key, limit in _limits(
                strata, figure, value=value, drawn=drawn, confidence=confidence
            ).items()
        }

    wanted = [(name, key) for name in inside for key in ("low", "high", "replicates")]
    found = on_request(strata.cost(replicates), wanted, count)
    for name, key in wanted:
        said[name][key] = found[name, key]
    return said


def _without_limits(value: float | None, strata: Strata, confidence: float) -> Json:
    return {
        "value": value,
        "low": None,
        "high": None,
        "trials": int(sum(strata.totals)) if strata.sizes else 0,
        "confidence": confidence,
        "method": "cluster_bootstrap_bca",
        "groups": sum(strata.sizes),
        "replicates": 0,
    }


def _acceleration(strata: Strata, figure: Figure, totals: Counts) -> float | None:
    """Skewness of what each group pulls the figure by, left out once (Efron 1987, 7.3)."""
    cubes = squares = 0.0
    for patterns, size in zip(strata.patterns, strata.sizes, strict=True):
        without = []
        for row, times in patterns:
            value = figure(tuple(a - b for a, b in zip(totals, row, strict=True)))
            if value is None:
                return None
            without.append((value, times))
        mean = sum(value * times for value, times in without) / size
        pulls = [((size - 1) / size * (mean - value), times) for value, times in without]
        cubes += sum(times * pull**3 for pull, times in pulls)
        squares += sum(times * pull**2 for pull, times in pulls)
    return cubes / (6 * squares**1.5) if squares > 0 else None


def _limits(
    strata: Strata,
    figure: Figure,
    *,
    value: float,
    drawn: Sequence[Counts],
    confidence: float,
) -> dict[str, float | int | None]:
    """Return the limits of one figure and how many draws they rest on; none without spread."""
    seen = sorted(each for each in map(figure, drawn) if each is not None)
    limits = None
    if len(seen) >= (1 - _MOST_UNDEFINED) * len(drawn):
        pull = _acceleration(strata, figure, strata.totals)
        limits = _corrected(seen, value, pull, confidence)
    if limits is None:
        return {"low": None, "high": None, "replicates": 0}
    return {"low": limits[0], "high": limits[1], "replicates": len(seen)}


def _corrected(
    seen: list[float], value: float, acceleration: float | None, confidence: float
) -> tuple[float, float] | None:
    below = sum(each < value for each in seen) / len(seen)
    below += sum(each == value for each in seen) / len(seen) / 2
    if acceleration is None or not 0 < below < 1:
        return None
    normal, ends = NormalDist(), []
    bias = normal.inv_cdf(below)
    for z in (-normal.inv_cdf((1 + confidence) / 2), normal.inv_cdf((1 + confidence) / 2)):
        reach = (bias + z) / max(1e-9, 1 - acceleration * (bias + z))
        ends.append(quantile(seen, normal.cdf(bias + reach)))
    return min(ends[0], value), max(ends[1], value)


def draw_groups(
    strata: Sequence[Sequence[int]], *, seed: int, replicates: int, rows: int = 1
) -> Iterator[list[int]]:
    """Yield how often each group is drawn."""
    generator, total = Generator(seed), sum(map(len, strata))
    at_once = max(1, _CELLS_AT_ONCE // max(1, rows, total))
    for start in range(0, replicates, at_once):
        block = [[0] * total for _ in range(min(at_once, replicates - start))]
        for stratum in filter(None, strata):
            shares = [1 / len(stratum)] * len(stratum)
            draws = generator.multinomials(len(stratum), shares, times=len(block))
            for weights, drawn in zip(block, draws, strict=True):
                for group, times in zip(stratum, drawn, strict=True):
                    weights[group] = times
        yield from block


def percentiles(drawn: Sequence[float | None], confidence: float) -> tuple[float, float] | None:
    """Return the percentile limits of draws; None where they are no interval."""
    usable = sorted(each for each in drawn if each is not None)
    if len(usable) < 0.95 * len(drawn):
        return None
    low, high = (quantile(usable, (1 + side * confidence) / 2) for side in (-1, 1))
    return (low, high) if high - low > 1e-12 else None


def spread(drawn: Sequence[float | None]) -> float:
    """Return the standard deviation of draws; rounding noise counts as none."""
    found = stdev([each for each in drawn if each is not None])
    return found if math.isfinite(found) and found > 1e-12 else 0.0
