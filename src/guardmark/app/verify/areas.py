"""Areas under the ROC curve, their limits and their differences, counted a second time."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import combinations, groupby
from operator import itemgetter
from statistics import NormalDist, variance
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guardmark.app.verify.formulas.drawing import draw_groups, on_request, spread
from guardmark.app.verify.formulas.rates import student, student_tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.app.verify.recount import Recount

Json = dict[str, Any]

_DRAWS: Final = 200
_NO_LIMITS: Final[Json] = {"low": None, "high": None, "replicates": 0}


class Scored(NamedTuple):
    """One decision with a score."""

    score: float
    is_attack: bool
    group: str


def read_scores(found: Recount) -> list[Scored]:
    """Return the decisions of a defense that have a score; none where a label is missing."""
    scored = list(_by_place(found).values())
    return scored if len({each.is_attack for each in scored}) == 2 else []


def area_with_limits(found: Recount, scored: list[Scored]) -> Json:
    """Return the area under the ROC curve with limits on the logit scale.

    References:
        DeLong, DeLong & Clarke-Pearson (1988), doi:10.2307/2531595, where samples stand alone.
    """
    attacks = [each.score for each in scored if each.is_attack]
    benign = [each.score for each in scored if not each.is_attack]
    value = area(attacks, benign)
    said: Json = {
        "value": value,
        "trials": len(scored),
        "confidence": found.confidence,
        **_NO_LIMITS,
    }
    if not found.is_grouped:
        said |= {"method": "delong, logit", "groups": None}
        if min(len(attacks), len(benign)) < 2:
            return said
        places = (_placements(scored, is_attack=label) for label in (True, False))
        error = math.sqrt(sum(variance(each) / len(each) for each in places))
        return said | _logit_limits(value, _quantile(found.confidence, None) * error)
    sides = [{each.group for each in scored if each.is_attack == label} for label in (1, 0)]
    freedom, groups = min(map(len, sides)) - 1, len(sides[0] | sides[1])
    said |= {"method": "group bootstrap, logit", "groups": groups}
    if freedom < 1:
        return said

    def count() -> Json:
        error = spread(_drawn_areas(found, [scored])[0])
        limits = _logit_limits(value, _quantile(found.confidence, freedom) * error)
        return limits | {"replicates": _DRAWS}

    return said | on_request(_DRAWS * groups, [*_NO_LIMITS], count)


def _quantile(confidence: float, freedom: int | None) -> float:
    upper = (1 + confidence) / 2
    return NormalDist().inv_cdf(upper) if freedom is None else student(upper, freedom)


def _logit_limits(value: float, half: float) -> Json:
    """Return limits half a width off on the logit scale; none at a bound and without a width."""
    if not half or value in {0.0, 1.0}:
        return {"low": None, "high": None}
    centre, half = math.log(value / (1 - value)), half / (value * (1 - value))
    low, high = (1 / (1 + math.exp(-(centre + side * half))) for side in (-1, 1))
    return {"low": low, "high": high}


def _drawn_areas(found: Recount, sides: Sequence[Sequence[Scored]]) -> list[list[float]]:
    """Return the area of each draw of whole groups; one draw serves every list of scores.

    References:
        Rutter (2000), Academic Radiology 7:413: groups with attacks, with benign samples and with
        both are drawn apart.
    """
    first = sides[0]
    present = {each.group for each in first}
    # Groups are drawn in the order in which the data first name them.
    named = dict.fromkeys(group for group in found.source.groups() if group in present)
    numbers = {group: number for number, group in enumerate(named)}
    labels = [{numbers[each.group] for each in first if each.is_attack == side} for side in (1, 0)]
    strata = [labels[0] - labels[1], labels[1] - labels[0], labels[0] & labels[1]]
    lined = [
        sorted((each.score, each.is_attack, numbers[each.group]) for each in side) for side in sides
    ]
    draws = draw_groups(
        [sorted(stratum) for stratum in strata],
        seed=found.source.manifest["seed"],
        replicates=_DRAWS,
        rows=len(first),
    )
    areas: list[list[float]] = [[] for _ in sides]
    for weights in draws:
        for rows, told in zip(lined, areas, strict=True):
            told.append(_weighted_area(rows, weights))
    return areas


def _weighted_area(rows: list[tuple[float, bool, int]], weights: list[int]) -> float:
    wins = below = hits = quiet = won = 0.0
    last = None
    for score, is_attack, group in rows:
        if score != last:
            wins, below = wins + hits * (below + quiet / 2), below + quiet
            won, hits, quiet, last = won + hits, 0.0, 0.0, score
        if is_attack:
            hits += weights[group]
        else:
            quiet += weights[group]
    wins, below, won = wins + hits * (below + quiet / 2), below + quiet, won + hits
    return wins / (won * below)


def area(attacks: Sequence[float], benign: Sequence[float]) -> float:
    """Return the chance that an attack scores above a benign sample, ties half (Mann-Whitney)."""
    ranked = sorted([(score, 1) for score in attacks] + [(score, 0) for score in benign])
    wins, below = 0.0, 0
    for _, tied in groupby(ranked, key=itemgetter(0)):
        kinds = [kind for _, kind in tied]
        quiet = kinds.count(0)
        wins += kinds.count(1) * (below + quiet / 2)
        below += quiet
    return wins / (len(attacks) * len(benign))


def recount_areas(recounts: dict[str, Recount]) -> list[Json]:
    """Return the areas of every two scoring defenses against each other."""
    scores = {name: _by_place(found) for name, found in recounts.items()}
    said = []
    for one, two in combinations([name for name, told in scores.items() if told], 2):
        both = sorted(scores[one].keys() & scores[two].keys())
        sides = [[scores[name][place] for place in both] for name in (one, two)]
        if len({each.is_attack for each in sides[0]}) == 2:
            found = _difference(recounts[one], sides)
            said.append({"first": one, "second": two, "difference": found})
    return said


def _by_place(found: Recount) -> dict[tuple[int, int], Scored]:
    told = found.decisions
    rows = [row for row in found.rows() if found.is_scored(row)]
    groups = found.source.groups() if rows else []
    return {
        (told.repeats[row], place): Scored(
            told.scores[row], found.samples.is_attack(place), groups[place]
        )
        for row in rows
        for place in (told.places[row],)
    }


def _difference(found: Recount, sides: list[list[Scored]]) -> Json:
    first, second = (
        area(*([each.score for each in side if each.is_attack == label] for label in (1, 0)))
        for side in sides
    )
    gap, confidence = first - second, found.confidence
    said: Json = {
        "value": gap,
        "pairs": len(sides[0]),
        "confidence": confidence,
        "first_only": None,
        "second_only": None,
        **dict.fromkeys(("low", "high", "p_value", "groups")),
    }
    if not found.is_grouped:
        error = _error_apart(sides)
        return said | {"method": "delong"} | _tested(gap, error, confidence=confidence)
    groups = [{each.group for each in sides[0] if each.is_attack == label} for label in (1, 0)]
    freedom = min(map(len, groups)) - 1
    said |= {"method": "group bootstrap", "groups": len(groups[0] | groups[1])}
    if freedom < 1:
        return said

    def count() -> Json:
        one, two = _drawn_areas(found, sides)
        error = spread([a - b for a, b in zip(one, two, strict=True)])
        return _tested(gap, error, confidence=confidence, freedom=freedom)

    return said | on_request(_DRAWS * said["groups"], ("low", "high", "p_value"), count)


def _tested(
    gap: float, error: float | None, *, confidence: float, freedom: int | None = None
) -> Json:
    """Return limits and test of a difference of areas; none where its error is not known."""
    said: Json = dict.fromkeys(("low", "high", "p_value"))
    if error is not None and (error or gap == 0):
        said["p_value"] = _two_sided(abs(gap / error) if error else 0.0, freedom)
    if error:
        half = _quantile(confidence, freedom) * error
        said |= {"low": max(gap - half, -1.0), "high": min(gap + half, 1.0)}
    return said


def _two_sided(statistic: float, freedom: int | None) -> float:
    if freedom is None:
        return math.erfc(statistic / math.sqrt(2))
    return 2 * student_tail(statistic, freedom)


def _error_apart(sides: list[list[Scored]]) -> float | None:
    """Return the standard error of a difference of areas, from the placements' differences."""
    total = 0.0
    for label in (True, False):
        one, two = (_placements(side, is_attack=label) for side in sides)
        if len(one) < 2:
            return None
        total += variance([a - b for a, b in zip(one, two, strict=True)]) / len(one)
    return math.sqrt(total)


def _placements(side: list[Scored], *, is_attack: bool) -> list[float]:
    """Return for each sample of one class the share of the other it is placed right against."""
    sign = 1 if is_attack else -1
    ranked = sorted(sign * each.score for each in side if each.is_attack != is_attack)
    places = []
    for each in side:
        if each.is_attack == is_attack:
            below = bisect_left(ranked, sign * each.score)
            tied = bisect_right(ranked, sign * each.score) - below
            places.append((below + tied / 2) / len(ranked))
    return places
