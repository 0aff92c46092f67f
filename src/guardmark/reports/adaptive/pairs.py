"""The area under an attacker's success, and two defenses by it: in words, as a table, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.encode import Json, difference_json, ratio_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.adaptive.area import AreaCard
    from guardmark.analysis.adaptive.pairs import AdaptivePair
    from guardmark.core.estimate import Difference


def area_json(card: AreaCard) -> Json:
    """Encode the areas of a defense."""
    return {
        "adaptive": ratio_json(card.adaptive),
        "blind": ratio_json(card.blind),
        "given_up": card.given_up,
    }


def pairs_json(pairs: Sequence[AdaptivePair]) -> list[Json]:
    """Encode comparisons of defenses under the same attacker."""
    return [
        {
            "first": pair.first,
            "second": pair.second,
            "attacks": pair.attacks,
            "area": _side(pair.area, pair.area_adjusted),
            "outcome": _side(pair.outcome, pair.outcome_adjusted),
        }
        for pair in pairs
    ]


def _side(difference: Difference, adjusted: float | None) -> Json:
    return {"difference": difference_json(difference), "adjusted_p": adjusted}
