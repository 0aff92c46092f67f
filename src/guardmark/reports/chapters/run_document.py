"""From the figures of a run to its report, free of any format."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters import comparison, latency, pipeline, summary, thresholds
from guardmark.reports.chapters.advice import write_advice, write_worst
from guardmark.reports.chapters.latency import SPENDING_TABLE
from guardmark.reports.chapters.method import write_configuration, write_method
from guardmark.reports.chapters.pipeline import CARD_TABLES
from guardmark.reports.chapters.slices import write_categories, write_coverage, write_slices
from guardmark.reports.document.blocks import (
    Bullets,
    Document,
    FigureCell,
    Headline,
    Paragraph,
    Section,
    Table,
    Tone,
    section,
)
from guardmark.reports.document.cells import figure
from guardmark.reports.document.wording import count_text, interval_text, measure_text, percent_text

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.manifest import RunManifest


_MOST_NAMES: Final = 3
_ANSWERED_ENOUGH: Final = 0.99
_MOST_ADVICE: Final = 6


def build_document(analysis: RunAnalysis) -> Document:
    """Write the report of a run."""
    manifest, samples = analysis.manifest, analysis.samples
    subtitle = (
        f"{_data_words(manifest)}: {count_text(samples.attacks)} attacks, "
        f"{count_text(samples.benign)} benign; {manifest.created_utc}"
    )
    if manifest.evaluator:
        subtitle += f"; {manifest.evaluator}"
    return Document(
        title=f"Defense report: {manifest.name}",
        subtitle=subtitle,
        run=manifest.name,
        created_utc=manifest.created_utc,
        version=manifest.guardmark_version,
        confidence=analysis.settings.confidence,
        verdicts=write_verdicts(analysis),
        sections=(
            write_configuration(analysis),
            summary.write(analysis),
            *filter(None, (pipeline.write(analysis),)),
            write_categories(analysis),
            write_slices(analysis),
            write_coverage(analysis),
            latency.write(analysis),
            comparison.write(analysis),
            thresholds.write(analysis),
            _adaptive(analysis),
            write_worst(analysis),
            write_advice(analysis),
            write_method(analysis),
        ),
    )


def shorten(document: Document) -> Document:
    """Keep of a report what a terminal shows: verdicts, headline tables, recommendations."""
    sections = {each.id: each for each in document.sections}
    blocks = [block for section in document.sections for block in section.blocks]
    tables = {block.id: block for block in blocks if isinstance(block, Table) and block.rows}
    shown: list[Section] = []
    if "overview" in tables:  # a run of a model without a guard measures no defense
        tables["overview"] = replace(tables["overview"], title="")
    for table_id in ("overview", *CARD_TABLES, SPENDING_TABLE):
        if table_id in tables:
            table = replace(tables[table_id], note="")
            shown.append(section(table_id, "", table))
    advice = [block for block in sections["recommendations"].blocks if isinstance(block, Bullets)]
    if lines := tuple(line for block in advice for line in block.lines):
        left = len(lines) - _MOST_ADVICE
        more = Paragraph(text=f"({left} more in the report)", tone=Tone.MUTED)
        first = Bullets(lines=lines[:_MOST_ADVICE])
        shown.append(section("recommendations", "What follows", first, more if left > 0 else None))
    caveats = tuple(
        block.text
        for block in sections["configuration"].blocks
        if isinstance(block, Paragraph) and block.tone is Tone.WARNING
    )
    return replace(document, caveats=caveats, sections=tuple(shown), is_brief=True)


def _adaptive(analysis: RunAnalysis) -> Section:
    if not analysis.adaptive:
        text = "No adaptive rounds were run; an attacker who adapts may do better than these rates."
        return section("adaptive", "Adaptive rounds", otherwise=text)
    # Most runs were not attacked, and these pages take a twentieth of a short run to load.
    from guardmark.reports.chapters.adaptive import chapter

    return chapter.write(analysis)


def _data_words(manifest: RunManifest) -> str:
    """Name the data sets that gave samples, each once, the first few of many."""
    used = [each for each in manifest.data if each.attacks or each.benign]
    distinct = list(dict.fromkeys(f"{each.name} {each.version}".strip() for each in used))
    more = len(distinct) - _MOST_NAMES
    if more > 1:
        return f"{', '.join(distinct[:_MOST_NAMES])} and {more} more"
    return ", ".join(distinct) or "no data"


def write_verdicts(analysis: RunAnalysis) -> tuple[Headline, ...]:
    """Write the verdict of every defense, baselines last."""
    ordered = sorted(analysis.defenses, key=lambda each: each.is_baseline)
    attacked = {card.name: card for card in analysis.adaptive}
    return tuple(_verdict(each, attacked.get(each.name)) for each in ordered)


def _verdict(defense: DefenseAnalysis, attacked: AdaptiveCard | None) -> Headline:
    card, counts = defense.card, defense.card.confusion
    blocked, wrongly = figure(card.true_positive_rate), figure(card.false_positive_rate)
    return Headline(
        defense=defense.name,
        sentence=f"{_clause('blocks', blocked, 'attacks')}, "
        f"{_clause('wrongly blocks', wrongly, 'benign')}; {count_text(counts.malformed)} "
        f"malformed, {count_text(counts.errors)} error{'' if counts.errors == 1 else 's'}",
        blocked=blocked,
        wrongly_blocked=wrongly,
        baseline=defense.is_baseline,
        notes=(*_notes(defense), *(() if attacked is None else (_adapted(attacked),))),
    )


def _clause(verb: str, measure: FigureCell, what: str) -> str:
    if not measure.trials:
        return f"{verb} an undefined share of {what} (none answered)"
    share = f"{percent_text(measure.value)}{interval_text(measure)}"
    return f"{verb} {share} of {count_text(measure.trials)} {what}"


def _adapted(card: AdaptiveCard) -> str:
    """Say how the defense fared when the attacks were rewritten, which its rates do not know."""
    from guardmark.reports.chapters.adaptive.attack_success import headline_cell

    share, trials = measure_text(headline_cell(card)), card.rounds[-1].full.trials
    return (
        f"against an attacker who rewrites and watches: {share} of {count_text(trials)} attacks "
        "got through"
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
        if estimate.trials and (estimate.few_groups or estimate.low is None):
            notes.append(f"few groups: the {what} fall into {estimate.groups} groups only")
    if defense.stopped:
        notes.append(f"stopped early: {'; '.join(each.sentence for each in defense.stopped)}")
    if defense.is_redecided:
        notes.append(f"decided anew from stored scores at threshold {defense.threshold:g}")
    return notes
