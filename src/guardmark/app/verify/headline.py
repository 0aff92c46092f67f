"""The headline of a run counted again from its records, without the code of `analysis`."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.mismatches import MismatchKind
from guardmark.core.values import dataclass
from guardmark.stats.distributions import t_quantile

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping

    from guardmark.app.verify.mismatches import Mismatches


RateGroups = Counter[tuple[int, int]]
"""Trials and hits of a group to how many groups have so many: all that a rate depends on."""
PairGroups = Counter[tuple[int, int, int]]
"""Pairs of a group, and those that only the first or only the second side has, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure with its limits; None where it is undefined."""

    value: float | None
    low: float | None
    high: float | None


_UNDEFINED = Interval(value=None, low=None, high=None)


def rate_interval(groups: RateGroups, confidence: float) -> Interval:
    """Return a rate with Wilson's limits, at the effective number of trials where groups share."""
    n, k = _sum(groups, lambda m, _: m), groups.total()
    if not n:
        return _UNDEFINED
    p = _sum(groups, lambda _, h: h) / n
    if n == k:
        low, high = _wilson(p, n, NormalDist().inv_cdf((1 + confidence) / 2))
    elif k == 1:
        return Interval(value=p, low=None, high=None)
    else:
        t = t_quantile((1 + confidence) / 2, _freedom(groups))
        low, high = _wilson(p, n / _design_effect(groups, n=n, p=p), t)
    return Interval(value=p, low=low, high=high)


def difference_interval(groups: PairGroups, confidence: float) -> Interval:
    """Return a paired difference: Bonett & Price (2012), in groups no narrower than its sides."""
    first: RateGroups = Counter()
    second: RateGroups = Counter()
    for (pairs, first_only, second_only), count in groups.items():
        first[pairs, first_only] += count
        second[pairs, second_only] += count
    b, c = _sum(first, lambda _, h: h), _sum(second, lambda _, h: h)
    n, k = _sum(first, lambda m, _: m), groups.total()
    if not n:
        return _UNDEFINED
    value, effect, z = (b - c) / n, 1.0, NormalDist().inv_cdf((1 + confidence) / 2)
    if n > k == 1:
        return Interval(value=value, low=None, high=None)
    if n > k:
        effect = _paired_effect(groups, n=n, b=b, c=c)
        z = t_quantile((1 + confidence) / 2, _freedom(first))
    total = n / effect + 2
    one, two = (b / effect + 1) / total, (c / effect + 1) / total
    half = z * math.sqrt((one + two - (one - two) ** 2) / total)
    low, high = one - two - half, one - two + half
    if n > k:
        first_below, first_above = _side(first, confidence)
        second_below, second_above = _side(second, confidence)
        low = min(low, value - math.hypot(first_below, second_above))
        high = max(high, value + math.hypot(first_above, second_below))
    return Interval(value=value, low=max(-1.0, min(low, value)), high=min(1.0, max(high, value)))


def _side(groups: RateGroups, confidence: float) -> tuple[float, float]:
    """Return how far the limits of one side's share lie below and above it (Zou & Donner 2008)."""
    share = rate_interval(groups, confidence)
    value, high = share.value or 0.0, 1.0
    if share.high is not None:
        high = share.high
    return value - (share.low or 0.0), high - value


def _sum(groups: RateGroups, term: Callable[[int, int], float]) -> float:
    return math.fsum(count * term(m, h) for (m, h), count in groups.items())


def _design_effect(groups: RateGroups, *, n: float, p: float) -> float:
    """Return how much groups inflate the variance, drawn to its limit where few groups tell."""
    k = groups.total()
    limit = _sum(groups, lambda m, _: m * m) / n
    linearised = limit
    if 0 < p < 1:
        variance = _sum(groups, lambda m, h: (h - p * m) ** 2) * k / (k - 1) / n**2
        linearised = min(max(variance / (p * (1 - p) / n), 1.0), limit)
    seen = max(linearised, 1 + (limit - 1) * _correlation(groups, n=n, p=p))
    with_hit, with_miss = 0, 0
    for (trials, hits), count in groups.items():
        if hits > 0:
            with_hit += count
        if hits < trials:
            with_miss += count
    return _drawn_to(limit, seen, min(with_hit, with_miss))


def _freedom(groups: RateGroups) -> float:
    """Return K - 1; where one group dominates, Kish's number of equal groups less one."""
    n, k = _sum(groups, lambda m, _: m), groups.total()
    if max(m for m, _ in groups) / n <= max(0.2, 2 / k):
        return k - 1
    return max(1.0, n * n / _sum(groups, lambda m, _: m * m) - 1)


