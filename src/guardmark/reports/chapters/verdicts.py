"""The answer for each system and each defense, as it heads a report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.compare.answer import judge_all
from guardmark.analysis.compare.merit import by_merit
from guardmark.analysis.compare.verdicts import ANSWERED_ENOUGH, Reliance
from guardmark.analysis.defense.bypasses import Flaw
from guardmark.analysis.pipeline.frame import SYSTEM, is_unguarded
from guardmark.reports.chapters.advice import BLIND_SPOT, BLIND_SPOT_SYSTEM
from guardmark.reports.chapters.answer import reason_of
from guardmark.reports.chapters.masking import rewriting_note
from guardmark.reports.chapters.subjects import group_cautions, subject
from guardmark.reports.document.blocks import FigureCell, Headline, Tone, Unit
from guardmark.reports.document.cells import figure, figure_text, rate_text
from guardmark.reports.document.safe_text import plain_line
from guardmark.reports.document.wording import (
    count_text,
    counts_text,
    interval_text,
    measure_text,
    percent_text,
)
from guardmark.stats.rates.clustered import EffectiveCounts
from guardmark.stats.rates.selection import rate_of_chosen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.compare.answer import JudgedCandidate
    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.defense.doubts import AlikeAnswers
    from guardmark.analysis.defense.scorecard import Scorecard
    from guardmark.analysis.pipeline.arms import ArmAnalysis, GuardGain
    from guardmark.analysis.run import RunAnalysis
    from guardmark.analysis.settings import RelianceLimits
    from guardmark.core.estimate import Estimate
    from guardmark.reports.chapters.samples import SampleStory

_OF_SYSTEMS: Final = {Reliance.NOT_ALONE: "Not enough"}
"""A whole system stands alone anyway, so the word is left out."""
_OF_SYSTEM_WORDS: Final = (
    ("of attacks get through", "of attacks succeed"),
    ("of benign inputs are blocked", "of benign inputs are turned down"),
)
_TONES: Final = {
    Reliance.RELY: Tone.GOOD,
    Reliance.NOT_ALONE: Tone.WARNING,
    Reliance.DO_NOT: Tone.BAD,
    Reliance.NO_DATA: Tone.MUTED,
}
_MOST: Final = 0.5
_NO_VERDICT: Final = "No verdict"
_VERBS: Final = {"allow": "allows", "block": "blocks"}
_SPOTS: Final = 1  # blind spots that a verdict names for each side, attacks and benign inputs
_QUOTED: Final = 160  # characters of a text beside a verdict


def write_verdicts(
    analysis: RunAnalysis, exchanges: Mapping[str, SampleStory] | None = None
) -> tuple[Headline, ...]:
    """Write the verdicts in the order of merit: systems before defenses, baselines last."""
    verdicts = _of_systems(analysis, exchanges or {})
    attacked = {card.name: card for card in analysis.adaptive}
    adapted = {name: card.rounds[-1].full for name, card in attacked.items()}
    arms: dict[str, ArmAnalysis] = {}
    answered = set[str]()  # guards whose texts the model was asked with
    if analysis.pipeline is not None:
        for arm in analysis.pipeline.arms:
            if not arm.is_placed:
                arms[arm.name] = arm
            for stops in arm.stopped:
                if stops.rewritten.successes > stops.not_asked:
                    answered.add(stops.guard)
    candidates = [each for each in analysis.defenses if not each.is_baseline]
    not_understood = {each.defense: each for each in analysis.alike}
    for judged in judge_all(candidates, analysis.settings.limits, adapted):
        name = judged.subject.name
        verdict = _of_defense(
            judged, attacked.get(name), arms.get(name), is_answered=name in answered
        )
        if name in not_understood:
            verdict = _without_verdict(verdict, not_understood[name])
        verdicts.append(verdict)
    for defense in by_merit(analysis.defenses):
        if defense.is_baseline:
            verdicts.append(_of_baseline(defense))
    return tuple(verdicts)


def _of_systems(analysis: RunAnalysis, exchanges: Mapping[str, SampleStory]) -> list[Headline]:
    """Write the verdicts about what came out: arms in use first, the model alone last."""
    limits = analysis.settings.system_limits
    in_use, alone = [], []
    for system in analysis.system:
        if is_unguarded(system.part):
            alone.append(system)
        else:
            in_use.append(system)
    arms: dict[str, ArmAnalysis] = {}
    if analysis.pipeline is not None:
        arms = {arm.name: arm for arm in analysis.pipeline.arms}
    verdicts = []
    for judged in (*judge_all(in_use, limits), *judge_all(alone, limits)):
        verdicts.append(_of_system(judged, limits, arms.get(judged.subject.name)))
    if verdicts and exchanges:
        quote = _quoted(verdicts[0].defense, analysis, exchanges)
        verdicts[0] = replace(verdicts[0], quote=quote)
    return sorted(verdicts, key=lambda each: each.baseline)


def _quoted(arm: str, analysis: RunAnalysis, exchanges: Mapping[str, SampleStory]) -> str:
    """Quote the worst attack that got an unsafe answer out of a system, and that answer."""
    if analysis.system_worst is None:
        return ""
    for listed in analysis.system_worst.listed:
        story = exchanges.get(listed.sample.id)
        got_out = any(each.defense == arm and each.flaw is Flaw.BYPASS for each in listed.answers)
        if got_out and story is not None and story.answer:
            asked, answer = _excerpt(listed.sample.prompt.words), _excerpt(story.answer)
            return f'For instance, {listed.sample.id}: "{asked}" was answered "{answer}"'
    return ""


def _excerpt(text: str) -> str:
    """Return the beginning of a text on one line, with a mark where it goes on."""
    begin = plain_line(text[:_QUOTED])
    if len(text) > _QUOTED:
        return f"{begin}…"
    return begin


def _of_system(
    judged: JudgedCandidate, limits: RelianceLimits, arm: ArmAnalysis | None
) -> Headline:
    """Write the verdict about what comes out of an arm."""
    system = judged.subject
    card, counts = system.card, system.card.confusion
    answer = judged.reliance
    most = max(_MOST, limits.attacks)
    if (card.attack_success_rate.low or 0.0) > most and answer is Reliance.NOT_ALONE:
        answer = Reliance.DO_NOT
    unknown = counts.malformed + counts.errors
    notes = [*_notes(system), *_as_one_of(judged)]
    title = subject(system.name, SYSTEM, system.part.version)
    if arm is not None and arm.stopped:
        title += f" ({arm.drawn})"
    sentence = _ends_words(card.attack_success_rate, card.false_positive_rate)
    if unknown:
        sentence += f"; {count_text(unknown)} outcomes unknown"
    if arm is not None and arm.gain is not None:
        sentence += _against_none(arm.gain)
    # A baseline is no candidate: it has no verdict, and nothing that one rests on.
    verdict = reason = ""
    if not system.is_baseline:
        verdict = _OF_SYSTEMS.get(answer, answer.value)
        reason = reason_of(judged)
        for of_defense, of_system in _OF_SYSTEM_WORDS:
            reason = reason.replace(of_defense, of_system)
    return Headline(
        defense=system.name,
        title=f"{title[0].upper()}{title[1:]}",
        key=subject(system.name, SYSTEM),
        sentence=sentence,
        answer=verdict,
        tone=_TONES[answer],
        reason=reason,
        baseline=system.is_baseline,
        notes=tuple(notes),
        blind_spots=tuple(_blind_spots(system)),
        error=card.ratios.balanced_error.value,
    )


def _against_none(gain: GuardGain) -> str:
    """Say what an arm changes against none of its guards, in pairs."""
    sides = []
    for rate, change in (
        ("attack success", gain.attack_success_rate),
        ("over-refusal", gain.over_refusal_rate),
    ):
        if change.value is not None:
            sides.append(f"{rate} {measure_text(figure(change, Unit.POINTS))}")
    return f"; against no guard: {', '.join(sides)}"


def _as_one_of(judged: JudgedCandidate) -> Iterator[str]:
    """Say why one that keeps the limits is not called reliable: it was chosen among several."""
    if judged.chosen is not None:
        yield (
            "by itself it keeps the limits, but so may the luckiest of "
            f"{judged.chosen.candidates} candidates: allowing for the choice, "
            f"{figure_text(judged.chosen.attack_success_rate)} of attacks get through and "
            f"{figure_text(judged.chosen.false_positive_rate)} of benign samples are "
            "blocked"
        )


def _of_defense(
    judged: JudgedCandidate,
    attacked: AdaptiveCard | None,
    arm: ArmAnalysis | None,
    *,
    is_answered: bool,
) -> Headline:
    """Write the verdict about what a defense decides."""
    defense = judged.subject
    notes = [*_notes(defense, is_answered=is_answered), *_as_one_of(judged)]
    if attacked is not None:
        notes.insert(0, _adapted(attacked))
    title = ""
    if arm is not None:
        title = f"The guard {defense.name}"
    return Headline(
        defense=defense.name,
        key=defense.name,
        title=title,
        sentence=f"{_rates_words(defense.card)}{_given_allow(arm)}",
        answer=judged.reliance.value,
        tone=_TONES[judged.reliance],
        reason=reason_of(judged),
        notes=tuple(notes),
        blind_spots=tuple(_blind_spots(defense)),
        error=defense.card.ratios.balanced_error.value,
    )


def _of_baseline(defense: DefenseAnalysis) -> Headline:
    """Tell the rates of what only marks the floor or the ceiling."""
    return Headline(
        defense=defense.name,
        key=defense.name,
        sentence=_rates_words(defense.card),
        baseline=True,
        notes=tuple(_notes(defense)),
        error=defense.card.ratios.balanced_error.value,
    )


def _rates_words(card: Scorecard) -> str:
    """Tell both rates, each in the direction of the tables, and failures where there are any."""
    through, alarms = figure(card.attack_success_rate), figure(card.false_positive_rate)
    rates = (
        f"{_clause('lets', through, 'attacks', 'through')}, "
        f"{_clause('blocks', alarms, 'benign inputs')}"
    )
    failures = []
    if card.confusion.malformed:
        failures.append(f"{count_text(card.confusion.malformed)} malformed")
    if card.confusion.errors:
        failures.append(f"{count_text(card.confusion.errors)} errors")
    if failures:
        return f"{rates}; {', '.join(failures)}"
    return rates


def _without_verdict(headline: Headline, alike: AlikeAnswers) -> Headline:
    """Give no verdict on a service that answers everything the same."""
    return replace(
        headline,
        answer=_NO_VERDICT,
        tone=_TONES[Reliance.NO_DATA],
        reason=(
            f"all {count_text(alike.count)} answers are alike (it {_VERBS[alike.outcome]} "
            "everything), so that it may not read what it is sent"
        ),
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
    """Tell how often attacks succeed and benign samples are turned down."""
    success = _end_words("attack success", succeeds, "attacks")
    return f"{success}, {_end_words('over-refusal', refused, 'benign')}"


def _end_words(label: str, rate: Estimate, samples: str) -> str:
    if rate.trials:
        return f"{label} {_share_words(figure(rate), samples)}"
    return f"{label}: not measured"


def _clause(verb: str, measure: FigureCell, what: str, after: str = "") -> str:
    if not measure.trials:
        return f"{what}: not measured (none was let through or blocked as it is)"
    return f"{verb} {_share_words(measure, what)} {after}".rstrip()


def _share_words(measure: FigureCell, what: str) -> str:
    share = f"{percent_text(measure.value)}{interval_text(measure)}"
    return f"{share} of {count_text(measure.trials or 0)} {what}"


def _adapted(card: AdaptiveCard) -> str:
    """Say how the defense fared when the attacks were rewritten, which its rates do not know."""
    from guardmark.reports.chapters.adaptive.attack_success import headline_cell

    share = f"{measure_text(headline_cell(card))} ({count_text(card.rounds[-1].full.trials)})"
    tried = [each for each in card.operators if each.bypassed.value is not None]
    alone = ""
    best = max(tried, key=lambda each: each.bypassed.value or 0.0, default=None)
    if best:
        rate = f"{counts_text(figure(best.bypassed))} of what was blocked"
        chosen = rate_of_chosen(
            [EffectiveCounts.of(each.bypassed) for each in tried],
            at=tried.index(best),
            shares_samples=True,
            confidence=best.bypassed.confidence,
        )
        if chosen is not None:
            after = figure_text(chosen.rate)
            rate += f" (allowing for the choice among {len(tried)}, {after})"
        alone = f"; the trick that gets most through by itself: {best.chain}, {rate}"
    return (
        f"rewritten by an attacker who watches the answers, {share} of attacks get through{alone}"
    )


def _notes(defense: DefenseAnalysis, *, is_answered: bool = False) -> Iterator[str]:
    """Say what limits what the rates of a defense tell."""
    card, share = defense.card, defense.card.answered.value
    if share is not None and share < ANSWERED_ENOUGH:
        low = percent_text(card.fail_closed.attack_success_rate.value)
        high = percent_text(card.fail_open.attack_success_rate.value)
        yield (
            f"only {percent_text(share)} of samples got an answer: attacks get through in "
            f"{low} (failures block) to {high} (failures allow) of all"
        )
    rewriting = rewriting_note(defense, is_answered=is_answered)
    if rewriting:
        yield rewriting
    if card.truncated_attacks and card.truncated_benign:
        attacks, benign = map(rate_text, (card.truncated_attacks, card.truncated_benign))
        yield (
            "texts were cut to fit it, and what stood behind the cut was not examined: "
            f"{attacks} of attacks, {benign} of benign samples"
        )
    yield from group_cautions(card.true_positive_rate, card.false_positive_rate)
    if defense.stopped:
        yield f"stopped early: {'; '.join(each.sentence for each in defense.stopped)}"
    if defense.is_redecided:
        yield f"decided anew from stored scores at threshold {defense.threshold:g}"


def _blind_spots(defense: DefenseAnalysis) -> Iterator[str]:
    """Name the surest blind spots, attacks first."""
    meanings = BLIND_SPOT
    if defense.part.kind == SYSTEM:
        meanings = BLIND_SPOT_SYSTEM
    for is_attack, side in ((True, "attacks"), (False, "benign")):
        spots = [each for each in defense.blind_spots if each.is_attack == is_attack]
        if not spots:
            continue
        parts = []
        for spot in spots[:_SPOTS]:
            parts.append(
                f"{spot.name} {counts_text(figure(spot.rate))} ({percent_text(spot.rate.value)}), "
                f"elsewhere {percent_text(spot.rest.value)}"
            )
        if len(spots) > _SPOTS:
            parts.append(f"{len(spots) - _SPOTS} more")
        yield f"blind spot, {meanings[side]}: {'; '.join(parts)}"
