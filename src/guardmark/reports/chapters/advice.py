"""What to do and what to read first: recommendations and listed samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.defense.bypasses import Flaw, ListedSample
from guardmark.analysis.pipeline.frame import DEFENSE, SYSTEM
from guardmark.reports.chapters.comparison import (
    choice_sentence,
    draw_plane,
    subject,
    worth_choosing,
)
from guardmark.reports.chapters.pipeline import (
    cut_warnings,
    provider_sentences,
    unseen_sentences,
)
from guardmark.reports.document.blocks import (
    Bullets,
    LineChart,
    SampleBrowser,
    SampleCount,
    SampleEntry,
    Section,
    muted,
    section,
)
from guardmark.reports.document.cells import figure, figure_text, rate_text, slug, table_of, words
from guardmark.reports.document.wording import (
    count_text,
    counts_text,
    measure_text,
    percent_text,
    say,
    words_of,
)
from guardmark.stats.rates.clustered import EffectiveCounts
from guardmark.stats.rates.selection import highest_rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.compare.recommendations import Advice
    from guardmark.analysis.defense.bypasses import WorstSamples
    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.gate import GateResult
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.sample import Sample

MORE_ADVICE: Final = "more-advice"  # the table of those past the first
_FIRST: Final = 3
_MOST_OF_BODY: Final = 200
_ALIKE: Final = 2
_LAST: Final = "too_wide"
_FACETS: Final = ("category", "subcategory", "severity", "technique", "language")
_BLIND_SPOT: Final = "blind_spot"
_OF_PAIRS: Final = frozenset({"better", "trade_off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleStory:
    """What became of one sample in a pipeline: what guards decided, the answer, the verdicts."""

    answer: str | None  # Of the target model; None where none came.
    steps: tuple[tuple[str, str], ...]  # Who said what, word by word, in the order of asking.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """An attack that a defense blocked, and the text that carried it past it."""

    sample: Sample
    defense: str
    how: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Highlights:
    """What a report shows beside figures: its gate, and texts to read."""

    gate: GateResult | None = None
    refused: tuple[str, ...] = ()  # Fields of requests that servers refused, a sentence for each.
    exchanges: Mapping[str, SampleStory] = field(default_factory=dict)  # By id of the sample.
    rewrites: tuple[Rewrite, ...] = ()  # The best of each attack, the gravest first.


def write_advice(analysis: RunAnalysis, highlights: Highlights) -> Section:
    """Write what to do next, the picture it rests on, what to read, and how sure you can be."""
    scope, comparison = DEFENSE, analysis.comparison
    if analysis.system:
        scope, comparison = SYSTEM, analysis.systems
    rates = {e.name: e.card for e in (analysis.system or analysis.defenses)}
    worthy = worth_choosing(comparison, rates, scope)
    choice = choice_sentence(comparison, rates, scope) if comparison else ""
    not_understood = {each.defense for each in analysis.alike}
    advised = [
        (each.rule, advice_sentence(each), _evidence(each), each.defense)
        for each in sorted(analysis.advice, key=lambda each: each.scope != SYSTEM)
        if each.scope == SYSTEM or each.defense not in not_understood
    ]
    systems = sum(each.scope == SYSTEM for each in analysis.advice)
    attacked = [
        *_broken(analysis.adaptive, analysis.settings.limits.attacks),
        *_repairs(analysis.adaptive),
    ]
    ranked, rules = [], Counter[str]()
    for rule, line, at, of in (*advised[:systems], *attacked, *advised[systems:]):
        rules[rule] += 1
        # More data is never the first thing to do, a pair says less than the choice, those worth
        # choosing come before others, and a third item alike tells nothing new.
        is_late = rule == _LAST or (rule in _OF_PAIRS and bool(choice))
        place = worthy.index(of) if of in worthy else len(worthy)
        ranked.append((is_late, rules[rule] > _ALIKE, place, line, at))
    items = [(line, at) for *_, line, at in sorted(ranked, key=lambda it: it[:3])]
    items = [(choice, "comparison"), *items] if choice else items
    # A blind spot beyond the limit is said first: no figure over all samples holds for whoever
    # falls into it.
    in_question = set(worthy) if choice else set(rates)
    grave = {
        advice_sentence(each)
        for each in analysis.advice
        if _is_grave(each) and each.defense in in_question
    }
    items.sort(key=lambda item: item[0] not in grave)
    # What makes every figure doubtful comes before any of them.
    doubts = [
        (
            say(
                "alike_next",
                defense=each.defense,
                body=each.body[:_MOST_OF_BODY],
                count=count_text(each.count),
            ),
            "overview",
        )
        for each in analysis.alike
    ]
    doubts += [(line, "overview") for line in unseen_sentences(analysis.unseen)]
    if analysis.pipeline is not None:
        doubts += [(line, "pipeline") for line in provider_sentences(analysis.pipeline)]
        doubts += [(line, "pipeline") for line in cut_warnings(analysis.pipeline)]
    items = [*doubts, *items]
    first = items[:_FIRST]
    further = table_of(
        [line for line, _ in items[_FIRST:]],
        {"Recommendation": words},
        table_id=MORE_ADVICE,
        title="Further recommendations",
        collapsed=True,
    )
    return section(
        *("recommendations", "What to do next"),
        Bullets(lines=tuple(line for line, _ in first), evidence=tuple(at for _, at in first)),
        None if items else muted("There is nothing to recommend on this data."),
        further if further.rows else None,
        _picture(analysis),
        muted(limits_sentence(analysis)),
        _to_read(analysis, highlights),
        muted(_how_sure(analysis)),
    )


def _evidence(advice: Advice) -> str:
    if advice.scope == SYSTEM:
        return words_of("evidence_system").get(advice.rule, "pipeline")
    return words_of("evidence")[advice.rule]


def _broken(cards: tuple[AdaptiveCard, ...], most: float) -> Iterator[tuple[str, ...]]:
    """Warn of rates that do not hold against an attacker who rewrites and watches."""
    for card in cards:
        static, last = card.rounds[0].full, card.rounds[-1].full
        if (last.low or 0.0) > max(most, static.high or 0.0):
            rates = {"static": figure_text(static), "last": rate_text(last)}
            yield "broken", say("broken", defense=card.name, **rates), "adaptive", card.name


def _repairs(cards: tuple[AdaptiveCard, ...]) -> Iterator[tuple[str, ...]]:
    """Offer the repairs that an attacker was shown to get less far against."""
    for card in cards:
        repaired = card.repaired
        if repaired is None or (repaired.change.high or 0.0) >= 0:
            continue
        after, before = (measure_text(figure(x)) for x in (repaired.after, repaired.before))
        text = (
            f"{card.name}: add the repaired defense of the report. Attacked anew with the same "
            f"budget, {after} of attacks get through it on average; before, {before}."
        )
        yield "repair", text, f"adaptive-repair-lines-{slug(card.name)}", card.name


def limits_sentence(analysis: RunAnalysis) -> str:
    """Say by which limits verdicts, advice, picture and gate go, and where they come from."""
    is_system = bool(analysis.system)
    limits = analysis.settings.system_limits if is_system else analysis.settings.limits
    attacks = "attacks may succeed" if is_system else "attacks may get through"
    alarms = "benign inputs turned down" if is_system else "benign inputs blocked"
    origin = "the limits of this run's gate" if limits.is_of_gate else "no gate states others"
    return (
        f"Verdicts, advice and picture go by one set of limits: at most {100 * limits.attacks:g} % "
        f"of {attacks}, and at most {100 * limits.alarms:g} % of {alarms} ({origin})."
    )


def _picture(analysis: RunAnalysis) -> LineChart | None:
    """Draw what a reader decides by: the systems where there are any, else the defenses."""
    if analysis.system:
        shown = [each for each in analysis.system if not each.is_baseline] or analysis.system
        rated = [(each.name, each.card) for each in shown]
        front = analysis.systems.front if analysis.systems else ()
        limits = analysis.settings.system_limits
        return draw_plane(rated, front, scope=SYSTEM, limits=(limits.alarms, limits.attacks))
    adapted = {card.name: card.rounds[-1].full for card in analysis.adaptive}
    front = analysis.comparison.front if analysis.comparison else ()
    rated = [(each.name, each.card) for each in analysis.candidates]
    limits = analysis.settings.limits
    drawn = limits.alarms, limits.attacks
    return draw_plane(rated, front, adapted=adapted, limits=drawn)


def _to_read(analysis: RunAnalysis, highlights: Highlights) -> SampleBrowser | None:
    """Choose the worst bypass and the worst false alarm, of two groups, and the best rewrite."""
    characters = analysis.settings.excerpt_characters
    worst = analysis.system_worst or analysis.worst
    is_system, exchanges = worst is analysis.system_worst, highlights.exchanges
    entries: dict[str, SampleEntry] = {}
    for flaw in (Flaw.BYPASS, Flaw.FALSE_ALARM):
        fitting = (each for each in worst.listed if flaw in each.flaws)
        if chosen := next((x for x in fitting if x.sample.lineage not in entries), None):
            entry = _entry(chosen, characters, exchanges, is_system=is_system)
            entries[chosen.sample.lineage] = replace(entry, kinds=(flaw,))
    chosen_first = (*entries.values(), *_rewritten(highlights.rewrites[:1], characters))
    return _to_browse("read-first", "Read these first", chosen_first)


def _rewritten(rewrites: Sequence[Rewrite], characters: int) -> Iterator[SampleEntry]:
    """Show attacks before, and behind them the texts that got through."""
    for each in rewrites:
        listed = ListedSample(sample=each.sample, flaws=(Flaw.REWRITTEN,), answers=())
        after = f"Rewritten ({each.how}), let through by {each.defense}"
        story = ((after, each.text[:characters]),)
        yield replace(_entry(listed, characters, {}), story=story)


def _to_browse(name: str, title: str, entries: tuple[SampleEntry, ...]) -> SampleBrowser | None:
    return SampleBrowser(id=name, title=title, entries=entries, counts=()) if entries else None


def _how_sure(analysis: RunAnalysis) -> str:
    adapted = "" if analysis.adaptive else "No adaptive rounds were run. "
    resent = ""
    if retries := analysis.retries:
        kinds = ", ".join(sorted({kind for each in retries for kind, _ in each.failures}))
        count = count_text(sum(each.resent for each in retries))
        resent = say("resent", count=count, kinds=kinds)
    failed = sum(e.card.confusion.malformed + e.card.confusion.errors for e in analysis.defenses)
    sure = 100 * analysis.settings.confidence
    more = {"failed": failed, "resent": resent, "adapted": adapted, "confidence": sure}
    return say("how_sure", of=analysis.samples, run=analysis.status, **more)


def advice_sentence(advice: Advice) -> str:
    """Put one recommendation into words."""
    is_system = advice.scope == SYSTEM
    sentences = "advice_system" if is_system else "advice"
    rate = words_of("widths_system" if is_system else "widths").get(advice.subject, "")
    what = words_of("sides").get(advice.subject, "")
    parts = {"defense": advice.defense, "subject": advice.subject, "rate": rate, "what": what}
    parts["subject_"], parts["other_"] = (
        subject(each, advice.scope, advice.version) for each in (advice.defense, advice.subject)
    )
    for key, estimate in advice.figures:
        measure = figure(estimate)
        parts[key] = measure_text(measure)
        parts[f"{key}_counts"] = counts_text(measure)
        parts[f"{key}_share"] = percent_text(measure.value)
    numbers = dict(advice.numbers)
    if advice.rule == _BLIND_SPOT:
        side = "attacks" if numbers["is_attack"] else "benign"
        parts["what"] = words_of("blind_spot_system" if is_system else "blind_spot")[side]
        parts["others"] = _further_spots(int(numbers["more"]))
        numbers["excess_low"] = dict(advice.figures)["excess"].low or 0.0
    points = {f"{key}_points": 100 * number for key, number in numbers.items()}
    sentence = words_of(sentences)[advice.rule].format(**parts, **numbers, **points)
    return f"{sentence[0].upper()}{sentence[1:]}" if is_system else sentence


def _is_grave(advice: Advice) -> bool:
    """Tell whether it names a slice whose whole interval lies above the limit."""
    return advice.rule == _BLIND_SPOT and bool(dict(advice.numbers)["is_above_limit"])


def _further_spots(count: int) -> str:
    if not count:
        return ""
    return f" The report lists {count_text(count)} more such {'slice' if count == 1 else 'slices'}."


def write_worst(analysis: RunAnalysis, highlights: Highlights) -> Section:
    """Write the section on the worst case."""
    rewritten = tuple(_rewritten(highlights.rewrites, analysis.settings.excerpt_characters))
    return section(
        *("worst", "Worst case"),
        [line for each in analysis.candidates if (line := _highest(each))],
        _browser(analysis, analysis.system_worst, highlights) if analysis.system_worst else None,
        _browser(analysis, analysis.worst, highlights),
        _to_browse("rewrites", "Best rewrite of each attack (fewest tries)", rewritten),
        otherwise="No attack got through, no benign sample was blocked, nothing failed.",
    )


def _highest(defense: DefenseAnalysis) -> str:
    """Name the category of which most attacks get through, allowing for its having been chosen."""
    rates = defense.slice_table("category", is_attack=True).rates
    chosen = highest_rate(
        [EffectiveCounts.of(each.rate) for each in rates],
        confidence=defense.card.attack_success_rate.confidence,
    )
    if chosen is None:  # of one category nothing was chosen
        alone = next((each for each in rates if each.rate.successes), None)
        return (
            "" if alone is None else f"{defense.name}: ASR in {alone.name}, {rate_text(alone.rate)}"
        )
    highest = rates[chosen.at]
    if not highest.rate.value:
        return ""
    few = ", of few samples" if highest.is_greyed else ""
    seen = f"highest ASR in {highest.name}, {counts_text(figure(highest.rate))}{few}"
    after = f"allowing for the choice among {len(rates)}, {figure_text(chosen.rate)}"
    return f"{defense.name}: {seen}; {after}"


def _browser(
    analysis: RunAnalysis, worst: WorstSamples, highlights: Highlights
) -> SampleBrowser | None:
    """List samples, those of systems with what became of them."""
    settings, is_system = analysis.settings, worst is analysis.system_worst
    options = words_of("show_ends" if is_system else "show_options")
    title = "What came out: unsafe answers, and users turned down, worst first"
    browser = SampleBrowser(
        id="system-samples" if is_system else "samples",
        title=title if is_system else "Samples to read, worst first",
        entries=tuple(
            _entry(each, settings.excerpt_characters, highlights.exchanges, is_system=is_system)
            for each in worst.listed
        ),
        counts=tuple(
            SampleCount(
                kind=each.flaw,
                total=each.total,
                listed=each.listed,
                command=f"guardmark show {settings.run_folder} {options[each.flaw]}",
            )
            for each in worst.counts
            if each.flaw in options
        ),
    )
    return browser if browser.counts else None


def _entry(
    listed: ListedSample,
    characters: int,
    exchanges: Mapping[str, SampleStory],
    *,
    is_system: bool = False,
) -> SampleEntry:
    sample, text = listed.sample, listed.sample.prompt.words
    story = exchanges.get(sample.id)
    steps = (("Answer", story.answer or "none came"), *story.steps) if story else ()
    facets = {
        **{name: getattr(sample, name) for name in _FACETS},
        "variant": "" if sample.variant == "original" else sample.variant,
        "group": "" if sample.lineage == sample.id else sample.group,
    }
    return SampleEntry(
        sample_id=sample.id,
        is_attack=sample.is_attack,
        facets=tuple((facet, value) for facet, value in facets.items() if value),
        kinds=listed.flaws,
        # What came out of an arm is no decision of a guard; the story holds these.
        answers=() if is_system else listed.answers,
        excerpt=text[:characters],
        characters=len(text),
        cut=len(text) > characters,
        sha256=sample.prompt.digest().hex(),
        story=tuple((who, said[:characters]) for who, said in steps),
    )
