"""From the figures of a run to its report, free of any format."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.defense.reliance import Reliance, judge_reliance, separates
from guardmark.analysis.pipeline.frame import NO_GUARD
from guardmark.reports.chapters import comparison, latency, pipeline, summary, thresholds
from guardmark.reports.chapters.advice import MORE_ADVICE, write_advice, write_worst
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
    muted,
    section,
)
from guardmark.reports.document.cells import figure
from guardmark.reports.document.wording import count_text, interval_text, measure_text, percent_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.defense.scorecard import Scorecard
    from guardmark.analysis.pipeline.arms import ArmAnalysis
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.manifest import RunManifest


_MOST_NAMES: Final = 3
_TONES: Final = {
    Reliance.RELY: Tone.GOOD,
    Reliance.NOT_ALONE: Tone.WARNING,
    Reliance.DO_NOT: Tone.BAD,
    Reliance.NO_DATA: Tone.MUTED,
}
_ANSWERED_ENOUGH: Final = 0.99


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
            write_advice(analysis),
            *filter(None, (pipeline.write(analysis),)),
            summary.write(analysis),
            write_categories(analysis),
            comparison.write(analysis),
            latency.write(analysis),
            thresholds.write(analysis),
            _adaptive(analysis),
            write_worst(analysis),
            replace(write_slices(analysis), folded=True),
            replace(write_coverage(analysis), folded=True),
            replace(write_configuration(analysis), folded=True),
            replace(write_method(analysis), folded=True),
        ),
    )


def shorten(document: Document) -> Document:
    """Keep of a report what a terminal shows: verdicts, headline tables, recommendations."""
    sections = {each.id: each for each in document.sections}
    blocks = [block for section in document.sections for block in section.blocks]
    tables = {block.id: block for block in blocks if isinstance(block, Table) and block.rows}
    if "overview" in tables:  # a run of a model without a guard measures no defense
        tables["overview"] = replace(tables["overview"], title="")
    shown = [
        section(table_id, "", replace(tables[table_id], note=""))
        for table_id in ("overview", *CARD_TABLES, SPENDING_TABLE)
        if table_id in tables
    ]
    advice = sections["recommendations"]
    if lines := [each for each in advice.blocks if isinstance(each, Bullets)]:
        left = len(tables[MORE_ADVICE].rows) if MORE_ADVICE in tables else 0
        more = muted(f"({left} more in the report)") if left else None
        shown.append(section(advice.id, advice.title, *lines, more))
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
    attacked = {card.name: card for card in analysis.adaptive}
    arms = {} if analysis.pipeline is None else {a.name: a for a in analysis.pipeline.arms}
    return tuple(
        _verdict(each, attacked.get(each.name), _system_words(arms, each.name))
        for each in sorted(analysis.defenses, key=lambda each: each.is_baseline)
    )


def _verdict(defense: DefenseAnalysis, attacked: AdaptiveCard | None, system: str) -> Headline:
    card, counts = defense.card, defense.card.confusion
    blocked, wrongly = figure(card.true_positive_rate), figure(card.false_positive_rate)
    answer = judge_reliance(card, None if attacked is None else attacked.rounds[-1].full)
    return Headline(
        defense=defense.name,
        sentence=f"{_clause('blocks', blocked, 'attacks')}, "
        f"{_clause('wrongly blocks', wrongly, 'benign')}; {count_text(counts.malformed)} "
        f"malformed, {count_text(counts.errors)} error{'' if counts.errors == 1 else 's'}",
        answer="" if defense.is_baseline else answer.value,
        tone=_TONES[answer],
        plain="" if defense.is_baseline else f"{system}{_plain(card)}",
        baseline=defense.is_baseline,
        notes=(*_notes(defense), *(() if attacked is None else (_adapted(attacked),))),
    )


def _plain(card: Scorecard) -> str:
    """Say without a term of the field what a defense does."""
    hits, alarms = card.true_positive_rate.value, card.false_positive_rate.value
    if hits is None or alarms is None:
        return "Not measured on both attacks and normal users."
    doubt = "" if separates(card) else ": not shown to beat chance on this data"
    doubt = ": worse than nothing on this data" if hits <= alarms else doubt
    return f"Stops {_in_100(hits)} attacks and blocks {_in_100(alarms)} normal users{doubt}."


def _system_words(arms: Mapping[str, ArmAnalysis], defense: str) -> str:
    """Say what comes out of the whole system with a guard and without any."""
    pairs = [
        (arms[arm].system.attack_success_rate.value, arms[arm].system.over_refusal_rate.value)
        for arm in (defense, NO_GUARD)
        if arm in arms
    ]
    if defense not in arms or any(None in pair for pair in pairs):
        return ""
    text = "{} attacks succeed and {} normal users are refused"
    ends = (text.format(*map(_in_100, pair)) for pair in pairs)
    return f"In the whole system {'; without a guard '.join(ends)}. The guard by itself: "


def _in_100(share: float | None) -> str:
    """Put a share into a count of a hundred; almost none and almost all are not rounded away."""
    hundredths = 100 * (share or 0.0)
    if 0 < hundredths < 1:
        return "fewer than 1 in 100"
    return "more than 99 in 100" if 99 < hundredths < 100 else f"{round(hundredths)} in 100"


def _clause(verb: str, measure: FigureCell, what: str) -> str:
    if not measure.trials:
        return f"{verb} {what}: not measured (none answered)"
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


def _notes(defense: DefenseAnalysis) -> Iterator[str]:
    card, share = defense.card, defense.card.answered.value
    if share is not None and share < _ANSWERED_ENOUGH:
        low, high = card.fail_closed.attack_success_rate, card.fail_open.attack_success_rate
        yield (
            f"only {percent_text(share)} of samples got an answer: attacks get through in "
            f"{percent_text(low.value)} (failures block) to {percent_text(high.value)} (failures "
            "allow) of all"
        )
    sides = {"attacks": card.true_positive_rate, "benign samples": card.false_positive_rate}
    for what, estimate in sides.items():
        if estimate.trials and (estimate.few_groups or estimate.low is None):
            yield f"few groups: the {what} fall into {estimate.groups} groups only"
    if defense.stopped:
        yield f"stopped early: {'; '.join(each.sentence for each in defense.stopped)}"
    if defense.is_redecided:
        yield f"decided anew from stored scores at threshold {defense.threshold:g}"
