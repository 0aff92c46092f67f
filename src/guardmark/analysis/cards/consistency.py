"""What a card alone can show: that its figures follow from its counts and agree with each other.

A card that passes may still have been made up; who has the run can make it again and compare.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.cards.card import Gap
from guardmark.analysis.cards.claims import CLAIMED, standing_of
from guardmark.analysis.cards.cohort import make_cohort
from guardmark.analysis.cards.figures import SHARE, UNBIASED
from guardmark.analysis.compare.verdicts import Reliance
from guardmark.stats.rates.proportion import wilson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.cards.card import Card
    from guardmark.analysis.cards.figures import CardFigure

_CLOSE: Final = 1e-9  # how far a share may lie from its counts
_CLOSE_LIMIT: Final = 1e-6  # how far limits may lie from those that follow from the counts


def contradictions_of(card: Card) -> tuple[str, ...]:
    """Return a sentence for everything in a card that cannot be so; empty where all agrees."""
    found = [*_in_cohort(card), *_in_counts(card), *_in_answer(card), *_in_words(card)]
    for figure in card.figures:
        found += _in_figure(figure, figure.name, card.policy.confidence)
    for part in card.slices:
        where = f"{part.figure.name} of {part.facet} {part.name}"
        found += _in_figure(part.figure, where, card.policy.confidence)
    for spot in card.blind_spots:
        found += _in_figure(spot.figure, f"blind spot {spot.name}", card.policy.confidence)
        found += _in_figure(spot.rest, f"the rest beside {spot.name}", card.policy.confidence)
    found += _in_crosswalk(card)
    return tuple(found)


def _in_crosswalk(card: Card) -> Iterator[str]:
    """Hold the evidence for items of frameworks against the figures of the card."""
    stated = {figure.name: figure for figure in card.figures}
    if card.robustness is not None:
        stated["adaptive"] = replace(card.robustness.in_the_end, name="adaptive")
    for part in card.slices:
        if part.is_attack and part.facet in {"category", "subcategory"}:
            stated[part.name] = part.figure
    for framework in card.crosswalk:
        for item in framework.items:
            for each in item.evidence:
                if stated.get(each.of) != each.figure:
                    yield f"the evidence for {item.code} ({each.of}) stands nowhere on the card"


def _in_cohort(card: Card) -> Iterator[str]:
    terms = card.cohort
    remade = make_cohort(
        data=terms.data,
        labels=terms.labels,
        policy=terms.policy,
        harness=terms.harness,
        scope=terms.scope,
    )
    if remade.key != terms.key:
        yield f"the cohort key is {terms.key}, but its terms make {remade.key}"


def _in_counts(card: Card) -> Iterator[str]:
    for label in ("attacks", "benign"):
        of_sets = sum(getattr(each, label) for each in card.data)
        if card.samples.get(label, 0) > of_sets:
            yield f"it tells of {card.samples[label]} {label} samples, its data hold {of_sets}"
    through, stopped = card.figure("attack_success_rate"), card.figure("true_positive_rate")
    if through is None or card.figure("false_positive_rate") is None:
        yield "a headline rate is missing"
        return
    if stopped is None or through.value is None or stopped.value is None:
        return
    if not math.isclose(through.value + stopped.value, 1.0, abs_tol=_CLOSE):
        yield "attacks let through and attacks blocked do not add up to all"


def _in_figure(figure: CardFigure, where: str, confidence: float) -> Iterator[str]:
    value, low, high = figure.value, figure.low, figure.high
    for number in (value, low, high):
        if number is None:
            continue
        if not math.isfinite(number) or number < 0:
            yield f"{where} holds a value that is not a number from 0 on"
            return
        if figure.unit == SHARE and number > 1:
            yield f"{where} is a share above 1"
            break
    if value is not None and low is not None and high is not None and not low <= value <= high:
        yield f"{where} lies outside its own interval"
    if figure.successes is not None:
        yield from _in_counted(figure, figure.successes, where, confidence)


def _in_counted(figure: CardFigure, successes: int, where: str, confidence: float) -> Iterator[str]:
    """Hold a share against its counts."""
    value = figure.value
    if not 0 <= successes <= figure.trials:
        yield f"{where} counts {successes} of {figure.trials}"
        return
    if figure.trials and value is None:
        yield f"{where} has counts and no value"
    if value is not None and not figure.trials:
        yield f"{where} has a value and no samples"
    if value is None or not figure.trials or UNBIASED in figure.method:
        return
    if not math.isclose(value, successes / figure.trials, abs_tol=_CLOSE):
        yield f"{where} is {value:.4f}, but {successes} of {figure.trials} is another share"
    if figure.method != "wilson":
        return
    made = wilson(successes, figure.trials, confidence=confidence)
    for stated, follows in ((figure.low, made.low), (figure.high, made.high)):
        if stated is None or follows is None or abs(stated - follows) > _CLOSE_LIMIT:
            yield f"the interval of {where} is not the one that follows from its counts"
            return


def _in_answer(card: Card) -> Iterator[str]:
    if card.answer and card.answer not in {each.value for each in Reliance}:
        yield f"{card.answer!r} is no answer that guardmark gives"
    if card.answer != Reliance.RELY.value:
        return
    for name, limit in (
        ("attack_success_rate", card.policy.limit_attacks),
        ("false_positive_rate", card.policy.limit_alarms),
    ):
        figure = card.figure(name)
        if figure is None or figure.high is None or figure.high > limit:
            yield f"it says {card.answer!r}, but {name} is not shown to lie below its limit"


def _in_words(card: Card) -> Iterator[str]:
    unknown = sorted(set(card.gaps) - {each.value for each in Gap})
    if unknown:
        yield f"{unknown[0]!r} is nothing that a run can leave out"
    for claim in card.claims:
        if claim.figure not in CLAIMED:
            yield f"{claim.figure!r} is no figure that can be claimed"
        elif not claim.source.strip():
            yield f"the claim about {claim.figure} names no source"
        elif claim.standing != standing_of(claim.value, card.figure(claim.figure)):
            yield f"the claim about {claim.figure} does not stand as the card says"
