"""The slice of a defense that is worse than all its samples beyond chance, facet by facet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.analysis.defense.slices import NOT_STATED
from guardmark.stats.rates.clustered import EffectiveCounts
from guardmark.stats.rates.selection import highest_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.core.estimate import Estimate
    from guardmark.stats.figures import Ratio

FACETS_OF_ATTACKS: Final = ("severity", "language", "variant", "technique", "source")
"""Facets that are searched; the category has a rule of its own."""
FACETS_OF_BENIGN: Final = ("language", "category", "variant", "source")
_LEAST: Final = 20  # answered samples of a slice that is named


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindSpot:
    """A slice whose error rate lies above that of all samples, the search allowed for."""

    facet: str
    name: str
    is_attack: bool
    rate: Estimate  # As counted.
    after_choice: Ratio  # With limits that hold for the highest of all slices of all facets.
    overall: Estimate


def find_blind_spots(defense: DefenseAnalysis) -> Iterator[BlindSpot]:
    """Find, of each facet, the slice that is worse than all samples together beyond chance.

    The limits of the highest of several slices allow for its having been chosen; over several
    facets each is looked at with its share of the error. One facet with a single value says
    nothing, and a slice of few samples or groups is not named.
    """
    card = defense.card
    sides = (
        (True, FACETS_OF_ATTACKS, card.attack_success_rate),
        (False, FACETS_OF_BENIGN, card.false_positive_rate),
    )
    for is_attack, facets, overall in sides:
        if overall.high is None:
            continue
        for facet in facets:
            confidence = 1 - (1 - overall.confidence) / len(facets)
            spot = _of_facet(
                defense, facet, is_attack=is_attack, overall=overall, confidence=confidence
            )
            if spot is not None:
                yield spot


def _of_facet(
    defense: DefenseAnalysis,
    facet: str,
    *,
    is_attack: bool,
    overall: Estimate,
    confidence: float,
) -> BlindSpot | None:
    table = defense.slice_table(facet, is_attack=is_attack).rates
    rates = [each for each in table if each.name != NOT_STATED and each.rate.trials]
    if len(rates) < 2 or overall.high is None:
        return None
    # What the choice allows for only widens limits: most facets need no second look.
    if max(each.rate.low or 0.0 for each in rates) <= overall.high:
        return None
    counts = [EffectiveCounts.of(each.rate) for each in rates]
    chosen = highest_rate(counts, confidence=confidence)
    if chosen is None:
        return None
    highest = rates[chosen.at]
    is_small = highest.rate.trials < _LEAST or highest.rate.few_groups
    if is_small or (chosen.rate.low or 0.0) <= overall.high:
        return None
    return BlindSpot(
        facet=facet,
        name=highest.name,
        is_attack=is_attack,
        rate=highest.rate,
        after_choice=chosen.rate,
        overall=overall,
    )
