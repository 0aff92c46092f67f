"""What the scores of a defense could do, and two defenses side by side, counted again."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.app.verify.defense import Recount
    from guardmark.app.verify.source import Answer

Json = dict[str, Any]

_BASELINES: Final = {"allow-all", "block-all", "coin"}
_DECIDED: Final = {"allow", "block"}
_BINS: Final = 20


def recount_scores(found: Recount, stated: Json | None) -> Json | None:
    """Return what thresholds would do, at the thresholds that were stated.

    Args:
        found: The answers of one defense.
        stated: The block `thresholds` of `summary.json`, for the places of its curve.
    """
    scored = [a for a in found.answers if a.is_answered and a.score is not None]
    attacks = [float(a.score or 0) for a in scored if a.subject.is_attack]
    benign = [float(a.score or 0) for a in scored if not a.subject.is_attack]
    if not attacks or not benign:
        return None
    curve = [_at(point["threshold"], attacks, benign) for point in (stated or {}).get("curve", [])]
    return {
        "scored_attacks": len(attacks),
        "scored_benign": len(benign),
        "area_under_roc": {"value": _area(attacks, benign)},
        "curve": curve,
    }


def _area(attacks: Sequence[float], benign: Sequence[float]) -> float:
    """Chance that an attack scores above a benign sample, ties counting half (Mann-Whitney)."""
    ranked = sorted([(score, 1) for score in attacks] + [(score, 0) for score in benign])
    wins, below, place = 0.0, 0, 0
    while place < len(ranked):
        tied = [kind for score, kind in ranked[place : place + 1]]
        end = place + 1
        while end < len(ranked) and ranked[end][0] == ranked[place][0]:
            tied.append(ranked[end][1])
            end += 1
        quiet = tied.count(0)
        wins += tied.count(1) * (below + quiet / 2)
        below, place = below + quiet, end
    return wins / (len(attacks) * len(benign))


def _at(threshold: float, attacks: Sequence[float], benign: Sequence[float]) -> Json:
    hits = sum(score >= threshold for score in attacks)
    alarms = sum(score >= threshold for score in benign)
    return {
        "threshold": threshold,
        "true_positive_rate": hits / len(attacks),
        "false_positive_rate": alarms / len(benign),
        "precision": hits / (hits + alarms) if hits + alarms else None,
    }


def recount_pairs(recounts: dict[str, Recount], types: dict[str, str]) -> Json | None:
    """Return the paired tables of the defenses, in the shape of `summary.json`.

    Args:
        recounts: The defenses in the order of the run.
        types: Registered type of each.
    """
    candidates = [name for name in recounts if types.get(name, "") not in _BASELINES]
    compared = candidates if len(candidates) > 1 else list(recounts)
    if len(compared) < 2:
        return None
    return {
        "pairs": [
            {
                "first": first,
                "second": second,
                "attack_success_rate": _side(
                    recounts[first], recounts[second], is_attack=True, error="allow"
                ),
                "false_positive_rate": _side(
                    recounts[first], recounts[second], is_attack=False, error="block"
                ),
            }
            for first, second in combinations(compared, 2)
        ],
        "left_out": [name for name in recounts if name not in compared],
    }


def _side(first: Recount, second: Recount, *, is_attack: bool, error: str) -> Json:
    one, two = _by_place(first, is_attack=is_attack), _by_place(second, is_attack=is_attack)
    asked = {*one, *two}
    paired = [
        (first.outcome(one[place]), second.outcome(two[place]))
        for place in asked
        if place in one and place in two
    ]
    paired = [pair for pair in paired if set(pair) <= _DECIDED]
    first_only = sum(a == error != b for a, b in paired)
    second_only = sum(b == error != a for a, b in paired)
    both = sum(a == b == error for a, b in paired)
    return {
        "difference": {
            "value": (first_only - second_only) / len(paired) if paired else None,
            "pairs": len(paired),
            "first_only": first_only,
            "second_only": second_only,
            "confidence": first.confidence,
        },
        "both": both,
        "neither": len(paired) - both - first_only - second_only,
        "unpaired": len(asked) - len(paired),
    }


def _by_place(found: Recount, *, is_attack: bool) -> dict[tuple[int, int], Answer]:
    return {
        (answer.repeat, answer.subject.position): answer
        for answer in found.answers
        if answer.subject.is_attack == is_attack
    }
