"""From the figures of a run to its report, free of any format."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.errors import counted
from guardmark.core.manifest import UNNAMED
from guardmark.reports.chapters import comparison, latency, pipeline, summary, thresholds
from guardmark.reports.chapters.advice import MORE_ADVICE, draw_picture, write_advice
from guardmark.reports.chapters.answer import write_answer
from guardmark.reports.chapters.flags import write_flags
from guardmark.reports.chapters.flow import FLOW_TABLE
from guardmark.reports.chapters.judge_quality import write_planted
from guardmark.reports.chapters.latency import RETRIES_TABLE, SPENDING_TABLE
from guardmark.reports.chapters.masking import write_masking
from guardmark.reports.chapters.method import parts_line, write_configuration, write_method
from guardmark.reports.chapters.native_categories import write_native_categories
from guardmark.reports.chapters.pipeline import SYSTEM_TABLE
from guardmark.reports.chapters.samples import Highlights, write_worst
from guardmark.reports.chapters.slices import (
    write_blind_spots,
    write_categories,
    write_coverage,
    write_slices,
    write_system_slices,
)
from guardmark.reports.chapters.streaming import write_streaming
from guardmark.reports.chapters.summary import verdict_table
from guardmark.reports.chapters.turns import write_turns
from guardmark.reports.chapters.verdicts import write_verdicts
from guardmark.reports.document.blocks import (
    Bullets,
    Document,
    Paragraph,
    SampleBrowser,
    Section,
    Table,
    Tone,
    muted,
    section,
)
from guardmark.reports.document.cells import without_repeats
from guardmark.reports.document.wording import count_text, date_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guardmark.analysis.gate import GateResult
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.manifest import RunManifest
    from guardmark.reports.document.blocks import Block

_MOST_NAMES: Final = 3
ARMS_TABLE: Final = "agent-arms"
"""Id of the table of arms in a report on agents."""


def _gate_sections(gate: GateResult | None) -> tuple[Section, ...]:
    """Write the limits that a run sets itself."""
    if gate is None:
        return ()
    from guardmark.reports.chapters.gate import write_gate  # on use: many runs set no limit

    return (write_gate(gate),)


def build_document(analysis: RunAnalysis, highlights: Highlights | None = None) -> Document:
    """Write the report of a run; highlights are what its figures alone do not hold."""
    manifest, samples = analysis.manifest, analysis.samples
    shown = highlights or Highlights()
    if analysis.agent is not None or analysis.replay is not None:
        # Most runs are of no agent, and what writes them is loaded only where one is.
        how = (
            *_gate_sections(shown.gate),
            replace(write_configuration(analysis, shown.refused), folded=True),
            replace(write_method(analysis), folded=True),
        )
        if analysis.replay is not None:
            from guardmark.reports.chapters.replay import write_replay_report

            return write_replay_report(analysis, analysis.replay, method=how)
    if analysis.agent is not None:
        from guardmark.reports.chapters.agents import write_agent_report

        return write_agent_report(analysis, analysis.agent, method=how, gate=shown.gate)
    subtitle = (
        f"{_data_words(manifest)}: {counted(samples.attacks, 'attack')}, {samples.benign:,} benign"
    )
    if samples.unlabelled:
        subtitle += f", {samples.unlabelled:,} without a label (in no rate)"
    subtitle += f"; {date_text(manifest.created_utc)}"
    subtitle += _first_look(manifest)
    if manifest.evaluator:
        subtitle += f"; {manifest.evaluator}"
    if analysis.pipeline is not None:
        subtitle += f"; {parts_line(manifest)}"
        judgings = analysis.pipeline.judgings
        if judgings and judgings[0].name != "run":
            subtitle += f"; figures by the judging {judgings[0].name}"
    subject = "Defense"
    if analysis.pipeline is not None:
        subject = "System"
    verdicts = write_verdicts(analysis, shown.exchanges)
    lead = (verdict_table(analysis, verdicts), draw_picture(analysis))
    return Document(
        title=f"{subject} report{_named(manifest)}",
        subtitle=subtitle,
        run=manifest.name,
        created_utc=manifest.created_utc,
        version=manifest.guardmark_version,
        confidence=analysis.settings.confidence,
        answer=write_answer(analysis, shown.gate),
        verdicts=verdicts,
        lead=tuple(block for block in lead if block is not None),
        sections=(
            *_gate_sections(shown.gate),
            write_advice(analysis, shown),
            *filter(None, (pipeline.write(analysis), write_system_slices(analysis))),
            *filter(None, (write_planted(analysis.planted),)),
            write_blind_spots(analysis),
            write_categories(analysis),
            _adaptive(analysis),
            write_worst(analysis, shown),
            # What follows is for whoever checks the figures; pages fold it into one chapter.
            replace(summary.write(analysis), folded=True),
            replace(comparison.write(analysis), folded=True),
            replace(latency.write(analysis), folded=True),
            replace(thresholds.write(analysis), folded=True),
            *filter(
                None,
                (
                    write_masking(analysis),
                    write_flags(analysis),
                    write_streaming(analysis),
                    write_turns(analysis),
                    write_native_categories(analysis),
                ),
            ),
            replace(write_slices(analysis), folded=True),
            replace(write_coverage(analysis), folded=True),
            replace(write_configuration(analysis, shown.refused), folded=True),
            replace(write_method(analysis), folded=True),
        ),
    )


_DIGESTED: Final = ("gate", "recommendations", "categories", "adaptive")
_GATE_TABLE: Final = "gate"
_MOST_LIMITS: Final = 8  # rows of a gate in a digest, broken limits first
_MOST_ROWS: Final = 12  # rows of a table in a digest


def digest(document: Document) -> Document:
    """Keep the parts of a report that a decision needs: answer, table, gate, advice, limits."""
    shown = []
    warnings: list[Block] | None = None
    for each in document.sections:
        if each.id in _DIGESTED and not each.empty:
            shown.append(replace(each, blocks=tuple(_digested(each.blocks))))
        if each.id == "method":
            warnings = list(filter(_is_warning, each.blocks))
    if warnings is not None:
        shown.append(section("limits-of-this", "What these figures cannot say", *warnings, _WHOLE))
    lead = tuple(map(_without_note, document.lead))
    verdicts = document.verdicts
    if document.is_tabled:
        verdicts = tuple(replace(each, blind_spots=()) for each in verdicts)
    return replace(document, lead=lead, verdicts=verdicts, sections=tuple(shown))


def _without_note(block: Block) -> Block:
    """Leave the note of a table out."""
    if isinstance(block, Table):
        return replace(block, note="")
    return block


def _bare(block: Block) -> Block:
    """Leave title and note of a table out."""
    if isinstance(block, Table):
        return replace(block, title="", note="")
    return block


_WHOLE: Final = (
    "Everything else stands in report.html, the same in report.md, and every figure in full in "
    "summary.json."
)


def _is_warning(block: Block) -> bool:
    return isinstance(block, Paragraph | Bullets) and block.tone is Tone.WARNING


def _digested(blocks: Iterable[Block]) -> Iterator[Block]:
    """Keep sentences, tables that are not folded, and the samples to read first."""
    for block in blocks:
        if isinstance(block, Table):
            if block.id == _GATE_TABLE:
                yield replace(block, rows=block.rows[:_MOST_LIMITS], note="")
            elif not block.collapsed:
                yield replace(block, rows=block.rows[:_MOST_ROWS], note="")
        elif isinstance(block, Paragraph | Bullets | SampleBrowser):
            yield block


def shorten(document: Document, *, run: str = "") -> Document:
    """Keep of a report what a terminal shows: verdicts, headline tables, recommendations.

    Commands name the folder `run` where it is given; a report that is kept names none, since its
    folder may be moved.
    """
    sections = {each.id: each for each in document.sections}
    tables = _filled_tables(document.blocks)
    headline = (ARMS_TABLE, SYSTEM_TABLE, FLOW_TABLE, SPENDING_TABLE, RETRIES_TABLE)
    shown = []
    for table_id in headline:
        if table_id in tables:
            shown.append(section(table_id, "", _without_note(without_repeats(tables[table_id]))))
    advice = sections["recommendations"]
    lines = [_naming(each, run) for each in advice.blocks if isinstance(each, Bullets)]
    if lines:
        more = None
        if MORE_ADVICE in tables:
            more = muted(f"({len(tables[MORE_ADVICE].rows)} more in the report)")
        shown.append(section(advice.id, advice.title, *lines, more))
    warnings = filter(_is_warning, sections["configuration"].blocks)
    return replace(
        document,
        caveats=tuple(each.text for each in warnings if isinstance(each, Paragraph)),
        lead=tuple(map(_bare, document.lead)),
        sections=tuple(shown),
        is_brief=True,
    )


def _filled_tables(blocks: Iterable[Block]) -> dict[str, Table]:
    """Return the tables that have rows, by id."""
    tables = {}
    for block in blocks:
        if isinstance(block, Table) and block.rows:
            tables[block.id] = block
    return tables


def _naming(advice: Bullets, run: str) -> Bullets:
    """Name the folder of the run in commands."""
    if not run:
        return advice
    anywhere = f" {AnalysisSettings().run_folder}"
    named = tuple(each.replace(anywhere, f" {shlex.quote(run)}", 1) for each in advice.commands)
    return replace(advice, commands=named)


def _adaptive(analysis: RunAnalysis) -> Section:
    if not analysis.adaptive:
        text = "No adaptive rounds were run; an attacker who adapts may do better than these rates."
        return section("adaptive", "Adaptive rounds", otherwise=text)
    # Most runs were not attacked, and these pages take a twentieth of a short run to load.
    from guardmark.reports.chapters.adaptive import chapter

    return chapter.write(analysis)


def _first_look(manifest: RunManifest) -> str:
    """Say that a run took some of the data only; nothing for others."""
    run = manifest.settings.get("run")
    limit = None
    if isinstance(run, dict):
        limit = run.get("limit")
    if not isinstance(limit, int):
        return ""
    return f"; a first look: at most {count_text(limit)} samples (--limit)"


def _named(manifest: RunManifest) -> str:
    """Return the name of a run behind a colon; empty for a run without a name."""
    if manifest.name == UNNAMED:
        return ""
    return f": {manifest.name}"


def _data_words(manifest: RunManifest) -> str:
    """Name the data sets that gave samples, each once, the first few of many."""
    used = [each for each in manifest.data if each.attacks or each.benign]
    distinct = list(dict.fromkeys(f"{each.name} {each.version}".strip() for each in used))
    more = len(distinct) - _MOST_NAMES
    if more > 1:
        return f"{', '.join(distinct[:_MOST_NAMES])} and {more} more"
    return ", ".join(distinct) or "no data"
