"""What scores are worth as probabilities, counted a second time bin by bin."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.areas import read_scores
from guardmark.app.verify.formulas.rates import plain_rate
from guardmark.app.verify.scores import by_score, cheapest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guardmark.app.verify.areas import Scored
    from guardmark.app.verify.recount import Recount

Json = dict[str, Any]

_BINS: Final = 10
_MAX_FPR: Final = 0.1
_PREVALENCES: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5)
_MANY: Final = 25.0


def recount_calibration(found: Recount) -> Json | None:
    """Return what scores are worth as probabilities, in the shape of `summary.json`."""
    scored = read_scores(found)
    if not scored:
        return None
    return {
        "brier": _brier(scored),
        "calibration": [
            {"binning": name, **_calibration(scored, place, found.confidence)}
            for name, place in (
                ("equal_width", _by_width),
                ("equal_mass", _by_mass(scored)),
            )
        ],
        **_partial_areas(scored),
        "expected_costs": _costs(found, scored),
    }


def _by_width(score: float) -> int:
    return min(math.floor(score * _BINS), _BINS - 1)


def _by_mass(scored: Sequence[Scored]) -> Callable[[float], int]:
    """Sort a score by its middle rank, so that ties stay together."""
    bins, below = {}, 0
    for tied in reversed(by_score(scored)):
        middle = (below + len(tied) - len(tied) / 2) / len(scored)
        bins[tied[0].score] = min(math.floor(middle * _BINS), _BINS - 1)
        below += len(tied)
    return bins.__getitem__


def _binned(scored: Sequence[Scored], place: Callable[[float], int]) -> list[list[Scored]]:
    bins: dict[int, list[Scored]] = {}
    for each in scored:
        bins.setdefault(place(each.score), []).append(each)
    return [bins[at] for at in sorted(bins)]


def _are_probabilities(scored: Sequence[Scored]) -> bool:
    return all(0 <= each.score <= 1 for each in scored)


def _brier(scored: Sequence[Scored]) -> Json:
    """Return the mean squared error with Murphy's parts (1973) over bins of equal width."""
    parts = ("value", "reliability", "resolution", "uncertainty", "within_bins")
    said: Json = dict.fromkeys(parts) | {"trials": len(scored)}
    if not _are_probabilities(scored):
        return said
    base = fmean(each.is_attack for each in scored)
    value = fmean((each.score - each.is_attack) ** 2 for each in scored)
    reliability = resolution = 0.0
    for inside in _binned(scored, _by_width):
        claimed, true = _claimed_and_true(inside)
        reliability += len(inside) * (claimed - true) ** 2 / len(scored)
        resolution += len(inside) * (true - base) ** 2 / len(scored)
    uncertainty = base * (1 - base)
    rest = value - reliability + resolution - uncertainty
    figures = (value, reliability, resolution, uncertainty, rest)
    return said | dict(zip(parts, figures, strict=True))


def _claimed_and_true(inside: Sequence[Scored]) -> tuple[float, float]:
    return fmean(each.score for each in inside), fmean(each.is_attack for each in inside)


def _calibration(
    scored: Sequence[Scored], place: Callable[[float], int], confidence: float
) -> Json:
    if not _are_probabilities(scored):
        nothing = dict.fromkeys(("value", "reference", "corrected", "largest_gap"))
        return {**nothing, "bins": []}
    bins = _binned(scored, place)
    gaps = [abs(claimed - true) for claimed, true in map(_claimed_and_true, bins)]
    value = sum(len(inside) * gap for inside, gap in zip(bins, gaps, strict=True)) / len(scored)
    reference = sum(map(_chance_gap, bins)) / len(scored)
    return {
        "value": value,
        "reference": reference,
        "corrected": max(0.0, value - reference),
        "largest_gap": max(gaps),
        "bins": [_bin(inside, confidence) for inside in bins],
    }


def _bin(inside: Sequence[Scored], confidence: float) -> Json:
    hits = sum(each.is_attack for each in inside)
    return {
        "low": min(each.score for each in inside),
        "high": max(each.score for each in inside),
        "mean_score": fmean(each.score for each in inside),
        "attack_rate": plain_rate(hits, len(inside), confidence),
    }


def _chance_gap(inside: Sequence[Scored]) -> float:
    """Return how far the attacks of a bin stray from their mean if each score were true.

    The distribution of their number is built up sample by sample; of many samples, the mean
    distance of a normal distribution stands for it.
    """
    variance = math.fsum(each.score * (1 - each.score) for each in inside)
    if variance > _MANY:
        return math.sqrt(2 * variance / math.pi)
    chances, first = [1.0], 0
    for each in inside:
        more = [0.0, *(chance * each.score for chance in chances)]
        chances = [a * (1 - each.score) + b for a, b in zip([*chances, 0.0], more, strict=True)]
        while len(chances) > 1 and chances[0] < 1e-18:
            del chances[0]
            first += 1
        while len(chances) > 1 and chances[-1] < 1e-18:
            chances.pop()
    mean = math.fsum(each.score for each in inside)
    return math.fsum(abs(first + at - mean) * chance for at, chance in enumerate(chances))


def _partial_areas(scored: Sequence[Scored]) -> Json:
    """Return the area up to a false positive rate, as it is and on McClish's scale (1989)."""
    attacks = sum(each.is_attack for each in scored)
    benign, raw, x, y = len(scored) - attacks, 0.0, 0.0, 0.0
    hits = alarms = 0
    for tied in by_score(scored):
        hits += sum(each.is_attack for each in tied)
        alarms += sum(not each.is_attack for each in tied)
        right, top = alarms / benign, hits / attacks
        if right > _MAX_FPR:
            top = y + (_MAX_FPR - x) / (right - x) * (top - y)
            right = _MAX_FPR
        raw += (right - x) * (y + top) / 2
        x, y = right, top
        if x >= _MAX_FPR:
            break
    coin = _MAX_FPR**2 / 2
    whole: Json = {"trials": len(scored), "confidence": 0.95, "replicates": 0}
    whole |= dict.fromkeys(("low", "high", "groups"))
    return {
        "partial_area": {**whole, "value": raw},
        "partial_area_standardised": {
            **whole,
            "value": 0.5 * (1 + (raw - coin) / (_MAX_FPR - coin)),
        },
    }


def _costs(found: Recount, scored: Sequence[Scored]) -> list[Json]:
    miss, alarm = (found.stats.get(f"cost_{name}") for name in ("missed_attack", "false_alarm"))
    if miss is None or alarm is None:
        return []
    said = []
    for share in _PREVALENCES:
        best = cheapest(scored, (share * miss, (1 - share) * alarm))
        threshold, cost = best or (None, None)
        said.append({"prevalence": share, "threshold": threshold, "cost": cost})
    return said
