"""The verb `export`: the records and charts of a run in forms that other tools read."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from guardmark.analysis.run import analyse_run
from guardmark.app.results.artefacts import analysis_settings
from guardmark.app.results.reporting import find_run, run_config
from guardmark.core.errors import UnknownName
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import Histogram, IntervalChart, LineChart
from guardmark.reports.figures.files import figure_svg
from guardmark.reports.render.html.layout import series_of
from guardmark.store.reader import RecordReader
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from guardmark.reports.document.blocks import Document
    from guardmark.reports.figures.files import Figure


_FORMATS = {
    "csv": ("records.csv", "guardmark.store.export:write_csv"),
    "jsonl": ("results.jsonl", "guardmark.store.export:write_jsonl"),
    "minorbench": ("minorbench", "guardmark.reports.exports.minorbench.summary:write_minorbench"),
    "inspect": ("inspect", "guardmark.reports.exports.inspect_log:write_inspect"),
    "parquet": ("records.parquet", "guardmark.store.export:write_parquet"),
    "svg": ("figures", "guardmark.app.results.exporting:write_svg"),
}
"""Format to the usual name below the run's folder, and its writer: a function of an open
reader and a path (a file, or a folder where the format has several files), which returns how
many records it wrote. Writers are imported on use."""

FORMATS = tuple(_FORMATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written."""

    path: Path
    records: int


def export(run: Path, form: str, *, out: Path | None = None) -> Exported:
    """Write the records of a run in another form."""
    if form not in _FORMATS:
        raise UnknownName("export format", form, _FORMATS)
    name, place = _FORMATS[form]
    folder = find_run(run)
    path = out or folder.file(name)
    module, _, attribute = place.partition(":")
    write = cast("Callable[[RecordReader, Path], int]", getattr(import_module(module), attribute))
    with RecordReader(folder.records) as reader:
        return Exported(path=path, records=write(reader, path))


def write_svg(reader: RecordReader, path: Path) -> int:
    """Write every chart of the report as an SVG file."""
    document = _document(reader)
    series, folder = series_of(document), RunDir(path=path)
    for figure in _figures(document):
        folder.write_text(f"{figure.id}.svg", figure_svg(figure, series))
    return reader.status().stored


def _document(reader: RecordReader) -> Document:
    settings = analysis_settings(run_config(reader.manifest()), reader)
    return build_document(analyse_run(reader, settings))


def _figures(document: Document) -> Iterator[Figure]:
    for section in document.sections:
        for block in section.blocks:
            if isinstance(block, IntervalChart | LineChart | Histogram):
                yield block
