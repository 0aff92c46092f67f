"""From the figures of a run to its report, free of any format."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import counted
from guardmark.reports.chapters import comparison, latency, pipeline, summary, thresholds
from guardmark.reports.chapters.advice import MORE_ADVICE, Highlights, write_advice, write_worst
from guardmark.reports.chapters.gate import write_gate
from guardmark.reports.chapters.latency import RETRIES_TABLE, SPENDING_TABLE
from guardmark.reports.chapters.method import parts_line, write_configuration, write_method
from guardmark.reports.chapters.pipeline import CARD_TABLES
from guardmark.reports.chapters.slices import (
    write_blind_spots,
    write_categories,
    write_coverage,
    write_slices,
    write_system_slices,
)
from guardmark.reports.chapters.verdicts import write_verdicts
from guardmark.reports.document.blocks import (
    Bullets,
    Document,
    Paragraph,
    Section,
    Table,
    Tone,
    muted,
    section,
)

if TYPE_CHECKING:
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.manifest import RunManifest

_MOST_NAMES: Final = 3


def build_document(analysis: RunAnalysis, highlights: Highlights | None = None) -> Document:
    """Write the report of a run; highlights are what its figures alone do not hold."""
    manifest, samples = analysis.manifest, analysis.samples
    shown = highlights or Highlights()
    subtitle = (
        f"{_data_words(manifest)}: {counted(samples.attacks, 'attack')}, "
        f"{samples.benign:,} benign; {manifest.created_utc}"
    )
    if manifest.evaluator:
        subtitle += f"; {manifest.evaluator}"
    if analysis.pipeline is not None:
        subtitle += f"; {parts_line(manifest)}"
        stands = {each.name for each in analysis.pipeline.judgings[:1]} - {"run"}
        subtitle += "".join(f"; figures by the judging {each}" for each in stands)
    subject = "Defense" if analysis.pipeline is None else "System"
    return Document(
        title=f"{subject} report: {manifest.name}",
        subtitle=subtitle,
        run=manifest.name,
        created_utc=manifest.created_utc,
        version=manifest.guardmark_version,
        confidence=analysis.settings.confidence,
        verdicts=write_verdicts(analysis, shown.exchanges),
        sections=(
            *filter(None, (write_gate(shown.gate),)),
            write_advice(analysis, shown),
            *filter(None, (pipeline.write(analysis), pipeline.write_planted(analysis.planted))),
            *filter(None, (write_system_slices(analysis),)),
            summary.write(analysis),
            write_blind_spots(analysis),
            write_categories(analysis),
            comparison.write(analysis),
            latency.write(analysis),
            thresholds.write(analysis),
            _adaptive(analysis),
            write_worst(analysis, shown),
            replace(write_slices(analysis), folded=True),
            replace(write_coverage(analysis), folded=True),
            replace(write_configuration(analysis, shown.refused), folded=True),
            replace(write_method(analysis), folded=True),
        ),
    )


def shorten(document: Document) -> Document:
    """Keep of a report what a terminal shows: verdicts, headline tables, recommendations."""
    sections = {each.id: each for each in document.sections}
    tables = {
        block.id: block for block in document.blocks if isinstance(block, Table) and block.rows
    }
    if "overview" in tables and "pipeline-system" not in tables:
        tables["overview"] = replace(tables["overview"], title="")
    shown = [
        section(table_id, "", replace(tables[table_id], note=""))
        for table_id in (*CARD_TABLES, "overview", SPENDING_TABLE, RETRIES_TABLE)
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
