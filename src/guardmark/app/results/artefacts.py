"""The reports of a run, all of them made from its records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.run import AnalysisSettings, analyse_run
from guardmark.reports.document import build_document
from guardmark.store.export import write_jsonl
from guardmark.store.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.run import RunAnalysis
    from guardmark.app.settings import Config
    from guardmark.reports.blocks import Document
    from guardmark.store.run_dir import RunDir

FORMATS = ("html", "md", "json", "csv", "junit", "sarif")
"""What `report` can be asked for, in the order it is written."""
_LISTING: Final = frozenset({"html", "md"})


def analysis_settings(
    config: Config,
    reader: RecordReader,
    *,
    thresholds: tuple[tuple[str, float], ...] = (),
) -> AnalysisSettings:
    """Return how the records of a run are to be read."""
    stats = config.stats
    return replace(
        AnalysisSettings.of(reader.manifest()),
        margin=stats.margin,
        prevalences=tuple(stats.prevalence),
        cost_missed_attack=stats.cost_missed_attack,
        cost_false_alarm=stats.cost_false_alarm,
        non_inferiority_margin=stats.non_inferiority_margin,
        replicates=stats.replicates,
        thresholds=thresholds,
        weights=_weights(config, reader),
        legacy_cards=tuple(config.pipeline.legacy_cards) if config.pipeline else (),
    )


def _weights(config: Config, reader: RecordReader) -> tuple[float, ...]:
    """Weigh the samples by the deployment's mix; nothing is read without one."""
    if not config.stats.deployment_mix:
        return ()
    from guardmark.datasets.mix import mix_weights, read_mix

    return mix_weights(list(reader.samples()), read_mix(config.stats.deployment_mix))


def write_reports(
    folder: RunDir,
    config: Config,
    *,
    formats: Sequence[str],
    thresholds: tuple[tuple[str, float], ...] = (),
    texts: bool = True,
) -> tuple[RunAnalysis, Document]:
    """Write the reports of a run from its records."""
    with RecordReader(folder.records) as reader:
        write_jsonl(reader, folder.results)
        settings = analysis_settings(config, reader, thresholds=thresholds)
        if not _LISTING.intersection(formats):
            settings = replace(settings, listed_samples=0)  # nobody would read them
        analysis = analyse_run(reader, settings)
        _write_for_programs(folder, config, formats=formats, run=(reader, analysis), texts=texts)
    document = build_document(analysis)
    if "json" in formats:
        from guardmark.reports.summary import summary_json

        folder.write_text(folder.summary_json.name, summary_json(analysis))
    if "md" in formats:
        from guardmark.reports.markdown import render_markdown

        folder.write_text(folder.summary_md.name, render_markdown(document, texts=texts))
    if "csv" in formats:
        from guardmark.reports.tables import categories_csv, variants_csv

        folder.write_text(folder.categories_csv.name, categories_csv(analysis))
        folder.write_text(folder.variant_metrics_csv.name, variants_csv(analysis))
    if "html" in formats:
        from guardmark.reports.html import render_html

        folder.write_text(folder.report_html.name, render_html(document, texts=texts))
    return analysis, document


def _write_for_programs(
    folder: RunDir,
    config: Config,
    *,
    formats: Sequence[str],
    run: tuple[RecordReader, RunAnalysis],
    texts: bool,
) -> None:
    """Write what other programs read of a run, each only where it is asked for."""
    reader, analysis = run
    compared = "json" in formats and analysis.comparison is not None
    if not compared and not {"junit", "sarif"} & set(formats):
        return
    # Gates, JUnit and SARIF take a tenth of a short run to load.
    from guardmark.app.results.ci_artefacts import run_comparison, run_junit, run_sarif

    if compared:
        folder.write_text(folder.comparison_json.name, run_comparison(reader, analysis))
    if "junit" in formats:
        folder.write_text(folder.junit.name, run_junit(reader, analysis, config))
    if "sarif" in formats:
        folder.write_text(folder.sarif.name, run_sarif(reader, analysis, texts=texts))
