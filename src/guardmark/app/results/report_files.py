"""The reports of a run, written from its records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.pipeline.frame import DEFENSE, SYSTEM
from guardmark.analysis.run import analyse_run
from guardmark.app.results.highlights import read_highlights, read_retries
from guardmark.app.results.opened_run import analysis_settings
from guardmark.app.results.service_notes import read_endpoints
from guardmark.interchange.records.writing import (
    categories_csv,
    variants_csv,
    write_lines,
)
from guardmark.reports.chapters.run_document import build_document, digest
from guardmark.reports.document.cells import rate_text
from guardmark.reports.render.json.documents import comparison_json, gate_json, summary_json
from guardmark.store.reader import RecordReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.gate import GateResult
    from guardmark.analysis.run import RunAnalysis
    from guardmark.app.settings import Config
    from guardmark.reports.document.blocks import Document
    from guardmark.store.run_dir import RunDir

_LISTING: Final = frozenset({"html", "md"})
_LISTED: Final = 10


def write_reports(
    folder: RunDir,
    config: Config,
    *,
    formats: Sequence[str],
    thresholds: tuple[tuple[str, float], ...] = (),
    texts: bool = True,
    to: RunDir | None = None,
) -> tuple[RunAnalysis, Document, GateResult | None]:
    """Write the reports of a run from its records, into its folder or another."""
    to = to or folder
    with RecordReader(folder.records) as reader:
        write_lines(reader, folder.results)
        settings = replace(analysis_settings(reader, config), thresholds=thresholds)
        if not _LISTING.intersection(formats):
            settings = replace(settings, listed_samples=0)  # nobody would read them
        analysis = analyse_run(reader, settings)
        retries = tuple(read_retries(reader))
        analysis = replace(analysis, retries=retries, endpoints=read_endpoints(folder))
        if "json" in formats and (analysis.comparison or analysis.systems):
            to.write_text(to.comparison_json.name, run_comparison(reader, analysis))
        if "junit" in formats:
            to.write_text(to.junit.name, run_junit(reader, analysis, config))
        if "sarif" in formats:
            from guardmark.app.results.findings import run_sarif  # on use: few runs write it

            to.write_text(to.sarif.name, run_sarif(reader, analysis, texts=texts))
        highlights = read_highlights(reader, analysis, config)
        document = build_document(analysis, highlights)
    if "json" in formats:
        if highlights.gate is not None:
            to.write_text("gate.json", gate_json(highlights.gate, run=analysis.manifest.name))
        to.write_text(to.summary_json.name, summary_json(analysis))
    if "md" in formats:
        from guardmark.reports.render.markdown import render_markdown  # on use, as below

        to.write_text(to.summary_md.name, render_markdown(digest(document), texts=texts))
        to.write_text(to.report_md.name, render_markdown(document, texts=texts))
    if "csv" in formats:
        to.write_text(to.categories_csv.name, categories_csv(analysis))
        to.write_text(to.variant_metrics_csv.name, variants_csv(analysis))
    if "html" in formats:
        from guardmark.reports.render.html.page import render_html

        to.write_text(to.report_html.name, render_html(document, texts=texts))
    return analysis, document, highlights.gate


def run_junit(reader: RecordReader, analysis: RunAnalysis, config: Config) -> str:
    """Write a run as JUnit XML: its limits, or its figures when none are set."""
    from guardmark.app.results.gating import check_own_limits
    from guardmark.interchange.junit import Unlimited, figures_junit, gate_junit  # loads a parser

    run, created, head = analysis.manifest.name, analysis.manifest.created_utc, analysis.status.head
    result = check_own_limits(reader, analysis, config)
    if result is None:
        cases = tuple(
            Unlimited(defense=each.name, figure=figure, text=f"{figure} {rate_text(rate)}")
            for each in analysis.defenses
            for figure, rate in (
                ("ASR", each.card.attack_success_rate),
                ("FPR", each.card.false_positive_rate),
                ("answered", each.card.answered),
            )
        )
        return figures_junit(cases, run=run, created_utc=created, head=head)
    return gate_junit(result, run=run, created_utc=created, head=head)


def run_comparison(reader: RecordReader, analysis: RunAnalysis) -> str:
    """Write the defenses of a run against each other as `comparison.json`."""
    from guardmark.analysis.compare.matching import OpenRun  # on use: most runs have one defense
    from guardmark.analysis.compare.runs_compared import Wanted, compare_scopes

    opened = [OpenRun(label=analysis.manifest.name, reader=reader, frame=analysis.frame)]
    known = {DEFENSE: analysis.comparison, SYSTEM: analysis.systems}
    wanted = Wanted(listed=_LISTED, latency=False, known=known)
    compared = compare_scopes(opened, analysis.settings, wanted)
    return comparison_json(compared, texts=False, timing=False)
