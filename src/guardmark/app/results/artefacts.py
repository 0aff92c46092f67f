"""The files made from the records of a run: its reports, and exports for other tools."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from guardmark.analysis.pipeline.frame import DEFENSE, SYSTEM
from guardmark.analysis.run import analyse_run
from guardmark.app.results.highlights import read_highlights, read_retries
from guardmark.app.results.opened_run import analysis_settings, open_run, run_config
from guardmark.app.secret_scan import require_no_secret
from guardmark.app.settings import REPORTS
from guardmark.core.errors import ConfigError, StoreError, UnknownName
from guardmark.engine.probing import read_endpoints
from guardmark.interchange.records.writing import (
    categories_csv,
    variants_csv,
    write_csv,
    write_lines,
    write_parquet,
)
from guardmark.reports.chapters.run_document import build_document, digest
from guardmark.reports.document.blocks import Histogram, IntervalChart, LineChart
from guardmark.reports.document.cells import rate_text
from guardmark.reports.render.json.documents import comparison_json, gate_json, summary_json
from guardmark.store.reader import RecordReader
from guardmark.store.run_dir import RunDir
from guardmark.store.seals import note_seals
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from guardmark.analysis.gate import GateResult
    from guardmark.analysis.run import RunAnalysis
    from guardmark.app.settings import Config
    from guardmark.reports.document.blocks import Document

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


def _write_minorbench(reader: RecordReader, path: Path, *, layer: str = "") -> int:
    from guardmark.interchange.minorbench.summary import write_minorbench

    return write_minorbench(reader, path, layer=layer)


def _write_inspect(reader: RecordReader, path: Path, *, layer: str = "") -> int:
    from guardmark.interchange.inspect_log.writing import write_inspect

    return write_inspect(reader, path, layer=layer)


def _write_otel(reader: RecordReader, path: Path) -> int:
    from guardmark.interchange.otel.writing import write_otel

    return write_otel(reader, path)


def _write_promptfoo(reader: RecordReader, path: Path) -> int:
    from guardmark.interchange.promptfoo import write_promptfoo

    return write_promptfoo(reader, path)


def _write_mlflow(reader: RecordReader, path: Path) -> int:
    from guardmark.app.results.mlflow_export import write_mlflow  # needs an extra

    return write_mlflow(reader, path)


def _write_transcripts(reader: RecordReader, path: Path) -> int:
    from guardmark.app.results.transcripts import write_transcripts  # loads the attacks

    return write_transcripts(reader, path)


def _write_dataset(reader: RecordReader, path: Path) -> int:
    from guardmark.app.results.transcripts import write_regression_data  # loads the attacks

    return write_regression_data(reader, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written."""

    path: Path
    records: int


def export(run: Path, form: str, *, out: Path | None = None, layer: str = "") -> Exported:
    """Write the records of a run in another form, with the verdicts of a judging of choice."""
    if form not in _WRITERS:
        if form in set(REPORTS.values()):
            raise ConfigError(
                f"{form} is a report, not an export.\nNext: guardmark report RUN -f {form}"
            )
        raise UnknownName("export format", form, _WRITERS)
    write = _WRITERS[form]
    with open_run(run) as opened:
        if not opened.reader.status().stored:
            raise StoreError(
                f"The run {opened.folder.path} holds no record, so there is nothing to export.\n"
                "Next: let it run, or go on with it: guardmark run CONFIG -o RUN."
            )
        if layer and form not in {"inspect", "minorbench"}:
            raise ConfigError(f"{form} contains every judging: leave out --layer.")
        if layer:
            from guardmark.app.judging_choice import require_judging

            require_judging(opened.reader, layer)
        path = out or opened.folder.file(_USUAL_NAMES[form])
        chosen = {"layer": layer} if layer else {}
        exported = Exported(path=path, records=write(opened.reader, path, **chosen))
        require_no_secret([path])
    if path.absolute().is_relative_to(opened.folder.path.absolute()):
        note_seals(opened.folder.path)
    return exported


def _write_figures(reader: RecordReader, path: Path, *, form: str) -> int:
    from guardmark.reports.figures.files import figure_svg, pdf_of  # on use: few runs write them
    from guardmark.reports.render.html.layout import series_of

    document = _document(reader)
    series = series_of(document)
    for block in document.blocks:
        if isinstance(block, IntervalChart | LineChart | Histogram):
            drawn = figure_svg(block, series)
            with whole_file(path / f"{block.id}.{form}") as file:
                file.write(drawn.encode() if form == "svg" else pdf_of(drawn))
    return reader.status().stored


write_svg = partial(_write_figures, form="svg")
write_pdf = partial(_write_figures, form="pdf")


def write_latex(reader: RecordReader, path: Path) -> int:
    """Write each table of the report as a file; into one file `.tex`, those that are not folded."""
    from guardmark.reports.render.latex import latex_files  # on use: few runs write it

    is_one = path.suffix == ".tex"
    files = latex_files(_document(reader), path.name if is_one else "")
    for name, text in files.items():
        RunDir(path=path.parent if is_one else path).write_text(name, text)
    return reader.status().stored


def _document(reader: RecordReader) -> Document:
    analysis = analyse_run(reader, analysis_settings(reader))
    return build_document(
        analysis, read_highlights(reader, analysis, run_config(reader.manifest()))
    )


_USUAL_NAMES: Final = {
    "csv": "records.csv",
    "jsonl": "results.jsonl",
    "minorbench": "minorbench",
    "inspect": "inspect",
    "mlflow": "mlflow",
    "otel": "spans.otlp.jsonl",
    "parquet": "records.parquet",
    "promptfoo": "promptfoo.json",
    "dataset": "bypasses.jsonl",
    "transcripts": "transcripts.jsonl",
    "latex": "latex",
    "pdf": "figures",
    "svg": "figures",
}
"""The file or folder below the run's folder that a format is written to."""

_WRITERS: Final[Mapping[str, Callable[..., int]]] = {
    "csv": write_csv,
    "jsonl": write_lines,
    "minorbench": _write_minorbench,
    "inspect": _write_inspect,
    "mlflow": _write_mlflow,
    "otel": _write_otel,
    "parquet": write_parquet,
    "promptfoo": _write_promptfoo,
    "dataset": _write_dataset,
    "transcripts": _write_transcripts,
    "latex": write_latex,
    "pdf": write_pdf,
    "svg": write_svg,
}
"""What writes a format, and returns how many records it wrote."""
