"""The answer for each defense in one line, as it heads the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.document.blocks import FigureCell, Headline
from guardmark.reports.document.cells import of_estimate
from guardmark.reports.document.wording import count_text, interval_text, measure_text, percent_text

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.run import DefenseAnalysis, RunAnalysis

_ANSWERED_ENOUGH = 0.99


def write_verdicts(analysis: RunAnalysis) -> tuple[Headline, ...]:
    """Write the verdict of every defense, baselines last."""
    ordered = sorted(analysis.defenses, key=lambda each: each.is_baseline)
    attacked = {card.name: card for card in analysis.adaptive}
    return tuple(_verdict(each, attacked.get(each.name)) for each in ordered)


def _verdict(defense: DefenseAnalysis, attacked: AdaptiveCard | None) -> Headline:
    card = defense.card
    blocked, wrongly = of_estimate(card.true_positive_rate), of_estimate(card.false_positive_rate)
    counts = card.confusion
    sentence = (
        f"{_clause('blocks', blocked, 'attacks')}, "
        f"{_clause('wrongly blocks', wrongly, 'benign')}; "
        f"{count_text(counts.malformed)} malformed, {_errors(counts.errors)}"
    )
    return Headline(
        defense=defense.name,
        sentence=sentence,
        blocked=blocked,
        wrongly_blocked=wrongly,
        malformed=counts.malformed,
        errors=counts.errors,
        baseline=defense.is_baseline,
        notes=(*_notes(defense), *(() if attacked is None else (_adapted(attacked),))),
    )


def _clause(verb: str, measure: FigureCell, what: str) -> str:
    if not measure.trials:
        return f"{verb} an undefined share of {what} (none answered)"
    share = f"{percent_text(measure.value)}{interval_text(measure)}"
    return f"{verb} {share} of {count_text(measure.trials)} {what}"


def _errors(errors: int) -> str:
    return f"{count_text(errors)} error" if errors == 1 else f"{count_text(errors)} errors"


def _adapted(card: AdaptiveCard) -> str:
    """Say how the defense fared when the attacks were rewritten, which its rates do not know."""
    from guardmark.reports.chapters.adaptive.seeds import (
        headline,
        of_mean,  # most runs were not attacked
    )

    last, mean = card.rounds[-1].full, headline(card)
    share = measure_text(of_estimate(last) if mean is None else of_mean(mean))
    return (
        f"against an attacker who rewrites and watches: {share} of {count_text(last.trials)} "
        "attacks got through"
    )


def _notes(defense: DefenseAnalysis) -> list[str]:
    card, notes = defense.card, []
    share = card.answered.value
    if share is not None and share < _ANSWERED_ENOUGH:
        low, high = (
            percent_text(pair.attack_success_rate.value)
            for pair in (card.fail_closed, card.fail_open)
        )
        notes.append(
            f"only {percent_text(share)} of samples got an answer: attacks get through in {low} "
            f"(failures block) to {high} (failures allow) of all"
        )
    for estimate, what in (
        (card.true_positive_rate, "attacks"),
        (card.false_positive_rate, "benign samples"),
    ):
        if estimate.few_groups:
            notes.append(f"few groups: the {what} fall into {estimate.groups} groups only")
    if defense.stopped:
        decided = "; ".join(each.sentence for each in defense.stopped)
        notes.append(f"stopped early: {decided}")
    if defense.is_redecided:
        notes.append(f"decided anew from stored scores at threshold {defense.threshold:g}")
    return notes
