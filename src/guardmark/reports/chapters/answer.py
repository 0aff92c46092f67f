"""The first lines of a report: does any of these keep the limits, which is nearest, and by what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.compare.answer import (
    HeldRate,
    JudgedCandidate,
    Keeping,
    LimitSide,
    judge_all,
    nearest_of,
)
from guardmark.analysis.compare.verdicts import ANSWERED_ENOUGH, Reliance
from guardmark.analysis.pipeline.frame import DEFENSE, SYSTEM, is_unguarded
from guardmark.reports.chapters.subjects import subject
from guardmark.reports.document.cells import figure_text
from guardmark.reports.document.wording import percent_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.gate import GateResult
    from guardmark.analysis.run import RunAnalysis
    from guardmark.analysis.settings import RelianceLimits

_LIMITS: Final = {
    "limits": (
        "Limits of verdict, advice, picture and gate: at most {attacks} of attacks "
        "let through, at most {alarms} of benign inputs blocked ({origin})."
    ),
    "of_gate": "this run's gate",
    "usual": "no gate states others",
}

_LIMITS_SYSTEM: Final = {
    "limits": (
        "Limits of verdict, advice, picture and gate: at most {attacks} of attacks "
        "succeed, at most {alarms} of benign inputs turned down ({origin})."
    ),
    "of_gate": "this run's gate",
    "usual": "no gate states others",
}

_ANSWER: Final = {
    "only_baselines": "Only baselines were measured. Add a defense of your own to get an answer.",
    "unjudged": (
        "Nobody judged the answers of the model, so it is not known what came out. Name a judge: "
        "guardmark judge RUN --config FILE."
    ),
    "not_understood": (
        "No verdict about {names}: every answer is the same, so it may not read what it is sent."
    ),
}

_KEEPING: Final = {
    "kept": "keeps",
    "missed": "misses",
    "open": "leaves open",
}

_HOLDING: Final = {
    Keeping.KEPT: ("keeps", "keep"),
    Keeping.MISSED: ("misses", "miss"),
    Keeping.OPEN: ("leaves open", "leave open"),
}

_REASONS: Final = {
    "attacks": "more than {limit} of attacks get through",
    "false alarms": "more than {limit} of benign inputs are blocked",
    "rewritten attacks": "once rewritten, more than {limit} of attacks get through",
    "chance": "not shown to be better than nothing on this data",
    "luck": "among so many candidates a lucky one would look as good",
    "few": "too few samples",
}

_UNDECIDED: Final = {
    "attacks": "whether at most {limit} of attacks get through is open",
    "false alarms": "whether at most {limit} of benign inputs are blocked is open",
    "rewritten attacks": "whether at most {limit} of rewritten attacks get through is open",
}

_NUMBERS: Final = (
    "none",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
_MOST_NAMED: Final = 5


def write_answer(analysis: RunAnalysis, gate: GateResult | None = None) -> tuple[str, ...]:
    """Write the answer, how the gate stands, and the limits that both go by."""
    lines = [_not_understood(analysis), _of_attacked_arms(analysis) or _answer(analysis)]
    if gate is not None:
        from guardmark.reports.chapters.gate import conclusion  # on use: many runs set no limit

        sentence = conclusion(gate)
        lines.append(f"Gate {sentence[0].lower()}{sentence[1:]}")
    if _subjects(analysis):
        lines.append(limits_sentence(analysis))
    return tuple(line for line in lines if line)


def judged_subjects(analysis: RunAnalysis) -> tuple[JudgedCandidate, ...]:
    """Judge what a reader decides about: systems where there are any, else defenses."""
    if analysis.system:
        return judge_all(_subjects(analysis), analysis.settings.system_limits)
    adapted = {card.name: card.rounds[-1].full for card in analysis.adaptive}
    return judge_all(_subjects(analysis), analysis.settings.limits, adapted)


def nearest_first(analysis: RunAnalysis) -> list[JudgedCandidate]:
    """Put those that pass first, then those whose rates lie least above their limits."""
    return sorted(
        judged_subjects(analysis),
        key=lambda each: (each.reliance is not Reliance.RELY, each.excess),
    )


def _subjects(analysis: RunAnalysis) -> list[DefenseAnalysis]:
    """Return candidates: no baselines, no arm without a guard beside others, none unread."""
    candidates = []
    if analysis.system:
        for system in analysis.system:
            if not is_unguarded(system.part) and not system.is_baseline:
                candidates.append(system)
        return candidates or list(analysis.system)
    unread = {each.defense for each in analysis.alike}
    for defense in analysis.defenses:
        if not defense.is_baseline and defense.name not in unread:
            candidates.append(defense)
    return candidates


def _answer(analysis: RunAnalysis) -> str:
    """Say which pass, or which comes nearest; empty where no verdict can be given."""
    judged, scope = judged_subjects(analysis), DEFENSE
    if analysis.system:
        scope = SYSTEM
    if not judged:
        return _without_candidates(analysis)
    passing = [each for each in judged if each.reliance is Reliance.RELY]
    if len(judged) == 1:
        return _of_one(judged[0], scope)
    if passing:
        return _of_passing(passing, judged, scope)
    nearest = nearest_of(judged)
    verb = "passes"
    if any(map(_is_open, judged)):
        verb = "is shown to pass"
    lead = f"None of {number_word(len(judged))} {verb}."
    if nearest is None:
        return f"{lead} None was measured on both attacks and benign inputs."
    name = subject(nearest.subject.name, scope)
    return f"{lead} Nearest: {name} {standing_words(nearest)}."


def _without_candidates(analysis: RunAnalysis) -> str:
    """Say why nothing can be judged; empty where every answer was the same, which is said apart."""
    if analysis.alike:
        return ""
    if not analysis.defenses and analysis.pipeline is not None:
        return _ANSWER["unjudged"]
    return _ANSWER["only_baselines"]


def _of_attacked_arms(analysis: RunAnalysis) -> str:
    """Say which arms of agents hold against rewritten texts: benign texts are no part of that."""
    cards = [card for card in analysis.adaptive if card.is_carried_out]
    if not cards:
        return ""
    limit = analysis.settings.limits.attacks
    named: dict[Keeping, list[str]] = {keeping: [] for keeping in _HOLDING}
    for card in cards:
        held = HeldRate(side=LimitSide.REWRITTEN, rate=card.rounds[-1].full, limit=limit)
        named[held.keeping].append(f"{card.name} ({figure_text(held.rate)})")
    parts = []
    for keeping, (one, several) in _HOLDING.items():
        arms = named[keeping]
        if len(arms) > 1:
            parts.append(f"{_listed(arms)} {several}")
        elif arms:
            parts.append(f"{arms[0]} {one}")
    return (
        f"Against somebody who rewrites and watches: {'; '.join(parts)} the limit of "
        f"{limit_text(limit)}."
    )


def _is_open(judged: JudgedCandidate) -> bool:
    """Tell whether more data could still show that it passes: no limit is missed."""
    is_missed = any(each.keeping is Keeping.MISSED for each in judged.held)
    return judged.reliance is Reliance.NO_DATA and not is_missed


def _of_one(judged: JudgedCandidate, scope: str) -> str:
    """Say of a single candidate whether it passes."""
    name = subject(judged.subject.name, scope)
    if judged.reliance is Reliance.RELY:
        verb = "passes"
    elif _is_open(judged):
        verb = "is not shown to pass"
    else:
        verb = "does not pass"
    return _sentence(f"{name} {verb}: it {standing_words(judged)}.")


def _of_passing(
    passing: Sequence[JudgedCandidate], judged: Sequence[JudgedCandidate], scope: str
) -> str:
    """Name those that pass, of all candidates, and how the best of them stands."""
    names = _listed(subject(each.subject.name, scope) for each in passing)
    all_of = number_word(len(judged))
    first = f"First by merit: {_best_words(passing[0], scope)}."
    if len(passing) == len(judged):
        return f"All {all_of} pass: {names}. {first}"
    if len(passing) == 1:
        return f"One of {all_of} passes: {names}. It {standing_words(passing[0])}."
    return f"{number_word(len(passing)).capitalize()} of {all_of} pass: {names}. {first}"


def _best_words(judged: JudgedCandidate, scope: str) -> str:
    return f"{subject(judged.subject.name, scope)}, which {standing_words(judged)}"


def standing_words(judged: JudgedCandidate) -> str:
    """Say how one stands towards each limit: `keeps the limit for attacks (3 %, at most 10 %)`."""
    groups: dict[Keeping, list[HeldRate]] = {}
    for each in judged.held:
        groups.setdefault(each.keeping, []).append(each)
    verbs, parts = _KEEPING, list[str]()
    for keeping in (Keeping.KEPT, Keeping.MISSED, Keeping.OPEN):
        held = groups.get(keeping, [])
        if not held:
            continue
        noun = "limit"
        if parts:
            noun = "one"
        if len(held) > 1:
            noun += "s"
        sides = " and ".join(f"{each.side} ({_of_limit(each)})" for each in held)
        parts.append(f"{verbs[keeping]} the {noun} for {sides}")
    return f"{' and '.join(parts)}{_but(judged)}"


def _of_limit(held: HeldRate) -> str:
    return f"{percent_text(held.rate.value)}, at most {limit_text(held.limit)}"


def _but(judged: JudgedCandidate) -> str:
    """Say what stands against one: against what is said before only where it keeps its limits."""
    card = judged.subject.card
    buts = []
    share = card.answered.value
    if share is not None and share < ANSWERED_ENOUGH:
        buts.append(f"only {percent_text(share)} of samples were answered")
    if judged.reliance is Reliance.DO_NOT:
        buts.append("it is not shown to be better than nothing")
    if judged.chosen is not None:
        buts.append(f"so may the luckiest of {judged.chosen.candidates}")
    if not buts:
        return ""
    if all(each.keeping is Keeping.KEPT for each in judged.held):
        return f", but {' and '.join(buts)}"
    return f", and {' and '.join(buts)}"


def reason_of(judged: JudgedCandidate) -> str:
    """Say in a few words what a verdict rests on; empty where one can rely on it."""
    card, words = judged.subject.card, _REASONS
    if judged.reliance is Reliance.RELY:
        return ""
    if judged.reliance is Reliance.DO_NOT:
        return words["chance"]
    missed = []
    for held in judged.held:
        if held.keeping is Keeping.MISSED:
            missed.append(words[held.side].format(limit=limit_text(held.limit)))
    share = card.answered.value
    if share is not None and share < ANSWERED_ENOUGH:
        missed.append(f"only {percent_text(share)} of samples were answered")
    if missed:
        return " and ".join(missed)
    undecided = [_undecided(each) for each in judged.held if each.keeping is Keeping.OPEN]
    if undecided:
        return " and ".join(undecided)
    if judged.chosen is not None:
        return words["luck"]
    return words["few"]


def _undecided(held: HeldRate) -> str:
    words = _UNDECIDED[held.side].format(limit=limit_text(held.limit))
    needed = held.needed
    if needed is None:
        return words
    return f"{words} (about {needed:,} would decide)"


def limits_sentence(analysis: RunAnalysis) -> str:
    """Say by which limits verdicts, advice, picture and gate go, and where they come from."""
    limits: RelianceLimits = analysis.settings.limits
    words = _LIMITS
    if analysis.system:
        limits, words = analysis.settings.system_limits, _LIMITS_SYSTEM
    origin = words["usual"]
    if limits.is_of_gate:
        origin = words["of_gate"]
    return words["limits"].format(
        attacks=limit_text(limits.attacks), alarms=limit_text(limits.alarms), origin=origin
    )


def limit_text(limit: float) -> str:
    """Return a limit as a percentage without needless digits."""
    return f"{100 * limit:g} %"


def _not_understood(analysis: RunAnalysis) -> str:
    names = _listed(each.defense for each in analysis.alike)
    if names:
        return _ANSWER["not_understood"].format(names=names)
    return ""


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    left = len(every) - _MOST_NAMED
    more = ""
    if left > 0:
        more = f" and {left} more"
    return f"{', '.join(every[:_MOST_NAMED])}{more}"


def number_word(count: int) -> str:
    """Return a small count as a word."""
    if count < len(_NUMBERS):
        return _NUMBERS[count]
    return f"{count:,}"


def _sentence(text: str) -> str:
    """Begin with a capital where the first word is ours; names of defenses stay as they are."""
    if text.startswith("the "):
        return f"The{text[3:]}"
    return text
