"""Adaptive figures for the terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.adaptive.attack_success import (
    ARMS,
    ROUNDS,
    area_sentence,
    gain_sentence,
    holding_sentences,
    proof_words,
)
from guardmark.reports.chapters.adaptive.attacker_model import (
    attacker_cautions,
    attacker_sentences,
    control_sentences,
)
from guardmark.reports.chapters.adaptive.audited import (
    audit_sentence,
    audited_measure,
    resting_sentence,
)
from guardmark.reports.chapters.adaptive.costs import effort_sentence
from guardmark.reports.chapters.adaptive.operators import standing_sentence, wrapper_sentence
from guardmark.reports.chapters.adaptive.repair import repair_sentence
from guardmark.reports.chapters.adaptive.seeds import of_mean, seeds_sentence
from guardmark.reports.chapters.adaptive.target_model import reading_sentence, unknown_text
from guardmark.reports.chapters.adaptive.threat_model import flag_lines, threat_card
from guardmark.reports.document.cells import of_estimate
from guardmark.reports.document.wording import counts_text, measure_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.adaptive.target import TargetCard
    from guardmark.core.estimate import Estimate

_MARGIN: Final = 16  # where the text behind a label begins


def adaptive_lines(card: AdaptiveCard) -> Iterator[str]:
    """Write what an adaptive measurement says of one defense."""
    yield f"{card.name}: threat model"
    for label, text in threat_card(card):
        yield f"  {label:<14}{text}"
    yield from _rounds(card)
    yield from _over_seeds(card)
    yield from _arms(card)
    for label, sentence in (
        ("Benign", standing_sentence(card)),
        ("Seeds", seeds_sentence(card)),
        ("Learning", gain_sentence(card)),
        ("Area", area_sentence(card)),
        ("Cost", effort_sentence(card)),
        ("Repair", repair_sentence(card)),
        ("Wrappers", wrapper_sentence(card)),
        ("Audit", audit_sentence(card) or resting_sentence(card)),
        *attacker_sentences(card),
        *control_sentences(card),
    ):
        if sentence:
            yield f"  {label:<14}{sentence.removeprefix(f'{card.name}: ')}"
    if card.target is not None:
        yield from _target(card.target)
    yield from attacker_cautions(card)
    yield from flag_lines(card)
    yield from holding_sentences(card)


def _over_seeds(card: AdaptiveCard) -> Iterator[str]:
    """Write what had got through by each round, as means over seeds."""
    if card.seeds is None:
        return
    yield f"  {'Mean':<14}over {len(card.seeds.counted)} seeds; the lines above are of seed 1"
    for each in card.seeds.rounds:
        strict, full = (measure_text(of_mean(mean)) for mean in (each.strict, each.full))
        yield f"  {each.name:<14}{strict:<24}{full}"


def wrapped_lines(lines: Iterable[str], width: int) -> Iterator[str]:
    """Break lines that are wider than a terminal, under their own text."""
    for line in lines:
        if len(line) <= width:
            yield line
            continue
        labelled = line.startswith("  ") and line[2:3] != " "
        yield from textwrap.wrap(
            line,
            width,
            subsequent_indent=" " * (_MARGIN if labelled else 2),
            drop_whitespace=True,
            break_long_words=False,
            break_on_hyphens=False,
        )


def _rounds(card: AdaptiveCard) -> Iterator[str]:
    """Write the rates by round; an audited run has one column more."""
    has_audit = card.audit is not None
    head = f"  {'Round':<14}{'strict (V0, V1)':<24}"
    yield f"{head}{'all proved tiers':<34}audited" if has_audit else f"{head}all proved tiers"
    for each in card.rounds:
        line = f"  {each.name:<14}{_rate(each.strict):<24}"
        full = _rate(each.full, with_counts=True)
        yield (
            f"{line}{full:<34}{measure_text(audited_measure(card, each))}"
            if has_audit
            else f"{line}{full}"
        )
    named = ", ".join(f"{each.name} {ROUNDS[each.name]}" for each in card.rounds)
    yield f"  {'Columns':<14}{proof_words(card)}"
    yield f"  {'Rounds':<14}{named}"


def _arms(card: AdaptiveCard) -> Iterator[str]:
    """Write what each arm reached within the budget, and what it is."""
    yield f"  {'Arm':<14}ASR within {card.budget:,} search calls for each attack"
    rates = [("static", card.rounds[0].full), *((arm.arm, arm.at_budget) for arm in card.arms)]
    for name, rate in rates:
        yield f"  {name:<14}{_rate(rate):<24}{ARMS.get(name, '')}".rstrip()
    if card.gradient is not None:
        yield f"  {'gradient (A3)':<14}{_rate(card.gradient.full)}"


def _target(target: TargetCard) -> Iterator[str]:
    if target.effects is not None:
        yield f"  {'Effect':<14}{'attack success':<24}{'did harm':<12}unknown ends"
        for label, effect in (
            ("undefended", target.effects.undefended),
            ("static", target.effects.static),
            ("adapted", target.effects.defended),
        ):
            counted = counts_text(of_estimate(effect.rate))
            yield f"  {label:<14}{_rate(effect.rate):<24}{counted:<12}{unknown_text(effect)}"
    yield f"  {reading_sentence(target)}"


def _rate(estimate: Estimate, *, with_counts: bool = False) -> str:
    measure = of_estimate(estimate)
    return measure_text(measure) + (f"  {counts_text(measure)}" if with_counts else "")
