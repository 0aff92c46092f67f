"""`guardmark export`: the forms in which the records of a run are written for other tools.

A new form gets a writer in `interchange`, a line in each of the two tables, and its name in the
help of `guardmark export`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from guardmark.analysis.run import analyse_run
from guardmark.app.results.highlights import read_highlights
from guardmark.app.results.opened_run import analysis_settings, open_run, run_config
from guardmark.app.secret_scan import require_no_secret
from guardmark.app.settings import REPORTS
from guardmark.core.errors import ConfigError, StoreError, UnknownName
from guardmark.core.values import dataclass
from guardmark.interchange.records.writing import write_csv, write_lines, write_parquet
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import FlowChart, Histogram, IntervalChart, LineChart
from guardmark.store.run_dir import RunDir
from guardmark.store.seals import note_seals
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from guardmark.reports.document.blocks import Document
    from guardmark.store.reader import RecordReader


def _write_minorbench(reader: RecordReader, path: Path, *, layer: str = "") -> int:
    from guardmark.interchange.minorbench.summary import write_minorbench

    return write_minorbench(reader, path, layer=layer)


def _write_inspect(reader: RecordReader, path: Path, *, layer: str = "") -> int:
    from guardmark.interchange.inspect_log.writing import write_inspect

    return write_inspect(reader, path, layer=layer)


def _write_otel(reader: RecordReader, path: Path) -> int:
    from guardmark.interchange.otel import write_otel

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
        chosen = {}
        if layer:
            chosen["layer"] = layer
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
        if isinstance(block, IntervalChart | LineChart | Histogram | FlowChart):
            drawn = figure_svg(block, series)
            content = drawn.encode()
            if form == "pdf":
                content = pdf_of(drawn)
            with whole_file(path / f"{block.id}.{form}") as file:
                file.write(content)
    return reader.status().stored


write_svg = partial(_write_figures, form="svg")
write_pdf = partial(_write_figures, form="pdf")


def write_latex(reader: RecordReader, path: Path) -> int:
    """Write each table of the report as a file; into one file `.tex`, those that are not folded."""
    from guardmark.reports.render.latex import latex_files  # on use: few runs write it

    is_one = path.suffix == ".tex"
    folder, one_file = RunDir(path=path), ""
    if is_one:
        folder, one_file = RunDir(path=path.parent), path.name
    for name, text in latex_files(_document(reader), one_file).items():
        folder.write_text(name, text)
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
