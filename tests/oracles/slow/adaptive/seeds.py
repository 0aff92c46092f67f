"""Several seeds of an adaptive search, counted a second time as a slow reference."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

from tests.oracles.slow.adaptive.curves import area_of
from tests.oracles.slow.adaptive.rows import ARMS, FULL, ROUNDS, STRICT, Fight, seed_layer
from tests.oracles.slow.formulas.rates import freedom as group_freedom
from tests.oracles.slow.formulas.rates import student, wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, Any]
Row = dict[int, float]

_FEWEST: Final = 3
_LAST: Final = "R4"


def recount_seeds(fight: Fight, ks: Sequence[int], gains: Sequence[int]) -> Json | None:
    """Return what several seeds came to, or None for one."""
    if fight.seeds < 2:
        return None
    numbers = range(2 if fight.has_attacker else 1, fight.seeds + 1)
    told = [_seed(fight, number) for number in numbers]
    firsts = [{arm: each.firsts(layer) for arm, layer in ARMS.items()} for each in told]
    seen = {row.note["round"] for each in told for row in each.rows["adaptive", "search"]}

    def mean(columns: list[Row], least: float | None = None) -> Json:
        return _mean(fight, columns, is_share=least is None, least=least or 0.0)

    def by(arm: str, k: int) -> list[Row]:
        return [
            {p: float(f is not None and f <= k) for p, f in each[arm].items()} for each in firsts
        ]

    def less(one: list[Row], other: list[Row]) -> Json:
        pairs = zip(one, other, strict=True)
        return mean([{p: a[p] - b[p] for p in a} for a, b in pairs], least=-1.0)

    def fallen(until: str, tiers: Sequence[str]) -> list[Row]:
        marks = [each.fallen(until, tiers) for each in told]
        return [{place: float(place in fell) for place in fight.static} for fell in marks]

    static = [{place: float(is_static) for place, is_static in fight.static.items()}] * len(told)
    budget = fight.budget
    areas = {
        arm: [{p: area_of(f, budget) for p, f in each[arm].items()} for each in firsts]
        for arm in ("adaptive", "blind")
    }
    return {
        "seeds": fight.seeds,
        "counted": list(numbers),
        "rounds": [
            {
                "round": name,
                "strict": mean(fallen(name, STRICT)),
                "full": mean(fallen(name, FULL)),
            }
            for name in ROUNDS
            if name in seen
        ],
        "arms": [
            {"arm": arm, "points": [{"k": k, "rate": mean(by(arm, k))} for k in ks]} for arm in ARMS
        ],
        "blind_asr_at": _chen(fight, told, ks),
        "gains": [{"k": k, "gain": less(by("adaptive", k), by("blind", k))} for k in gains],
        "null_gain": less(by("null", budget), static),
        "robustness_delta": less(fallen(_LAST, FULL), static),
        "mean_tries": _tries(fight, told),
        "area": {arm: mean(columns) for arm, columns in areas.items()},
        "any_seed": {
            "strict": _any_seed(fight, told, STRICT),
            "full": _any_seed(fight, told, FULL),
        },
    }


def _seed(fight: Fight, number: int) -> Fight:
    """Return the tries as if a seed were the only one: fixed list and search, blind, null arm."""
    rows = fight.rows.copy()
    for layer in ARMS.values():
        rows[layer, "search"] = rows[seed_layer(layer, number), "search"]
    return replace(fight, rows=rows)


def _any_seed(fight: Fight, told: list[Fight], tiers: Sequence[str]) -> Json:
    fell = {place for each in told for place in each.fallen(_LAST, tiers)}
    return fight.rate(lambda place: place in fell)


def _mean(fight: Fight, columns: list[Row], *, is_share: bool, least: float = 0.0) -> Json:
    """Return a mean over seeds as `summary.json` states it: Wilson's limits, or Student's t."""
    n, seeds = len(columns[0]), len(columns)
    each = [math.fsum(column.values()) / n for column in columns] if n else []
    groups = {fight.group[place] for place in columns[0]}
    found = _frame(fight, each, trials=n, groups=len(groups))
    if n == 0 or seeds < _FEWEST or len(groups) < 2:
        return found
    m = math.fsum(each) / seeds
    cells: defaultdict[tuple[str, int], float] = defaultdict(float)
    sizes: defaultdict[str, int] = defaultdict(int)
    for number, column in enumerate(columns):
        for place, value in column.items():
            cells[fight.group[place], number] += value - m
            sizes[fight.group[place]] += not number
    variance, freedom = _two_way(cells, sizes, seeds)
    if not is_share:
        if variance < 1e-24:
            return found
        half = student((1 + fight.confidence) / 2, freedom) * math.sqrt(variance)
        return {**found, "low": max(least, m - half), "high": min(1.0, m + half)}
    limit = sum(size * size for size in sizes.values()) / n
    effect = limit
    if 0 < m < 1:
        effect = max(variance * n / (m * (1 - m)), 1 / seeds)
        hits: defaultdict[str, float] = defaultdict(float)
        for column in columns:
            for place, value in column.items():
                hits[fight.group[place]] += value
        some = sum(hits[group] > 0 for group in sizes)
        rest = sum(hits[group] < size * seeds for group, size in sizes.items())
        weight = min(some, rest) / (min(some, rest) + 2)
        effect = weight * effect + (1 - weight) * max(limit, effect)
    else:
        freedom = group_freedom(_as_shapes(sizes))
    quantile = student((1 + fight.confidence) / 2, freedom)
    if m in {0.0, 1.0} and len(sizes) == n:
        quantile = NormalDist().inv_cdf((1 + fight.confidence) / 2)
    low, high = wilson(m, n / effect, quantile)
    return {**found, "low": low, "high": high}


def _frame(fight: Fight, each: list[float], *, trials: int, groups: int) -> Json:
    mean = math.fsum(each) / len(each) if each else None
    spread = None
    if mean is not None and len(each) > 1:
        spread = math.sqrt(math.fsum((one - mean) ** 2 for one in each) / (len(each) - 1))
    return {
        "value": mean,
        "low": None,
        "high": None,
        "confidence": fight.confidence,
        "trials": trials,
        "groups": groups,
        "seeds": len(each),
        "by_seed": each,
        "spread": spread,
        "least": min(each, default=None),
        "most": max(each, default=None),
    }


def _two_way(
    cells: dict[tuple[str, int], float], sizes: dict[str, int], seeds: int
) -> tuple[float, float]:
    """Return the variance of a mean over groups and seeds, and its degrees of freedom."""
    n, k = sum(sizes.values()), len(sizes)
    by_group = {g: math.fsum(cells[g, s] for s in range(seeds)) for g in sizes}
    by_seed = [math.fsum(cells[g, s] for g in sizes) for s in range(seeds)]
    scale = (n * seeds) ** 2
    of_groups = math.fsum(u * u for u in by_group.values()) * k / (k - 1) / scale
    of_seeds = math.fsum(u * u for u in by_seed) * seeds / (seeds - 1) / scale
    left = math.fsum(
        (cells[g, s] - by_group[g] / seeds - sizes[g] / n * by_seed[s]) ** 2
        for g in sizes
        for s in range(seeds)
    )
    free = (k - 1) * (seeds - 1)
    of_rest = left * k * seeds / free / scale
    between = max(0.0, of_seeds - of_rest)
    value = of_groups + between
    freedom = group_freedom(_as_shapes(sizes))
    parts = of_groups**2 / freedom + between * of_seeds / (seeds - 1)
    return value, value**2 / parts if parts else freedom


def _as_shapes(sizes: dict[str, int]) -> Counter[tuple[int, int]]:
    return Counter((m, 0) for m in sizes.values())


def _chen(fight: Fight, told: list[Fight], ks: Sequence[int]) -> list[Json]:
    """Return ASR@k of the blind arm over seeds, counting subsets of tries."""
    counts = []
    for each in told:
        tries = each.searched("adaptive/blind")
        counts.append(
            {
                place: (fight.budget, fight.budget)
                if is_static
                else (
                    len(tries.get(place, [])),
                    sum(map(each.holds, tries.get(place, [])[: fight.budget])),
                )
                for place, is_static in fight.static.items()
            }
        )
    least = min((n for pairs in counts for n, _ in pairs.values()), default=0)
    found = []
    for k in ks:
        if k <= least:
            columns = [
                {
                    place: 1 - math.comb(n - c, k) / math.comb(n, k)
                    for place, (n, c) in pairs.items()
                }
                for pairs in counts
            ]
            found.append({"k": k, "rate": _mean(fight, columns, is_share=True)})
    return found


def _tries(fight: Fight, told: list[Fight]) -> Json | None:
    """Return the mean tries to a bypass over seeds, each group left out once for the limits."""
    ends = [_ends(each) for each in told]
    if not all(ends):
        return None
    horizon = min(fight.budget, *(max(time for time, _ in each.values()) for each in ends))
    groups = {fight.group[place] for each in ends for place in each}
    figures = [_held_for(list(each.values()), horizon) for each in ends]
    by_seed = [figure for figure in figures if figure is not None]
    found = _frame(fight, by_seed, trials=max(map(len, ends)), groups=len(groups))
    k, seeds = len(groups), len(by_seed)
    if k < 2 or seeds < _FEWEST:
        return found
    left: dict[tuple[str, int], float] = {}
    for group in groups:
        for number, each in enumerate(ends):
            rest = [end for place, end in each.items() if fight.group[place] != group]
            figure = _held_for(rest, horizon)
            if figure is None:
                return found
            left[group, number] = k * by_seed[number] - (k - 1) * figure
    centre = math.fsum(left.values()) / len(left)
    cells = {place: value - centre for place, value in left.items()}
    variance, freedom = _two_way(cells, dict.fromkeys(groups, 1), seeds)
    if variance < 1e-24:
        return found
    mean = math.fsum(by_seed) / seeds
    half = student((1 + fight.confidence) / 2, freedom) * math.sqrt(variance)
    return {**found, "low": max(0.0, mean - half), "high": min(horizon, mean + half)}


def _ends(fight: Fight) -> dict[int, tuple[int, bool]]:
    """Return when each attack blocked at first fell, or was given up, and which of the two."""
    found = {}
    for place, told in fight.searched("adaptive").items():
        first = next((n for n, row in enumerate(told, 1) if fight.holds(row)), None)
        found[place] = (first or len(told), first is not None)
    return found


def _held_for(ends: list[tuple[int, bool]], horizon: int) -> float | None:
    """Return the area under Kaplan and Meier's product up to a horizon, or None past the last."""
    holding, mean, before = 1.0, 0.0, 0
    for time in sorted({time for time, _ in ends}):
        mean += holding * max(0, min(time, horizon) - before)
        at_risk = sum(other >= time for other, _ in ends)
        holding *= 1 - sum(fell for other, fell in ends if other == time) / at_risk
        before = min(time, horizon)
    if not ends or (before < horizon and holding > 1e-12):
        return None
    return mean
