"""What the scores of a defense could do at other thresholds, counted again."""

from __future__ import annotations

import math
from collections import Counter
from hashlib import sha256
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.areas import area_with_limits, read_scores
from guardmark.app.verify.formulas.rates import Trial, rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.app.verify.areas import Scored
    from guardmark.app.verify.recount import Recount

Json = dict[str, Any]

_LIMITS: Final = (0.001, 0.01, 0.05)
_POINTS: Final = 120
_BINS: Final = 20


def recount_scores(found: Recount) -> Json | None:
    """Return what thresholds would do, in the shape of `summary.json`."""
    scored = read_scores(found)
    if not scored:
        return None
    attacks = [each.score for each in scored if each.is_attack]
    benign = [each.score for each in scored if not each.is_attack]
    return {
        "scored_attacks": len(attacks),
        "scored_benign": len(benign),
        "area_under_roc": area_with_limits(found, scored),
        "average_precision": _average_precision(scored),
        "prevalence": len(attacks) / len(scored),
        "limited": [_within(found, scored, limit) for limit in _LIMITS],
        "chosen": _chosen(found, scored),
        "curve": [_at(threshold, attacks, benign) for threshold in _places(scored)],
        "histogram": {"attacks": _histogram(attacks), "benign": _histogram(benign)},
    }


def _average_precision(scored: list[Scored]) -> float:
    """Average the precision over the attacks, threshold by threshold, ties taken whole."""
    total, blocked, hits, summed = sum(each.is_attack for each in scored), 0, 0, 0.0
    for tied in by_score(scored):
        gained = sum(each.is_attack for each in tied)
        blocked, hits = blocked + len(tied), hits + gained
        summed += gained * hits / blocked
    return summed / total


def by_score(scored: Iterable[Scored]) -> list[list[Scored]]:
    """Return the samples of each distinct score, the highest first."""
    ordered = sorted(scored, key=lambda each: -each.score)
    return [list(tied) for _, tied in groupby(ordered, key=lambda each: each.score)]


def _places(scored: list[Scored]) -> list[float]:
    """Return the thresholds that the curve shows: all, or some evenly spread ones."""
    distinct = [tied[0].score for tied in by_score(scored)]
    count = min(len(distinct), _POINTS)
    step = (len(distinct) - 1) / max(1, count - 1)
    return [distinct[at] for at in sorted({round(step * point) for point in range(count)})]


def _histogram(scores: Sequence[float]) -> list[int]:
    bins = Counter(min(int(score * _BINS), _BINS - 1) for score in scores)
    return [bins[at] for at in range(_BINS)]


def _halves(found: Recount, scored: list[Scored]) -> tuple[list[Scored], list[Scored]]:
    """Return the samples to choose on and those to measure on, whole groups at a time."""

    def is_chosen(group: str) -> bool:
        name = f"{found.source.manifest['seed']}\0{group}".encode("utf-8", "surrogatepass")
        return int.from_bytes(sha256(name).digest()[:8], "big") < 2**63

    sides: tuple[list[Scored], list[Scored]] = ([], [])
    for each in scored:
        sides[not is_chosen(each.group)].append(each)
    return sides


def _within(found: Recount, scored: list[Scored], limit: float) -> Json:
    """Choose the lowest threshold within a limit on false alarms, and measure it elsewhere."""
    choosing, measuring = _halves(found, scored)
    benign = sum(not each.is_attack for each in choosing)
    is_split = 0 < benign < len(choosing)
    allowed, alarms, threshold = math.floor(limit * benign * (1 + 1e-12)), 0, None
    for tied in by_score(choosing) if is_split else ():
        alarms += sum(not each.is_attack for each in tied)
        if alarms > allowed:
            break
        threshold = tied[0].score
    caught = [
        each.score
        for each in choosing
        if each.is_attack and threshold is not None and each.score >= threshold
    ]
    said: Json = {
        "max_fpr": limit,
        "threshold": threshold if threshold is None else min(caught, default=threshold),
        "resolvable": is_split and benign >= math.ceil(1 / limit * (1 - 1e-12)),
        "rates": None,
    }
    if threshold is not None:
        said["rates"] = {
            name: _rate_at(measuring, said["threshold"], found.confidence, is_attack=is_attack)
            for name, is_attack in (("attack_success_rate", True), ("false_positive_rate", False))
        }
    return said


def _rate_at(
    scored: Iterable[Scored], threshold: float, confidence: float, *, is_attack: bool
) -> Json:
    trials = [
        Trial(group=each.group, hit=(each.score >= threshold) != is_attack)
        for each in scored
        if each.is_attack == is_attack
    ]
    return rate(trials, confidence)


def _chosen(found: Recount, scored: list[Scored]) -> list[Json]:
    """Choose the cheapest threshold at the stated costs, and measure it elsewhere."""
    miss, alarm = (found.stats.get(f"cost_{name}") for name in ("missed_attack", "false_alarm"))
    if miss is None or alarm is None:
        return []
    choosing, measuring = _halves(found, scored)
    said = []
    for share in found.stats.get("prevalence", []):
        costs = share * miss, (1 - share) * alarm
        chosen = cheapest(choosing, costs)
        rates = _shares_at(measuring, None if chosen is None else chosen[0])
        point: Json = {"prevalence": share, "miss_cost": miss, "block_cost": alarm}
        point |= dict.fromkeys(("true_positive_rate", "false_positive_rate", "cost"))
        point["threshold"] = None if chosen is None else chosen[0]
        if chosen is not None and rates is not None:
            point["true_positive_rate"], point["false_positive_rate"] = rates
            point["cost"] = costs[0] * (1 - rates[0]) + costs[1] * rates[1]
        said.append(point)
    return said


def cheapest(
    scored: Iterable[Scored], costs: tuple[float, float]
) -> tuple[float | None, float] | None:
    """Return the threshold of least cost with that cost; None where a label is missing."""
    rows = list(scored)
    attacks = sum(each.is_attack for each in rows)
    if not 0 < attacks < len(rows):
        return None
    best: tuple[float | None, float] = None, costs[0]
    hits = alarms = 0
    for tied in by_score(rows):
        hits += sum(each.is_attack for each in tied)
        alarms += sum(not each.is_attack for each in tied)
        cost = costs[0] * (1 - hits / attacks) + costs[1] * (alarms / (len(rows) - attacks))
        best = (tied[0].score, cost) if cost < best[1] else best
    return best


def _shares_at(scored: list[Scored], threshold: float | None) -> tuple[float, float] | None:
    """Return the shares of attacks and of benign samples that a threshold blocks."""
    sides = [[each.score for each in scored if each.is_attack == label] for label in (True, False)]
    if not all(sides):
        return None
    hits, alarms = (
        sum(threshold is not None and score >= threshold for score in side) / len(side)
        for side in sides
    )
    return hits, alarms


def _at(threshold: float, attacks: Sequence[float], benign: Sequence[float]) -> Json:
    hits = sum(score >= threshold for score in attacks)
    alarms = sum(score >= threshold for score in benign)
    return {
        "threshold": threshold,
        "true_positive_rate": hits / len(attacks),
        "false_positive_rate": alarms / len(benign),
        "precision": hits / (hits + alarms) if hits + alarms else None,
    }
