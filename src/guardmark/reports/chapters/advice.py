"""What to do next: recommendations with their commands, and how sure the figures are."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING, Final

from guardmark.analysis.pipeline.frame import DEFENSE, SYSTEM
from guardmark.core.errors import counted
from guardmark.core.values import dataclass
from guardmark.reports.chapters.answer import nearest_first
from guardmark.reports.chapters.choice import choice_sentence, worth_choosing
from guardmark.reports.chapters.comparison import draw_plane
from guardmark.reports.chapters.pipeline_warnings import (
    cut_warnings,
    provider_sentences,
    refusal_warnings,
    unseen_sentences,
)
from guardmark.reports.chapters.samples import choose_first
from guardmark.reports.chapters.subjects import subject
from guardmark.reports.document.blocks import (
    Bullets,
    LineChart,
    Section,
    muted,
    section,
)
from guardmark.reports.document.cells import (
    figure,
    figure_text,
    name,
    rate_text,
    slug,
    table_of,
    words,
)
from guardmark.reports.document.wording import (
    count_text,
    counts_text,
    measure_text,
    percent_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.compare.comparison import RunComparison
    from guardmark.analysis.compare.recommendations import Advice
    from guardmark.analysis.defense.costs import PartRetries
    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.defense.doubts import ServiceWords
    from guardmark.analysis.defense.scorecard import Scorecard
    from guardmark.analysis.run import RunAnalysis
    from guardmark.analysis.settings import RelianceLimits
    from guardmark.reports.chapters.samples import Highlights
    from guardmark.reports.document.blocks import Part, Table, TextCell

_ADVICE: Final = {
    "failures": (
        "{defense}: fix the failures first (mostly {subject}). Malformed answers: "
        "{malformed:,.0f}, errors: {errors:,.0f}, so the answered share is "
        "{answered_share}; over all attacks the ASR is "
        "{attack_success_rate_fail_closed_share} if failures block and "
        "{attack_success_rate_fail_open_share} if they allow."
    ),
    "no_separation": (
        "{defense}: not shown to block attacks (TPR {true_positive_rate}) more often "
        "than benign samples (FPR {false_positive_rate}). Do not rely on it unless "
        "more data show that it does."
    ),
    "mostly_bypassed": (
        "{defense}: not enough on its own. ASR {attack_success_rate}; the whole "
        "interval lies above {limit_points:g} %."
    ),
    "critical": (
        "{defense}: read the bypasses of severity {subject} first; "
        "{attack_success_rate_counts} such attacks get through, "
        "{attack_success_rate}."
    ),
    "blind_spot": (
        "{defense}: a blind spot, {subject}: {rate_counts} {what} there, {rate}; "
        "elsewhere {rest} (at least {excess_low_points:+.1f} points more, allowing "
        "for all {searched:,.0f} slices searched).{others}"
    ),
    "false_alarms": (
        "{defense}: look at its false alarms before it goes live. FPR "
        "{false_positive_rate}; the whole interval lies above {limit_points:g} %."
    ),
    "threshold": (
        "{defense}: consider the threshold {threshold:.3f}, chosen for {subject} on "
        "the calibration half. On the other half ASR {attack_success_rate} and FPR "
        "{false_positive_rate}; there the present one has ASR "
        "{present_attack_success_rate} and FPR {present_false_positive_rate}. Fewer "
        "attacks pass, and false alarms are shown not to be worse by more than "
        "{margin_points:.1f} points."
    ),
    "better": (
        "Prefer {defense} to {subject}: ASR "
        "{attack_success_rate_difference_points:+.1f} points, FPR "
        "{false_positive_rate_difference_points:+.1f} points."
    ),
    "trade_off": (
        "{defense} against {subject} is a trade-off: ASR "
        "{attack_success_rate_difference_points:+.1f} points, FPR "
        "{false_positive_rate_difference_points:+.1f} points. Decide by what a "
        "missed attack and a false alarm cost you; neither is better as such."
    ),
    "too_wide": (
        "{defense}: collect more {what}. {rate} is known to about "
        "±{half_width_points:.1f} points from {samples:,.0f}; ±{wanted_points:.1f} "
        "points would take about {needed:,.0f} at this rate, grouped as these are."
    ),
}

_ADVICE_SYSTEM: Final = {
    "failures": (
        "{subject_}: find out why outcomes are unknown (no readable verdict: "
        "{malformed:,.0f}, none at all: {errors:,.0f}). The outcome of "
        "{answered_share} is known; over all attacks "
        "{attack_success_rate_fail_closed_share} to "
        "{attack_success_rate_fail_open_share} succeed."
    ),
    "mostly_bypassed": (
        "{subject_}: do not put it before users. Attack success "
        "{attack_success_rate}; the whole interval lies above {limit_points:g} %. "
        "Change the target model, its system prompt or the guard, and measure again."
    ),
    "critical": (
        "{subject_}: read the unsafe answers to attacks of severity {subject} first; "
        "{attack_success_rate_counts} such attacks succeed, {attack_success_rate}."
    ),
    "blind_spot": (
        "{subject_}: a blind spot, {subject}: {rate_counts} {what} there, {rate}; "
        "elsewhere {rest} (at least {excess_low_points:+.1f} points more, allowing "
        "for all {searched:,.0f} slices searched).{others}"
    ),
    "false_alarms": (
        "{subject_}: look at the benign inputs it turns down. Over-refusal "
        "{false_positive_rate}; the whole interval lies above {limit_points:g} %."
    ),
    "better": (
        "Prefer {subject_} to {other_}: attack success "
        "{attack_success_rate_difference_points:+.1f} points, over-refusal "
        "{false_positive_rate_difference_points:+.1f} points."
    ),
    "trade_off": (
        "{subject_} against {other_} is a trade-off: attack success "
        "{attack_success_rate_difference_points:+.1f} points, over-refusal "
        "{false_positive_rate_difference_points:+.1f} points. Decide by what an "
        "unsafe answer and a user turned down cost you; neither is better as such."
    ),
    "too_wide": (
        "{subject_}: collect more {what}. {rate} is known to about "
        "±{half_width_points:.1f} points from {samples:,.0f}; ±{wanted_points:.1f} "
        "points would take about {needed:,.0f} at this rate, grouped as these are."
    ),
}

_COMMANDS: Final = {
    "failures": "guardmark show {run} --errors --defense {defense}",
    "no_separation": "guardmark show {run} --bypasses --defense {defense}",
    "mostly_bypassed": "guardmark show {run} --bypasses --defense {defense}",
    "critical": "guardmark show {run} --bypasses --defense {defense}{where}",
    "blind_spot": "guardmark show {run} --bypasses --defense {defense}{where}",
    "blind_spot_benign": "guardmark show {run} --false-alarms --defense {defense}{where}",
    "false_alarms": "guardmark show {run} --false-alarms --defense {defense}",
    "threshold": "guardmark report {run} --threshold {defense}={threshold:.6g}",
    "better": "guardmark compare {run} --only {defense},{subject}",
    "trade_off": "guardmark compare {run} --only {defense},{subject}",
    "too_wide": "guardmark plan --like {run}",
}

_COMMANDS_SYSTEM: Final = {
    "failures": "guardmark show {run} --errors",
    "mostly_bypassed": "guardmark show {run} --unsafe",
    "critical": "guardmark show {run} --unsafe{where}",
    "blind_spot": "guardmark show {run} --unsafe{where}",
    "blind_spot_benign": "guardmark show {run} --over-refusal{where}",
    "false_alarms": "guardmark show {run} --over-refusal",
    "better": "guardmark compare {run}",
    "trade_off": "guardmark compare {run}",
}

BLIND_SPOT: Final = {
    "attacks": "attacks get through",
    "benign": "benign inputs are blocked",
}

BLIND_SPOT_SYSTEM: Final = {
    "attacks": "attacks succeed",
    "benign": "benign inputs are turned down",
}

_WIDTHS: Final = {
    "attack_success_rate": "ASR",
    "false_positive_rate": "FPR",
}

_WIDTHS_SYSTEM: Final = {
    "attack_success_rate": "Attack success",
    "false_positive_rate": "Over-refusal",
}


_EVIDENCE_SYSTEM: Final = {
    "blind_spot": "blind-spots",
    "critical": "system-samples",
    "false_alarms": "system-samples",
    "better": "comparison",
    "trade_off": "comparison",
}

_EVIDENCE: Final = {
    "failures": "overview",
    "blind_spot": "blind-spots",
    "no_separation": "overview",
    "mostly_bypassed": "chart-category-asr",
    "critical": "worst",
    "false_alarms": "worst",
    "threshold": "limits",
    "better": "comparison",
    "trade_off": "comparison",
    "too_wide": "overview",
}

_SIDES: Final = {
    "attack_success_rate": "attacks",
    "false_positive_rate": "benign samples",
}

MORE_ADVICE: Final = "more-advice"  # the table of those past the first
_FIRST: Final = 3
_MOST_OF_BODY: Final = 200
_ALIKE: Final = 2
_LAST: Final = "too_wide"
_BLIND_SPOT: Final = "blind_spot"
_OF_PAIRS: Final = frozenset({"better", "trade_off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """One thing to do.

    Attributes:
        evidence: Id of what it rests on.
        command: What to type for it; empty where nothing can be typed.
        is_grave: Whether it names a blind spot whose whole interval is above the limit.
    """

    text: str
    evidence: str
    rule: str = ""
    defense: str = ""
    command: str = ""
    is_grave: bool = False


def write_advice(analysis: RunAnalysis, highlights: Highlights) -> Section:
    """Write what to do next, what to read, and how sure you can be."""
    items = [*_doubts(analysis), *_ranked(analysis)]
    first = items[:_FIRST]
    bullets = Bullets(
        lines=tuple(item.text for item in first),
        evidence=tuple(item.evidence for item in first),
        commands=tuple(item.command for item in first),
    )
    parts: list[Part] = [bullets]
    if not items:
        parts.append(muted("There is nothing to recommend on this data."))
    if len(items) > _FIRST:
        parts.append(_further_table(items[_FIRST:]))
    parts += [choose_first(analysis, highlights), muted(_how_sure(analysis))]
    return section("recommendations", "What to do next", *parts)


def _further_table(items: Sequence[_Item]) -> Table:
    return table_of(
        items,
        {
            "Recommendation": lambda item: words(item.text),
            "Command": _command_cell,
        },
        table_id=MORE_ADVICE,
        title="Further recommendations",
        texts=("Command",),
        collapsed=True,
    )


def _command_cell(item: _Item) -> TextCell:
    if item.command:
        return name(item.command)
    return words("")


def changed_sentence(changed: ServiceWords, analysis: RunAnalysis) -> str:
    """Say which texts a service changed, and what the figures therefore do not show."""
    attacks = f"{count_text(changed.attacks.successes)} of {count_text(changed.attacks.trials)}"
    benign = f"{count_text(changed.benign.successes)} of {count_text(changed.benign.trials)}"
    went_on = "whether the changed text is still harmful is not measured"
    if analysis.pipeline is not None:
        went_on = (
            "the unchanged text went on to the target model, so what comes out behind it is not "
            "what its users would get"
        )
    return (
        f"{changed.defense} changed {attacks} attacks and {benign} benign inputs "
        f"({', '.join(changed.words)}), which the configuration counts as allowed: {went_on}."
    )


def _doubts(analysis: RunAnalysis) -> Iterator[_Item]:
    """Yield what makes every figure doubtful: it comes before any of them."""
    for each in analysis.alike:
        body, count = each.body[:_MOST_OF_BODY], count_text(each.count)
        text = (
            f"{each.defense}: name the field that the service reads, here input: "
            "`--body '{input: {$input: text}}'` with `--url`, or the same at `body` in a "
            f"configuration. It was sent {body}, and all {count} answers are alike: its rates tell "
            "nothing until that is settled."
        )
        yield _Item(text=text, evidence="overview")
    for changed in analysis.changed_texts:
        yield _Item(text=changed_sentence(changed, analysis), evidence="overview")
    for line in unseen_sentences(analysis.unseen):
        yield _Item(text=line, evidence="overview")
    if analysis.pipeline is not None:
        for line in (
            *provider_sentences(analysis.pipeline),
            *cut_warnings(analysis.pipeline),
            *refusal_warnings(analysis.pipeline),
        ):
            yield _Item(text=line, evidence="pipeline")


def _ranked(analysis: RunAnalysis) -> list[_Item]:
    """Put advice in order: blind spots of those in question, which one, then by rule and merit."""
    scope, comparison = DEFENSE, analysis.comparison
    if analysis.system:
        scope, comparison = SYSTEM, analysis.systems
    rates = {}
    for each in analysis.system or analysis.defenses:
        if not each.is_baseline:
            rates[each.name] = each.card
    choice = ""
    if comparison is not None:
        choice = choice_sentence(comparison, rates, scope)
    worthy = worth_choosing(comparison, rates, scope)
    items = _advised(analysis)
    places = {each.subject.name: at for at, each in enumerate(nearest_first(analysis))}
    counted = Counter[str]()
    ranked: list[tuple[tuple[bool, bool, int], _Item]] = []
    for item in items:
        counted[item.rule] += 1
        # More data is never the first thing to do, a pair says less than the choice, and a third
        # item alike tells nothing new.
        is_late = item.rule == _LAST or (item.rule in _OF_PAIRS and bool(choice))
        is_third = counted[item.rule] > _ALIKE and not item.is_grave
        ranked.append(((is_late, is_third, places.get(item.defense, len(places))), item))
    ordered = [item for _, item in sorted(ranked, key=lambda each: each[0])]
    if choice:
        command = f"guardmark compare {analysis.settings.run_folder}"
        ordered.insert(0, _Item(text=choice, evidence="comparison", command=command))
    # No figure over all samples holds for whoever falls into a blind spot.
    in_question = set(rates)
    if choice:
        in_question = set(worthy)
    for at, item in enumerate(ordered):
        if item.is_grave and item.defense in in_question:
            ordered.insert(0, ordered.pop(at))
            break
    return ordered


def _advised(analysis: RunAnalysis) -> list[_Item]:
    """Collect advice: on systems, on defenses that were attacked, on all others."""
    not_understood = {each.defense for each in analysis.alike}
    on_systems, on_defenses = [], []
    for advice in analysis.advice:
        if advice.scope == SYSTEM:
            on_systems.append(_item(advice, analysis))
        elif advice.defense not in not_understood:
            on_defenses.append(_item(advice, analysis))
    most = analysis.settings.limits.attacks
    attacked = [
        *_broken(analysis.adaptive, most, analysis.settings.run_folder),
        *_repairs(analysis.adaptive),
    ]
    return [*on_systems, *attacked, *on_defenses]


def _item(advice: Advice, analysis: RunAnalysis) -> _Item:
    """Put an advice into words, with the command that carries it out."""
    return _Item(
        text=advice_sentence(advice),
        evidence=_evidence(advice),
        rule=advice.rule,
        defense=advice.defense,
        command=_command(advice, analysis.settings.run_folder),
        is_grave=_is_grave(advice),
    )


def _command(advice: Advice, run: str) -> str:
    """Return what to type for an advice; empty where it is done elsewhere."""
    numbers = dict(advice.numbers)
    rule = advice.rule
    if rule == _BLIND_SPOT and not numbers["is_attack"]:
        rule = "blind_spot_benign"
    commands = _COMMANDS
    if advice.scope == SYSTEM:
        commands = _COMMANDS_SYSTEM
    where = ""
    for facet, value in advice.facets:
        where += f" --where {shlex.quote(f'{facet}={value}')}"
    return commands.get(rule, "").format(
        run=run,
        defense=shlex.quote(advice.defense),
        subject=shlex.quote(advice.subject),
        where=where,
        threshold=numbers.get("threshold", 0.0),
    )


def _evidence(advice: Advice) -> str:
    if advice.scope == SYSTEM:
        return _EVIDENCE_SYSTEM.get(advice.rule, "pipeline")
    return _EVIDENCE[advice.rule]


def _broken(cards: tuple[AdaptiveCard, ...], most: float, run: str) -> Iterator[_Item]:
    """Warn of rates that do not hold against an attacker who rewrites and watches."""
    for card in cards:
        static, last = card.rounds[0].full, card.rounds[-1].full
        if (last.low or 0.0) > max(most, static.high or 0.0):
            text = (
                f"{card.name}: do not go by its rate on known attacks. {rate_text(last)} attacks "
                "got through once an attacker rewrote them and watched the answers; "
                f"{figure_text(static)} did as they are."
            )
            yield _Item(
                text=text,
                evidence="adaptive",
                rule="broken",
                defense=card.name,
                command=f"guardmark show {run} --adaptive --defense {shlex.quote(card.name)}",
            )


def _repairs(cards: tuple[AdaptiveCard, ...]) -> Iterator[_Item]:
    """Offer the repairs that an attacker was shown to get less far against."""
    for card in cards:
        repaired = card.repaired
        if repaired is None or not repaired.is_shown_to_help:
            continue
        after = measure_text(figure(repaired.after))
        before = measure_text(figure(repaired.before))
        text = (
            f"{card.name}: add the repaired defense of the report. Attacked anew with the same "
            f"budget, {after} of attacks get through it on average; before, {before}."
        )
        evidence = f"adaptive-repair-lines-{slug(card.name)}"
        yield _Item(text=text, evidence=evidence, rule="repair", defense=card.name)


def draw_picture(analysis: RunAnalysis) -> LineChart | None:
    """Draw what a reader decides by: the systems where there are any, else the defenses."""
    if analysis.system:
        subjects = [each for each in analysis.system if not each.is_baseline]
        return draw_plane(
            _rated(subjects or analysis.system),
            _front_of(analysis.systems),
            scope=SYSTEM,
            limits=_drawn_limits(analysis.settings.system_limits),
        )
    return draw_plane(
        _rated(analysis.candidates),
        _front_of(analysis.comparison),
        adapted={card.name: card.rounds[-1].full for card in analysis.adaptive},
        limits=_drawn_limits(analysis.settings.limits),
    )


def _rated(subjects: Sequence[DefenseAnalysis]) -> list[tuple[str, Scorecard]]:
    """Name each subject beside its figures."""
    return [(each.name, each.card) for each in subjects]


def _front_of(comparison: RunComparison | None) -> tuple[str, ...]:
    """Return those that none is shown to beat; none where nothing was compared."""
    if comparison is None:
        return ()
    return comparison.front


def _drawn_limits(limits: RelianceLimits) -> tuple[float, float]:
    """Return the limits along both axes: false alarms, then attacks."""
    return limits.alarms, limits.attacks


def _how_sure(analysis: RunAnalysis) -> str:
    """Say on how much the figures stand, what failed, and what they do not speak about."""
    adapted = "No adaptive rounds were run. "
    if analysis.adaptive:
        adapted = ""
    resent = _resent_words(analysis.retries)
    failed = 0
    for defense in analysis.defenses:
        failed += defense.card.confusion.malformed + defense.card.confusion.errors
    sure = 100 * analysis.settings.confidence
    samples, retried = analysis.samples, analysis.status.retried
    return (
        f"How sure: {samples.attacks:,} attacks and {samples.benign:,} benign samples "
        f"in {samples.groups:,} groups; {failed:,} answers failed, {retried:,} were "
        f'asked again. {resent}{adapted}"{sure:g} %" speaks about samples like '
        "these, not about attacks nobody tried."
    )


def _resent_words(retries: Sequence[PartRetries]) -> str:
    """Say how many answers took more than one request, and why."""
    if not retries:
        return ""
    kinds, resent = set[str](), 0
    for each in retries:
        resent += each.resent
        kinds.update(kind for kind, _ in each.failures)
    named = ", ".join(sorted(kinds))
    return f"{count_text(resent)} answers took more than one request ({named}). "


def advice_sentence(advice: Advice) -> str:
    """Put one recommendation into words."""
    is_system = advice.scope == SYSTEM
    sentences, widths, spots = _ADVICE, _WIDTHS, BLIND_SPOT
    if is_system:
        sentences, widths, spots = _ADVICE_SYSTEM, _WIDTHS_SYSTEM, BLIND_SPOT_SYSTEM
    parts = {
        "defense": advice.defense,
        "subject": advice.subject,
        "rate": widths.get(advice.subject, ""),
        "what": _SIDES.get(advice.subject, ""),
        "subject_": subject(advice.defense, advice.scope, advice.version),
        "other_": subject(advice.subject, advice.scope, advice.version),
    }
    for key, estimate in advice.figures:
        measure = figure(estimate)
        parts[key] = measure_text(measure)
        parts[f"{key}_counts"] = counts_text(measure)
        parts[f"{key}_share"] = percent_text(measure.value)
    numbers = dict(advice.numbers)
    if advice.rule == _BLIND_SPOT:
        side = "benign"
        if numbers["is_attack"]:
            side = "attacks"
        parts["what"] = spots[side]
        parts["others"] = _further_spots(int(numbers["more"]))
        numbers["excess_low"] = dict(advice.figures)["excess"].low or 0.0
    points = {f"{key}_points": 100 * number for key, number in numbers.items()}
    sentence = sentences[advice.rule].format(**parts, **numbers, **points)
    if is_system:
        return f"{sentence[0].upper()}{sentence[1:]}"
    return sentence


def _is_grave(advice: Advice) -> bool:
    """Tell whether it names a slice whose whole interval lies above the limit."""
    return advice.rule == _BLIND_SPOT and bool(dict(advice.numbers)["is_above_limit"])


def _further_spots(count: int) -> str:
    if not count:
        return ""
    return f" {counted(count, 'more such slice')}."
