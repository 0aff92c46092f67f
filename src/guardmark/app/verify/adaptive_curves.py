"""Curves of an attacker's success, drawn a second time for `verify`, point by point."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from guardmark.app.verify.rates import student, wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.app.verify.adaptive_rows import Fight

Json = dict[str, Any]


def area_of(first: int | None, budget: int) -> float:
    """Return the area of one attack's curve over log k, trapezoid by trapezoid.

    Args:
        first: Its first bypass, 0 as it is, None without one.
        budget: Search calls it was worth.
    """
    height = [float(first is not None and first <= k) for k in range(1, budget + 1)]
    return math.fsum(
        (height[k - 1] + height[k]) / 2 * (math.log(k + 1) - math.log(k)) for k in range(1, budget)
    ) / math.log(budget)


def area(fight: Fight, firsts: dict[str, dict[int, int | None]]) -> Json:
    """Return the areas of both arms, with their limits.

    Args:
        fight: The tries.
        firsts: Arm to the first bypass of each attack.
    """
    tries = fight.searched("adaptive")
    return {
        "adaptive": _mean(fight, firsts["adaptive"]),
        "blind": _mean(fight, firsts["blind"]),
        "given_up": sum(
            len(told) < fight.budget and not any(map(fight.holds, told)) for told in tries.values()
        ),
    }


def _mean(fight: Fight, firsts: dict[int, int | None]) -> Json:
    known = {first: area_of(first, fight.budget) for first in set(firsts.values())}
    areas = {place: known[first] for place, first in firsts.items()}
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for place, value in areas.items():
        groups[fight.group[place]].append(value)
    n, k = len(areas), len(groups)
    mean = math.fsum(areas.values()) / n if n else None
    found: Json = {"value": mean, "trials": n, "groups": k}
    if mean is None or k < 2:
        return {**found, "low": None, "high": None}
    whole = all(math.isclose(value, round(value)) for value in areas.values())
    if mean in {0.0, 1.0} or (n == k and whole):
        z = NormalDist().inv_cdf((1 + fight.confidence) / 2)
        low, high = wilson(round(mean * k) / k, k, z)
        return {**found, "low": low, "high": high}
    residual = math.fsum(math.fsum(value - mean for value in told) ** 2 for told in groups.values())
    spread = math.sqrt(residual * k / (k - 1)) / n
    if spread < 1e-12:
        return {**found, "low": None, "high": None}
    half = student((1 + fight.confidence) / 2, k - 1) * spread
    return {**found, "low": max(0.0, mean - half), "high": min(1.0, mean + half)}


def survival(fight: Fight) -> Json:
    """Return the median and the mean of tries to a bypass, by Kaplan and Meier's product.

    Args:
        fight: The tries.
    """
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
    return {"median_tries": median, "mean_tries": mean}


def chen(fight: Fight, ks: Sequence[int]) -> list[Json]:
    """Return ASR@k of the blind arm, counting subsets of tries.

    Args:
        fight: The tries.
        ks: Tries to speak of.
    """
    tries, counts = fight.searched("adaptive/blind"), []
    for place, is_static in fight.static.items():
        told = tries.get(place, [])[: fight.budget]
        wins = sum(map(fight.holds, told))
        counts.append(
            (fight.budget, fight.budget) if is_static else (len(tries.get(place, [])), wins)
        )
    if not counts or min(n for n, _ in counts) < 1:
        return []
    least = min(n for n, _ in counts)
    found = []
    for k in ks:
        value = None
        if least >= k:
            missed = (math.comb(n - wins, k) / math.comb(n, k) for n, wins in counts)
            value = 1 - math.fsum(missed) / len(counts)
        found.append({"k": k, "rate": {"value": value, "trials": len(counts)}})
    return found
