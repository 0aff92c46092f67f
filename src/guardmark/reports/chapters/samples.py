"""Samples to read: the worst of a run, the best rewrites, and three to read first."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.defense.bypasses import Flaw, ListedSample
from guardmark.core.values import dataclass
from guardmark.reports.document.blocks import (
    SampleBrowser,
    SampleCount,
    SampleEntry,
    Section,
    section,
)
from guardmark.reports.document.cells import (
    figure,
    figure_text,
    rate_text,
)
from guardmark.reports.document.wording import (
    count_text,
    counts_text,
)
from guardmark.stats.rates.clustered import EffectiveCounts
from guardmark.stats.rates.selection import rate_of_chosen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.analysis.defense.bypasses import WorstSamples
    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.gate import GateResult
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.sample import Sample
    from guardmark.reports.document.blocks import Part

_SHOW_ENDS: Final = {
    "bypass": "--unsafe",
    "false_alarm": "--over-refusal",
}
_SHOW_OPTIONS: Final = {
    "bypass": "--bypasses",
    "false_alarm": "--false-alarms",
    "error": "--errors",
    "malformed": "--malformed",
    "different": "--different",
}
_FACETS: Final = ("category", "subcategory", "severity", "technique", "language")
_MEANINGS: Final = {
    Flaw.BYPASS: ("an attack that was allowed", "attacks that {some} allowed"),
    Flaw.FALSE_ALARM: ("a benign sample that was blocked", "benign samples that {some} blocked"),
    Flaw.ERROR: ("no answer", "samples to which {some} gave no answer"),
    Flaw.MALFORMED: ("an unreadable answer", "samples to which {some} gave an unreadable answer"),
    Flaw.DIFFERENT: ("defenses disagree", "samples on which defenses disagree"),
}
"""What is counted where there is one defense, and where one of several is enough."""
_SYSTEM_MEANINGS: Final = {
    Flaw.BYPASS: ("an attack that succeeded", "attacks that succeed in {some}"),
    Flaw.FALSE_ALARM: (
        "a benign input that was turned down",
        "benign inputs that are turned down in {some}",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleStory:
    """What became of one sample in a pipeline: what guards decided, the answer, the verdicts.

    Attributes:
        answer: Of the target model; None where none came.
        steps: Who said what, word by word, in the order of asking.
    """

    answer: str | None
    steps: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """An attack that a defense blocked, and the text that carried it past it."""

    sample: Sample
    defense: str
    how: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Highlights:
    """What a report shows beside figures: its gate, and texts to read.

    Attributes:
        refused: Fields of requests that servers refused, a sentence for each.
        exchanges: By id of the sample.
        rewrites: The best of each attack, the gravest first.
    """

    gate: GateResult | None = None
    refused: tuple[str, ...] = ()
    exchanges: Mapping[str, SampleStory] = field(default_factory=dict)
    rewrites: tuple[Rewrite, ...] = ()


def write_worst(analysis: RunAnalysis, highlights: Highlights) -> Section:
    """Write the section on the worst case."""
    highest = []
    for defense in analysis.candidates:
        sentence = _highest(defense)
        if sentence:
            highest.append(sentence)
    parts: list[Part] = [highest]
    if analysis.system_worst is not None:
        parts.append(_browser(analysis, analysis.system_worst, highlights))
    parts.append(_browser(analysis, analysis.worst, highlights))
    rewritten = tuple(_rewritten(highlights.rewrites, analysis.settings.excerpt_characters))
    parts.append(_to_browse("rewrites", "Best rewrite of each attack (fewest tries)", rewritten))
    nothing = "No attack got through, no benign sample was blocked, nothing failed."
    return section("worst", "Worst case", *parts, otherwise=nothing)


def choose_first(analysis: RunAnalysis, highlights: Highlights) -> SampleBrowser | None:
    """Choose three: the worst bypass and false alarm, and the best rewrite or another bypass."""
    characters = analysis.settings.excerpt_characters
    worst = analysis.system_worst or analysis.worst
    is_system, exchanges = worst is analysis.system_worst, highlights.exchanges
    entries: dict[str, SampleEntry] = {}
    wanted = [Flaw.BYPASS, Flaw.FALSE_ALARM]
    if not highlights.rewrites:
        wanted.append(Flaw.BYPASS)
    for flaw in wanted:
        for listed in worst.listed:
            family = listed.sample.lineage
            if flaw in listed.flaws and family not in entries:
                entry = _entry(listed, characters, exchanges, is_system=is_system)
                entries[family] = replace(entry, kinds=(flaw,))
                break
    chosen_first = (*entries.values(), *_rewritten(highlights.rewrites[:1], characters))
    return _to_browse("read-first", "Read these first", chosen_first)


def _to_browse(name: str, title: str, entries: tuple[SampleEntry, ...]) -> SampleBrowser | None:
    if not entries:
        return None
    return SampleBrowser(id=name, title=title, entries=entries, counts=())


def _rewritten(rewrites: Sequence[Rewrite], characters: int) -> Iterator[SampleEntry]:
    """Show attacks before, and behind them the texts that got through."""
    for each in rewrites:
        listed = ListedSample(sample=each.sample, flaws=(Flaw.REWRITTEN,), answers=())
        after = f"Rewritten ({each.how}), let through by {each.defense}"
        story = ((after, each.text[:characters]),)
        yield replace(_entry(listed, characters, {}), story=story)


def _highest(defense: DefenseAnalysis) -> str:
    """Name the category of which most attacks get through, allowing for its having been chosen."""
    rates = defense.slice_table("category", is_attack=True).rates
    chosen = rate_of_chosen(
        [EffectiveCounts.of(each.rate) for each in rates],
        confidence=defense.card.attack_success_rate.confidence,
    )
    if chosen is None:  # of one category nothing was chosen
        for category in rates:
            if category.rate.successes:
                return f"{defense.name}: ASR in {category.name}, {rate_text(category.rate)}"
        return ""
    highest = rates[chosen.at]
    if not highest.rate.value:
        return ""
    seen = f"highest ASR in {highest.name}, {counts_text(figure(highest.rate))}"
    if highest.is_greyed:
        seen += ", of few samples"
    after = f"allowing for the choice among {len(rates)}, {figure_text(chosen.rate)}"
    return f"{defense.name}: {seen}; {after}"


def _browser(
    analysis: RunAnalysis, worst: WorstSamples, highlights: Highlights
) -> SampleBrowser | None:
    """List samples, those of systems with what became of them."""
    settings, is_system = analysis.settings, worst is analysis.system_worst
    list_id, title, options = "samples", "Samples to read, worst first", _SHOW_OPTIONS
    if is_system:
        list_id, options = "system-samples", _SHOW_ENDS
        title = "What came out: unsafe answers, and users turned down, worst first"
    counts = []
    for each in worst.counts:
        if each.flaw in options:
            count = SampleCount(
                kind=each.flaw,
                meaning=flaw_meaning(each.flaw, among=worst.among, is_system=is_system),
                total=each.total,
                listed=each.listed,
                command=f"guardmark show {settings.run_folder} {options[each.flaw]}",
            )
            counts.append(count)
    if not counts:
        return None
    characters, exchanges = settings.excerpt_characters, highlights.exchanges
    entries = []
    for listed in worst.listed:
        entries.append(_entry(listed, characters, exchanges, is_system=is_system))
    return SampleBrowser(id=list_id, title=title, entries=tuple(entries), counts=tuple(counts))


def flaw_meaning(flaw: Flaw, *, among: int, is_system: bool) -> str:
    """Say which samples are counted under a flaw: of several defenses one is enough."""
    kind = "defenses"
    of_one, of_some = _MEANINGS[flaw]
    if is_system:
        kind = "arms"
        of_one, of_some = _SYSTEM_MEANINGS.get(flaw, _MEANINGS[flaw])
    if among < 2:
        return of_one
    return of_some.format(some=f"at least one of {count_text(among)} {kind}")


def _entry(
    listed: ListedSample,
    characters: int,
    exchanges: Mapping[str, SampleStory],
    *,
    is_system: bool = False,
) -> SampleEntry:
    """Return a sample as it is listed: excerpt, facets, answers, and its story where it has one."""
    sample, text = listed.sample, listed.sample.prompt.words
    shown_story: list[tuple[str, str]] = []
    story = exchanges.get(sample.id)
    if story is not None:
        for who, words_of_step in (("Answer", story.answer or "none came"), *story.steps):
            shown_story.append((who, words_of_step[:characters]))
    facets = []
    for facet in _FACETS:
        value = getattr(sample, facet)
        if value:
            facets.append((facet, value))
    if sample.variant and sample.variant != "original":
        facets.append(("variant", sample.variant))
    if sample.group and sample.lineage != sample.id:
        facets.append(("group", sample.group))
    answers = listed.answers
    if is_system:  # what came out of an arm is no decision of a guard; the story holds these
        answers = ()
    return SampleEntry(
        sample_id=sample.id,
        is_attack=sample.is_attack,
        facets=tuple(facets),
        kinds=listed.flaws,
        answers=answers,
        excerpt=text[:characters],
        characters=len(text),
        cut=len(text) > characters,
        sha256=sample.prompt.digest().hex(),
        story=tuple(shown_story),
    )
