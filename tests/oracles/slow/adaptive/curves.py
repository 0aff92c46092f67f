"""Curves of an attacker's success, drawn a second time as a slow reference, point by point."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tests.oracles.slow.formulas.means import share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.oracles.slow.adaptive.rows import Fight

Json = dict[str, Any]


def area_of(first: int | None, budget: int) -> float:
    """Return the area of one attack's curve over log k, trapezoid by trapezoid."""
    height = [float(first is not None and first <= k) for k in range(1, budget + 1)]
    return math.fsum(
        (height[k - 1] + height[k]) / 2 * (math.log(k + 1) - math.log(k)) for k in range(1, budget)
    ) / math.log(budget)


def area(fight: Fight, firsts: dict[str, dict[int, int | None]]) -> Json:
    """Return the areas of both arms, with their limits."""
    tries = fight.searched("adaptive")
    return {
        "adaptive": _mean(fight, firsts["adaptive"]),
        "blind": _mean(fight, firsts["blind"]),
        "given_up": sum(
            len(told) < fight.budget and not any(map(fight.holds, told)) for told in tries.values()
        ),
    }


def _mean(fight: Fight, firsts: dict[int, int | None]) -> Json:
    # Many trapezoids add up to a hair beside 1; a curve that stands at 1 from the start is 1.
    known = {first: round(area_of(first, fight.budget), 12) for first in set(firsts.values())}
    areas = [known[first] for first in firsts.values()]
    return _ratio(fight, areas, [fight.group[place] for place in firsts], name="area")


def _ratio(fight: Fight, values: Sequence[float], groups: Sequence[str], *, name: str) -> Json:
    said = share(values, groups, fight.confidence)
    method = f"{name}, {said.pop('limits')}"
    return {**said, "method": method, "trials": len(values), "replicates": 0}


def survival(fight: Fight) -> Json:
    """Return the median and the mean of tries to a bypass, by Kaplan and Meier's product."""
    ends = []
    for told in fight.searched("adaptive").values():
        first = next((n for n, row in enumerate(told, 1) if fight.holds(row)), None)
        ends.append((first or len(told), first is not None))
    if not ends:
        return {"median_tries": None, "mean_tries": None}
    horizon = min(fight.budget, max(time for time, _ in ends))
    holding, median, mean, before = 1.0, None, 0.0, 0
    for time in sorted({time for time, _ in ends}):
        if before < horizon:
            mean += holding * (min(time, horizon) - before)
        at_risk = sum(other >= time for other, _ in ends)
        holding *= 1 - sum(fell for other, fell in ends if other == time) / at_risk
        before = time
        if median is None and holding <= 0.5 + 1e-12:
            median = time
    return {"median_tries": {"value": median}, "mean_tries": {"value": mean}}


def chen(fight: Fight, ks: Sequence[int]) -> list[Json]:
    """Return ASR@k of the blind arm, counting subsets of tries."""
    counts = _counts(fight)
    if not counts or min(n for n, _ in counts) < 1:
        return []
    least = min(n for n, _ in counts)
    groups = [fight.group[place] for place in fight.static]
    found = []
    for k in ks:
        missed: list[float] = []
        if least >= k:
            missed = [math.comb(n - wins, k) / math.comb(n, k) for n, wins in counts]
        mean = _ratio(fight, [1 - each for each in missed], groups if missed else (), name="chen")
        found.append({"k": k, "rate": {**mean, "trials": len(counts), "groups": len({*groups})}})
    return found


def _counts(fight: Fight) -> list[tuple[int, int]]:
    """Return tries and bypasses of each attack in the blind arm; those that pass always pass."""
    tries, counts = fight.searched("adaptive/blind"), []
    for place, is_static in fight.static.items():
        told = tries.get(place, [])
        wins = sum(map(fight.holds, told[: fight.budget]))
        counts.append((fight.budget, fight.budget) if is_static else (len(told), wins))
    return counts