def _correlation(groups: RateGroups, *, n: float, p: float) -> float:
    """Intra-group correlation in [0, 1] by analysis of variance (Ridout, Demetrio & Firth 1999)."""
    k = groups.total()
    between = _sum(groups, lambda m, h: m * (h / m - p) ** 2) / (k - 1)
    within = _sum(groups, lambda _, h: h) - _sum(groups, lambda m, h: h * h / m)
    within /= n - k
    usual = (n - _sum(groups, lambda m, _: m * m) / n) / (k - 1)
    total = between + (usual - 1) * within
    if total > 0:
        return min(max((between - within) / total, 0.0), 1.0)
    return 1.0


def _paired_effect(groups: PairGroups, *, n: float, b: float, c: float) -> float:
    """Return how much groups inflate the variance of a paired difference, likewise."""
    k, gap = groups.total(), (b - c) / n
    limit = sum(count * m * m for (m, _, _), count in groups.items()) / n
    residual = math.fsum(
        count * (one - two - gap * m) ** 2 for (m, one, two), count in groups.items()
    )
    alone = ((b + c) / n - gap**2) / n
    variance = residual * k / (k - 1) / n**2
    seen = limit
    if alone > 1e-15:
        seen = min(max(variance / alone, 1.0), limit)
    telling = sum(count for (_, one, two), count in groups.items() if one + two > 0)
    return _drawn_to(limit, seen, telling)


def _drawn_to(limit: float, seen: float, telling: int) -> float:
    weight = telling / (telling + 2)
    return weight * seen + (1 - weight) * limit


def _wilson(p: float, n: float, z: float) -> tuple[float, float]:
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = middle - half, middle + half
    if p == 0:
        low = 0.0
    if p == 1:
        high = 1.0
    return low, high


Json = dict[str, Any]

_REWRITTEN: Final = "rewritten"
_OUTCOMES: Final = ("allow", "block", "malformed", "error", _REWRITTEN)
"""Outcomes of a defense; their places are their codes in the records."""
_SIDES: Final = (("attacks", 1), ("benign", 0))
_PAIRED: Final = (("attack_success_rate", 1, 0), ("false_positive_rate", 0, 1))
"""A rate, the label it is about, and the code of its error."""
_CROSSED: Final = "_crossed"
"""End of the names of methods that know two origins of a row."""
_OF_GROUPS: Final = ("groups", "low", "high")
"""What the second count knows by one origin only."""
_COUNTED, _MATCHED = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split(";")[:2]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefenseCounts:
    """What one defense decided: outcomes by label, and groups by what a rate depends on."""

    outcomes: Mapping[int, Counter[str]]
    decided: Mapping[int, Counter[tuple[int, int]]]
    answered: RateGroups

    def rate(self, label: int, hit: int) -> RateGroups:
        """Return trials and hits among the decisions on one label."""
        rates: RateGroups = Counter()
        for counts, groups in self.decided[label].items():
            rates[sum(counts), counts[hit]] += groups
        return rates


def check_headline(path: Path, connection: sqlite3.Connection, mismatches: Mismatches) -> str:
    """Compare the headline in `summary.json` with the records; return what was not counted."""
    stated = read_summary(path, mismatches)
    if not stated:
        return f"{path.name} holds no headline that could be counted again."
    row = connection.execute("SELECT value FROM meta WHERE key = 'manifest'").fetchone()
    confidence = float(json.loads(row[0])["confidence"])
    thresholds = redecided(stated)
    compared: list[tuple[str, Json, Json]] = []
    for defense in _defenses(stated):
        counts = count_defense(connection, defense["name"], thresholds.get(defense["name"]))
        compared += _defense_figures(defense, counts, confidence)
    compared += _pair_figures(stated, connection, confidence, thresholds)
    skipped, crossed = [], []
    for where, figures, counted in compared:
        # Limits of a defense that a rule ended early hold at any look.
        if "sequence" in str(figures.get("method")):
            skipped.append(where)
            continue
        is_crossed = str(figures.get("method")).endswith(_CROSSED)
        if is_crossed:
            crossed.append(where)
        for key, value in counted.items():
            if is_crossed and key in _OF_GROUPS:
                continue
            mismatches.value(
                MismatchKind.HEADLINE,
                path.name,
                f"{where}.{key}",
                stated=figures.get(key),
                counted=value,
            )
    notes = []
    if skipped:
        notes.append(
            f"{len(skipped)} figures of defenses that a rule ended early were not counted again "
            f"(the first: {skipped[0]})."
        )
    if crossed:
        notes.append(
            f"Limits of {len(crossed)} figures of crossed rows were not counted again; counts and "
            f"values were (the first: {crossed[0]})."
        )
    return " ".join(notes)


def read_summary(path: Path, mismatches: Mismatches) -> Json:
    """Read `summary.json`; nothing where it is missing, a mismatch where it is no object."""
    if not path.exists():
        return {}
    try:
        stated = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        stated = None
    if isinstance(stated, dict):
        return stated
    mismatches.differ(
        MismatchKind.HEADLINE, path.name, "", stated="no JSON object", counted="a summary"
    )
    return {}


