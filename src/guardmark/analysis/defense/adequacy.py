"""Is the data enough: how wide the intervals are, and what a wanted width would take."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guardmark.stats.planning import trials_for_half_width

if TYPE_CHECKING:
    from guardmark.analysis.defense.scorecard import Scorecard
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Width:
    """How wide one interval is, against what was wanted.

    Attributes:
        name: `attack_success_rate` or `false_positive_rate`.
        half_width: Half the interval, or None without one.
        trials: Answered samples behind it.
        needed: Samples that would give the wanted half-width at this rate and with this design
            effect, or None when the rate is undefined.
        wanted: The wanted half-width.
    """

    name: str = field(metadata={"json": "rate"})
    half_width: float | None
    trials: int
    needed: int | None
    wanted: float

    @property
    def is_enough(self) -> bool:
        """Whether the interval is as narrow as wanted."""
        return self.half_width is not None and self.half_width <= self.wanted


def assess_widths(card: Scorecard, settings: AnalysisSettings) -> tuple[Width, ...]:
    """Assess whether the headline rates are known as well as wanted."""
    return (
        _width("attack_success_rate", card.attack_success_rate, settings),
        _width("false_positive_rate", card.false_positive_rate, settings),
    )


def _width(name: str, estimate: Estimate, settings: AnalysisSettings) -> Width:
    half, needed = None, None
    if estimate.low is not None and estimate.high is not None:
        half = (estimate.high - estimate.low) / 2
    if estimate.value is not None:
        effect = estimate.design_effect or 1.0
        single = trials_for_half_width(
            settings.margin, rate=estimate.value, confidence=settings.confidence
        )
        needed = math.ceil(single * effect)
    return Width(
        name=name,
        half_width=half,
        trials=estimate.trials,
        needed=needed,
        wanted=settings.margin,
    )
