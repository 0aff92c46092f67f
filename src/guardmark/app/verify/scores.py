"""What the scores of a defense could do, counted again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.app.verify.defense import Recount

Json = dict[str, Any]

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