def count_defense(
    connection: sqlite3.Connection, name: str, threshold: float | None
) -> DefenseCounts:
    """Count what one defense decided in the run itself."""
    outcomes: dict[int, Counter[str]] = {1: Counter(), 0: Counter()}
    decided: dict[int, Counter[tuple[int, int]]] = {1: Counter(), 0: Counter()}
    answered: RateGroups = Counter()
    rows = connection.execute(_COUNTED, {"name": name, "a": threshold})
    for _, group in groupby(rows, key=lambda row: row[0]):
        asked = replied = 0
        for _, label, allow, block, *failed in group:
            for outcome, count in zip(_OUTCOMES, (allow, block, *failed), strict=True):
                outcomes[label][outcome] += count
            if allow + block:
                decided[label][allow, block] += 1
            *_, rewritten = failed
            asked += allow + block + sum(failed)
            replied += allow + block + rewritten
        answered[asked, replied] += 1
    return DefenseCounts(outcomes=outcomes, decided=decided, answered=answered)


def _defense_figures(
    stated: Json, counts: DefenseCounts, confidence: float
) -> Iterator[tuple[str, Json, Json]]:
    """Yield place, stated and counted figures of one defense."""
    where = f"defenses[{stated['name']}]"
    for side, label in _SIDES:
        outcomes = counts.outcomes[label]
        figures = _within(stated, "counts", side)
        counted: Json = {outcome: outcomes[outcome] for outcome in _OUTCOMES}
        if not outcomes[_REWRITTEN] and _REWRITTEN not in figures:
            del counted[_REWRITTEN]  # a summary from before there was such a count
        counted["answered"] = outcomes["allow"] + outcomes["block"] + outcomes[_REWRITTEN]
        counted["total"] = outcomes.total()
        yield f"{where}.counts.{side}", figures, counted
    for name, groups in (
        ("attack_success_rate", counts.rate(1, 0)),
        ("true_positive_rate", counts.rate(1, 1)),
        ("false_positive_rate", counts.rate(0, 1)),
        ("answered", counts.answered),
    ):
        all_trials, all_hits = 0, 0
        for (trials, hits), count in groups.items():
            all_trials += count * trials
            all_hits += count * hits
        counted = {
            "successes": all_hits,
            "trials": all_trials,
            "groups": groups.total(),
            **asdict(rate_interval(groups, confidence)),
        }
        yield f"{where}.rates.{name}", _within(stated, "rates", name), counted


def _pair_figures(
    stated: Json, connection: sqlite3.Connection, confidence: float, thresholds: Mapping[str, float]
) -> Iterator[tuple[str, Json, Json]]:
    """Yield place, stated and counted figures of the paired differences."""
    for number, pair in enumerate(_objects(_within(stated, "comparison").get("pairs"))):
        for name, label, error in _PAIRED:
            first, second = str(pair.get("first")), str(pair.get("second"))
            parameters = {
                "first": first,
                "second": second,
                "a": thresholds.get(first),
                "b": thresholds.get(second),
                "label": label,
                "error": error,
            }
            groups: PairGroups = Counter()
            pairs, first_only, second_only = 0, 0, 0
            for in_group, only_first, only_second in connection.execute(_MATCHED, parameters):
                groups[in_group, only_first, only_second] += 1
                pairs += in_group
                first_only += only_first
                second_only += only_second
            counted = {
                "pairs": pairs,
                "first_only": first_only,
                "second_only": second_only,
                "groups": groups.total(),
                **asdict(difference_interval(groups, confidence)),
            }
            difference = _within(pair, name, "difference")
            yield f"comparison.pairs[{number}].{name}.difference", difference, counted


def redecided(stated: Json) -> dict[str, float]:
    """Return the thresholds that reports were asked to decide anew by, by defense."""
    thresholds = {}
    for defense in _defenses(stated):
        threshold = defense.get("threshold")
        if defense.get("is_redecided") is True and isinstance(threshold, int | float):
            thresholds[defense["name"]] = float(threshold)
    return thresholds


def _defenses(stated: Json) -> Iterator[Json]:
    """Yield the figures of each defense that has a name."""
    for defense in _objects(stated.get("defenses")):
        if isinstance(defense.get("name"), str):
            yield defense


def _within(stated: Json, *keys: str) -> Json:
    """Return the object that stands below some keys; an empty one where none does."""
    value: object = stated
    for key in keys:
        if not isinstance(value, dict):
            return {}
        value = value.get(key)
    if isinstance(value, dict):
        return value
    return {}


def _objects(value: object) -> Iterator[Json]:
    """Yield the objects of a list; none where it is no list."""
    if not isinstance(value, list):
        return
    for member in value:
        if isinstance(member, dict):
            yield member
