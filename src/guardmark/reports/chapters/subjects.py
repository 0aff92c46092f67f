"""What reports call the subjects that they compare, their rates, and what makes these doubtful."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.compare.verdicts import separates
from guardmark.analysis.pipeline.frame import DEFENSE, SYSTEM
from guardmark.core.place import BARE_ARMS
from guardmark.reports.document.cells import figure_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guardmark.analysis.defense.scorecard import RatePair, Scorecard
    from guardmark.core.estimate import Estimate

RATES: Final = {DEFENSE: ("ASR", "FPR"), SYSTEM: ("system ASR", "over-refusal")}
"""What the rates on attacks and on benign samples are called at a scope."""
ALARMS: Final = {
    DEFENSE: {"alarms": "false alarms", "alarm": "a false alarm"},
    SYSTEM: {"alarms": "over-refusals", "alarm": "a benign sample turned down"},
}


def subject(name: str, scope: str, model: str = "") -> str:
    """Return what a defense or an arm is called; one without a guard by its model, if known."""
    if scope == DEFENSE:
        return name
    bare, space, run = name.partition(" (")
    if bare not in BARE_ARMS:
        return f"the arm {name}"
    if model:
        return f"the model {model} without a guard{space}{run}"
    return f"the system without a guard{space}{run}"


def weak_among(
    rated: Iterable[tuple[str, RatePair | Scorecard]], scope: str = DEFENSE
) -> frozenset[str]:
    """Return the defenses that are not shown to beat chance: no trade-off is offered with them."""
    if scope != DEFENSE:
        return frozenset()
    return frozenset(name for name, rates in rated if not separates(rates))


def group_cautions(attacks: Estimate, benign: Estimate | None = None) -> Iterator[str]:
    """Say where few groups, or one that dominates, carry the rates of attacks or benign samples."""
    for what, rate in (("attacks", attacks), ("benign samples", benign)):
        if rate and rate.trials and (rate.few_groups or rate.low is None):
            yield f"few groups: the {what} fall into {rate.groups} groups only"
        if rate and rate.dominant_group:
            part = figure_text(rate.largest_group)
            yield f"one group dominates: {rate.dominant_group!r} holds {part} of the {what}"
