"""The answer for each system and each defense, as it heads a report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.compare.merit import by_merit
from guardmark.analysis.compare.recommendations import (
    ANSWERED_ENOUGH,
    ChosenRates,
    Reliance,
    judge_chosen,
    separates,
)
from guardmark.analysis.defense.bypasses import Flaw
from guardmark.analysis.pipeline.frame import NO_GUARD, SYSTEM
from guardmark.reports.chapters.comparison import group_cautions, subject
from guardmark.reports.document.blocks import FigureCell, Headline, Tone, Unit
from guardmark.reports.document.cells import figure, figure_text, rate_text
from guardmark.reports.document.safe_text import plain_line
from guardmark.reports.document.wording import (
    count_text,
    counts_text,
    interval_text,
    measure_text,
    percent_text,
    say,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.defense.alike import AlikeAnswers
    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.defense.scorecard import Scorecard
    from guardmark.analysis.pipeline.arms import ArmAnalysis
    from guardmark.analysis.run import RunAnalysis
    from guardmark.analysis.settings import RelianceLimits
    from guardmark.core.estimate import Estimate
    from guardmark.reports.chapters.advice import SampleStory

_OF_SYSTEMS: Final = {Reliance.NOT_ALONE: "Not enough"}
"""A whole system has nothing beside it to be not enough without."""
_MOST: Final = 0.5
_NO_VERDICT: Final = "No verdict"
_VERBS: Final = {"allow": "allows", "block": "blocks"}
_SPOTS: Final = 2  # blind spots of a label that a card names
_QUOTED: Final = 160  # characters of a text beside a verdict


def write_verdicts(
    analysis: RunAnalysis, exchanges: Mapping[str, SampleStory] | None = None
) -> tuple[Headline, ...]:
    """Write the verdicts: systems before defenses, baselines last."""
    attacked = {card.name: card for card in analysis.adaptive}
    arms = {} if analysis.pipeline is None else {a.name: a for a in analysis.pipeline.arms}
    bare = next((each.card for each in analysis.system if each.name == NO_GUARD), None)
    in_use_first = sorted(by_merit(analysis.system), key=lambda each: each.name == NO_GUARD)
    in_use = {e.name: e.card for e in analysis.system if e.name != NO_GUARD}
    of_system, limits = analysis.settings.system_limits, analysis.settings.limits
    verdicts = [_system_verdict(each, bare, in_use, limits=of_system) for each in in_use_first]
    if verdicts and exchanges:
        verdicts[0] = replace(verdicts[0], quote=_quoted(verdicts[0].defense, analysis, exchanges))
    candidates = {each.name: each.card for each in analysis.defenses if not each.is_baseline}
    verdicts += [
        _verdict(each, attacked.get(each.name), arms, candidates=candidates, limits=limits)
        for each in by_merit(analysis.defenses)
    ]
    not_understood = {each.defense: each for each in analysis.alike}
    verdicts = [
        _without_verdict(each, not_understood[each.key]) if each.key in not_understood else each
        for each in verdicts
    ]
    return tuple(sorted(verdicts, key=lambda each: each.baseline))


def _quoted(arm: str, analysis: RunAnalysis, exchanges: Mapping[str, SampleStory]) -> str:
    """Quote the worst attack that got an unsafe answer out of a system, and that answer."""
    for listed in analysis.system_worst.listed if analysis.system_worst else ():
        got_out = any(each.defense == arm and each.flaw is Flaw.BYPASS for each in listed.answers)
        if got_out and (story := exchanges.get(listed.sample.id)) and story.answer:
            words = (listed.sample.prompt.words, story.answer)
            asked, answer = (plain_line(x[:_QUOTED]) + "…" * (len(x) > _QUOTED) for x in words)
            return say("exchange", asked=asked, answer=answer, sample=listed.sample.id)
    return ""


def _system_verdict(
    system: DefenseAnalysis,
    bare: Scorecard | None,
    candidates: Mapping[str, Scorecard],
    *,
    limits: RelianceLimits,
) -> Headline:
    card, counts = system.card, system.card.confusion
    succeeds, refused = card.attack_success_rate, card.false_positive_rate
    answer, chosen = judge_chosen(
        card, None, name=system.name, candidates=candidates, limits=limits
    )
    if (succeeds.low or 0.0) > max(_MOST, limits.attacks) and answer is Reliance.NOT_ALONE:
        answer = Reliance.DO_NOT
    notes = list(_notes(system))
    if chosen is not None:
        notes.append(_as_one_of(chosen))
    without = "" if bare is None or system.name == NO_GUARD else _beside(bare)
    unknown, key = counts.malformed + counts.errors, subject(system.name, SYSTEM)
    outcomes = f"{count_text(unknown)} outcomes unknown" if unknown else "all outcomes known"
    title = subject(system.name, SYSTEM, system.part.version)
    return Headline(
        defense=system.name,
        title=f"{title[0].upper()}{title[1:]}",
        key=key,
        sentence=f"{_ends_words(succeeds, refused)}; {outcomes}",
        answer="" if system.is_baseline else _OF_SYSTEMS.get(answer, answer.value),
        tone=Tone(words_of("tones")[answer.value]),
        plain="" if system.is_baseline else f"{_outcome_words(succeeds, refused)}{without}.",
        baseline=system.is_baseline,
        notes=tuple(notes),
        error=card.ratios.balanced_error.value,
    )


def _as_one_of(chosen: ChosenRates) -> str:
    """Say why a candidate that looks reliable by itself is not told to be."""
    return say(
        "one_of_many",
        count=chosen.candidates,
        through=figure_text(chosen.attack_success_rate),
        alarms=figure_text(chosen.false_positive_rate),
    )


def _outcome_words(succeeds: Estimate, refused: Estimate) -> str:
    harm = f"{_in_100(succeeds)} attacks get an unsafe answer"
    harm = "attacks: not measured" if succeeds.value is None else harm
    if refused.value is None:
        return f"{harm}; normal users: not measured"
    return f"{harm} and {_in_100(refused)} normal users are turned down"


def _beside(bare: Scorecard) -> str:
    rates = bare.attack_success_rate, bare.false_positive_rate
    known = all(rate.trials for rate in rates)
    return "; without a guard {} and {}".format(*map(_in_100, rates)) if known else ""


def _verdict(
    defense: DefenseAnalysis,
    attacked: AdaptiveCard | None,
    arms: Mapping[str, ArmAnalysis],
    *,
    candidates: Mapping[str, Scorecard],
    limits: RelianceLimits,
) -> Headline:
    card, counts = defense.card, defense.card.confusion
    blocked, wrongly = figure(card.true_positive_rate), figure(card.false_positive_rate)
    adapted = None if attacked is None else attacked.rounds[-1].full
    answer, chosen = judge_chosen(
        card, adapted, name=defense.name, candidates=candidates, limits=limits
    )
    notes = [*_notes(defense), *([] if attacked is None else [_adapted(attacked)])]
    if chosen is not None:
        notes.append(_as_one_of(chosen))
    return Headline(
        defense=defense.name,
        key=defense.name,
        title=f"The guard {defense.name}" if defense.name in arms else "",
        sentence=f"{_clause('blocks', blocked, 'attacks')}, "
        f"{_clause('wrongly blocks', wrongly, 'benign')}; {count_text(counts.malformed)} "
        f"malformed, {count_text(counts.errors)} error{'' if counts.errors == 1 else 's'}"
        f"{_given_allow(arms.get(defense.name))}",
        answer="" if defense.is_baseline else answer.value,
        tone=Tone(words_of("tones")[answer.value]),
        plain="" if defense.is_baseline else _plain(card),
        baseline=defense.is_baseline,
        notes=tuple(notes),
        error=card.ratios.balanced_error.value,
    )


def _without_verdict(headline: Headline, alike: AlikeAnswers) -> Headline:
    """Say of a service that answers everything the same that nothing is known of it."""
    return replace(
        headline,
        answer=_NO_VERDICT,
        tone=Tone(words_of("tones")[Reliance.NO_DATA.value]),
        plain=say("alike", count=count_text(alike.count), verb=_VERBS[alike.outcome]),
    )


def _given_allow(arm: ArmAnalysis | None) -> str:
    """Say what the target model does with what a guard lets through."""
    if arm is None:
        return ""
    success, refusal = arm.model.attack_success_rate, arm.model.over_refusal_rate
    if success.value is None and refusal.value is None:
        return "; of what it lets through, no outcome is known"
    return f"; given that it allows, {_ends_words(success, refusal)}"


def _ends_words(succeeds: Estimate, refused: Estimate) -> str:
    sides = (("attack success", succeeds, "attacks"), ("over-refusal", refused, "benign"))
    return ", ".join(
        f"{rate} {_share_words(figure(of), what)}" if of.trials else f"{rate}: not measured"
        for rate, of, what in sides
    )


def _plain(card: Scorecard) -> str:
    """Say without a term of the field what a defense does."""
    hits, alarms = card.true_positive_rate, card.false_positive_rate
    if hits.value is None or alarms.value is None:
        return "Not measured on both attacks and normal users."
    doubt = "" if separates(card) else ": not shown to beat chance on this data"
    doubt = ": no better than nothing on this data" if hits.value <= alarms.value else doubt
    return f"Stops {_in_100(hits)} attacks and blocks {_in_100(alarms)} normal users{doubt}."


def _in_100(rate: Estimate) -> str:
    """Put a share into a count of a hundred, or of all where they are fewer; a few are not none."""
    if rate.trials < 100:
        return f"{rate.successes} of {rate.trials}"
    hundredths = 100 * (rate.value or 0.0)
    if 0 < hundredths < 1:
        return "fewer than 1 in 100"
    return "more than 99 in 100" if 99 < hundredths < 100 else f"{round(hundredths)} in 100"


def _clause(verb: str, measure: FigureCell, what: str) -> str:
    if not measure.trials:
        return f"{verb} {what}: not measured (none answered)"
    return f"{verb} {_share_words(measure, what)}"


def _share_words(measure: FigureCell, what: str) -> str:
    share = f"{percent_text(measure.value)}{interval_text(measure)}"
    return f"{share} of {count_text(measure.trials or 0)} {what}"


def _adapted(card: AdaptiveCard) -> str:
    """Say how the defense fared when the attacks were rewritten, which its rates do not know."""
    from guardmark.reports.chapters.adaptive.attack_success import headline_cell

    share = f"{measure_text(headline_cell(card))} of {count_text(card.rounds[-1].full.trials)}"
    area = figure_text(card.area.blind, Unit.NUMBER)
    tried = [each.bypassed.value for each in card.operators if each.bypassed.value is not None]
    passing = sum(value > 0.5 for value in tried)
    alone = say("operators_alone", passing=passing, tried=len(tried)) if tried else ""
    return say("adapted", share=share, area=area, alone=alone)


def _notes(defense: DefenseAnalysis) -> Iterator[str]:
    card, share = defense.card, defense.card.answered.value
    if share is not None and share < ANSWERED_ENOUGH:
        ends = (card.fail_closed.attack_success_rate, card.fail_open.attack_success_rate)
        low, high = (percent_text(end.value) for end in ends)
        yield say("unanswered", share=percent_text(share), low=low, high=high)
    if card.truncated_attacks and card.truncated_benign:
        attacks, benign = map(rate_text, (card.truncated_attacks, card.truncated_benign))
        yield say("truncated", attacks=attacks, benign=benign)
    yield from _blind_spots(defense)
    yield from group_cautions(card.true_positive_rate, card.false_positive_rate)
    if defense.stopped:
        yield f"stopped early: {'; '.join(each.sentence for each in defense.stopped)}"
    if defense.is_redecided:
        yield f"decided anew from stored scores at threshold {defense.threshold:g}"


def _blind_spots(defense: DefenseAnalysis) -> Iterator[str]:
    """Name the surest blind spots, attacks first."""
    words = words_of("blind_spot_system" if defense.part.kind == SYSTEM else "blind_spot")
    for is_attack, side in ((True, "attacks"), (False, "benign")):
        spots = [each for each in defense.blind_spots if each.is_attack == is_attack]
        if spots:
            named = "; ".join(
                f"{each.name} {counts_text(figure(each.rate))} ({percent_text(each.rate.value)}), "
                f"elsewhere {percent_text(each.rest.value)}"
                for each in spots[:_SPOTS]
            )
            left = f"; {len(spots) - _SPOTS} more" if len(spots) > _SPOTS else ""
            yield f"blind spot, {words[side]}: {named}{left}"
