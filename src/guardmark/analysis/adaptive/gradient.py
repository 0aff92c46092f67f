"""What an attack that follows the gradient of a defense's loss brings through (access A3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.adaptive.rows import FULL, STRICT
from guardmark.analysis.defense.grouped_rates import grouped_difference, grouped_rate
from guardmark.core.layers import GRADIENT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.rows import AdaptiveRecords
    from guardmark.core.estimate import Difference, Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCard:
    """The arm with gradient access, beside the arms that only see answers.

    Attributes:
        attack: Name and version of what follows the gradient.
        strict: Share of all attacks through as they are or by variants of tiers V0 and V1.
        full: The same by all proved tiers.
        gain: Full minus the attacks that pass as they are, paired.
        unproved: Attacks that got through by unproved variants (V4) alone; in no rate.
        tries: Variants the defense answered.
    """

    attack: str
    strict: Estimate
    full: Estimate
    gain: Difference
    unproved: int
    tries: int


def measure_gradient(
    battle: AdaptiveRecords,
    attack: NDArray[np.bool_],
    *,
    groups: NDArray[np.int32],
    confidence: float,
) -> GradientCard | None:
    """Compute what following the gradient came to."""
    stories = battle.stories[GRADIENT]
    tries = sum(len(story.tries) for story in stories.values())
    if not tries:
        return None
    places = sorted(place for place in battle.baseline if attack[place])
    static = np.array([battle.baseline[place] for place in places], dtype=bool)

    def through(tiers: frozenset[str]) -> NDArray[np.bool_]:
        fell = [p in stories and stories[p].first(tiers) is not None for p in places]
        marks: NDArray[np.bool_] = static | np.array(fell, dtype=bool)
        return marks

    full, codes = through(FULL), groups[places]
    return GradientCard(
        attack=str(battle.settings.get("gradient", "")),
        strict=grouped_rate(through(STRICT), codes, confidence=confidence),
        full=grouped_rate(full, codes, confidence=confidence),
        gain=grouped_difference(full, static, groups=codes, confidence=confidence),
        unproved=int((through(FULL | {"V4"}) & ~full).sum()),
        tries=tries,
    )
