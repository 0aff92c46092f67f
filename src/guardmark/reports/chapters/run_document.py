"""From the figures of a run to its report, free of any format."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters import (
    advice,
    comparison,
    configuration,
    coverage,
    latency,
    method,
    pipeline,
    slices,
    summary,
    thresholds,
    worst,
)
from guardmark.reports.chapters.candidates import empty_section
from guardmark.reports.chapters.headlines import write_verdicts
from guardmark.reports.chapters.pipeline import CARD_TABLES
from guardmark.reports.chapters.spending import SPENDING_TABLE
from guardmark.reports.document.blocks import Bullets, Document, Paragraph, Section, Table, Tone
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.manifest import RunManifest

_MOST_NAMES = 3
_MOST_ADVICE: Final = 6
_BRIEF_COLUMNS: Final = (
    "Defense",
    "ASR",
    "FPR",
    "Balanced error",
    "Answered",
    "Malformed",
    "Errors",
)


def build_document(analysis: RunAnalysis) -> Document:
    """Write the report of a run."""
    manifest, samples = analysis.manifest, analysis.samples
    data = _data_words(manifest)
    subtitle = (
        f"{data}: {count_text(samples.attacks)} attacks, {count_text(samples.benign)} benign; "
        f"{manifest.created_utc}"
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
            configuration.write(analysis),
            summary.write(analysis),
            *([through] if (through := pipeline.write(analysis)) else []),
            slices.write_categories(analysis),
            slices.write_slices(analysis),
            coverage.write(analysis),
            latency.write(analysis),
            comparison.write(analysis),
            thresholds.write(analysis),
            _adaptive(analysis),
            worst.write(analysis),
            advice.write(analysis),
            method.write(analysis),
        ),
    )


def shorten(document: Document) -> Document:
    """Keep of a report what a terminal shows: verdicts, headline tables, recommendations."""
    sections = {each.id: each for each in document.sections}
    blocks = [block for section in document.sections for block in section.blocks]
    tables = {block.id: block for block in blocks if isinstance(block, Table) and block.rows}
    shown = [Section(id="overview", title="", blocks=(_brief_overview(tables["overview"]),))]
    for table_id in (*CARD_TABLES, SPENDING_TABLE):
        if table_id in tables:
            table = replace(tables[table_id], note="", collapsed=False)
            shown.append(Section(id=table_id, title="", blocks=(table,)))
    advice = [block for block in sections["recommendations"].blocks if isinstance(block, Bullets)]
    if lines := tuple(line for block in advice for line in block.lines):
        left = len(lines) - _MOST_ADVICE
        more = Paragraph(text=f"({left} more in the report)", tone=Tone.MUTED)
        found = (Bullets(lines=lines[:_MOST_ADVICE]), *((more,) if left > 0 else ()))
        shown.append(Section(id="recommendations", title="What follows", blocks=found))
    caveats = tuple(
        block.text
        for block in sections["configuration"].blocks
        if isinstance(block, Paragraph) and block.tone is Tone.WARNING
    )
    return replace(document, caveats=caveats, sections=tuple(shown), is_brief=True)


def _brief_overview(table: Table) -> Table:
    chosen = [at for at, each in enumerate(table.columns) if each.title in _BRIEF_COLUMNS]
    return replace(
        table,
        title="",
        note="",
        columns=tuple(table.columns[at] for at in chosen),
        rows=tuple(
            replace(each, cells=tuple(each.cells[at] for at in chosen)) for each in table.rows
        ),
    )


def _adaptive(analysis: RunAnalysis) -> Section:
    if not analysis.adaptive:
        text = "No adaptive rounds were run; an attacker who adapts may do better than these rates."
        return empty_section("adaptive", "Adaptive rounds", text)
    # Most runs were not attacked, and these pages take a twentieth of a short run to load.
    from guardmark.reports.chapters.adaptive import chapter

    return chapter.write(analysis)


def _data_words(manifest: RunManifest) -> str:
    """Name the data sets that gave samples, each once, the first few of many."""
    names = [
        f"{each.name} {each.version}".strip()
        for each in manifest.data
        if each.attacks or each.benign
    ]
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - _MOST_NAMES
    if more > 1:
        return f"{', '.join(distinct[:_MOST_NAMES])} and {more} more"
    return ", ".join(distinct) or "no data"
