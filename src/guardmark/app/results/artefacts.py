"""The reports of a run, all of them made from its records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.compare.runs_compared import OpenRun, Wanted, compare_matched, match_runs
from guardmark.analysis.defense.bypasses import find_worst
from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.gate.checks import check_complete, check_limits
from guardmark.analysis.gate.limits import GateResult
from guardmark.analysis.run import AnalysisSettings, analyse_run
from guardmark.app.results.gate_policy import gate_policy
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.cells import rate_text
from guardmark.reports.exports.junit import Unlimited, figures_junit, gate_junit
from guardmark.reports.exports.sarif import MOST_RESULTS, Analysed, Located, sarif_json
from guardmark.reports.render.json.documents import comparison_json
from guardmark.store.export import write_jsonl
from guardmark.store.reader import RecordReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.run import RunAnalysis
    from guardmark.app.settings import Config
    from guardmark.core.manifest import RunManifest
    from guardmark.reports.document.blocks import Document
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
    from guardmark.datasets.checks.mix import mix_weights, read_mix

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
        from guardmark.reports.render.json.documents import summary_json

        folder.write_text(folder.summary_json.name, summary_json(analysis))
    if "md" in formats:
        from guardmark.reports.render.markdown import render_markdown

        folder.write_text(folder.summary_md.name, render_markdown(document, texts=texts))
    if "csv" in formats:
        from guardmark.reports.exports.tables import categories_csv, variants_csv

        folder.write_text(folder.categories_csv.name, categories_csv(analysis))
        folder.write_text(folder.variant_metrics_csv.name, variants_csv(analysis))
    if "html" in formats:
        from guardmark.reports.render.html.page import render_html

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

    if compared:
        folder.write_text(folder.comparison_json.name, run_comparison(reader, analysis))
    if "junit" in formats:
        folder.write_text(folder.junit.name, run_junit(reader, analysis, config))
    if "sarif" in formats:
        folder.write_text(folder.sarif.name, run_sarif(reader, analysis, texts=texts))


_LISTED: Final = 10


def run_junit(reader: RecordReader, analysis: RunAnalysis, config: Config) -> str:
    """Write a run as JUnit XML: its limits, or its figures when none are set."""
    manifest = analysis.manifest
    result = check_own_limits(reader, analysis, config)
    if result is None:
        return figures_junit(
            tuple(_figures(analysis)),
            run=manifest.name,
            created_utc=manifest.created_utc,
            head=analysis.status.head,
        )
    return gate_junit(
        result,
        run=manifest.name,
        created_utc=manifest.created_utc,
        head=analysis.status.head,
    )


def check_own_limits(
    reader: RecordReader, analysis: RunAnalysis, config: Config
) -> GateResult | None:
    """Check the limits that the configuration of a run sets."""
    if config.gate is None:
        return None
    policy = replace(gate_policy(config.gate), regression_margin=None)
    if policy.is_empty:
        return None
    settings = analysis.settings
    checks = check_complete(analysis.status)
    checks += check_limits(read_frame(reader, settings), policy, settings)
    return GateResult(checks=checks, confidence=settings.confidence)


def run_comparison(reader: RecordReader, analysis: RunAnalysis) -> str:
    """Write the defenses of a run against each other as `comparison.json`."""
    opened = [OpenRun(label=analysis.manifest.name, reader=reader)]
    matched = match_runs(opened, analysis.settings)
    compared = compare_matched(
        matched, Wanted(listed=_LISTED, latency=False), reader=reader, settings=analysis.settings
    )
    return comparison_json(compared, texts=False, timing=False)


def run_sarif(reader: RecordReader, analysis: RunAnalysis, *, texts: bool) -> str:
    """Write what the defenses of a run got wrong as SARIF."""
    manifest = analysis.manifest
    settings = replace(analysis.settings, listed_samples=MOST_RESULTS)
    worst = find_worst(reader, read_frame(reader, settings), settings)
    found = tuple(
        Located(listed=each, place=_place(manifest, reader.position_of(each.sample.id) or 0))
        for each in worst.listed
    )
    baselines = frozenset(each.name for each in analysis.defenses if each.is_baseline)
    analysed = Analysed(
        run=manifest.name,
        version=manifest.guardmark_version,
        # A run of baselines alone still has something to tell.
        baselines=baselines if len(baselines) < len(analysis.defenses) else frozenset(),
        texts=texts,
    )
    return sarif_json(found, analysed)


def _figures(analysis: RunAnalysis) -> Iterator[Unlimited]:
    for defense in analysis.defenses:
        for figure, estimate in (
            ("ASR", defense.card.attack_success_rate),
            ("FPR", defense.card.false_positive_rate),
            ("answered", defense.card.answered),
        ):
            text = f"{figure} {rate_text(estimate)}"
            yield Unlimited(defense=defense.name, figure=figure, text=text)


def _place(manifest: RunManifest, position: int) -> str:
    """Return the file a sample was read from, or its data set when that has several files."""
    end = 0
    for data in manifest.data:
        end += data.attacks + data.benign
        if position < end:
            return next(iter(data.files)) if len(data.files) == 1 else data.name
    return manifest.name
