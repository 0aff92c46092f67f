"""The verb `export`: the records and charts of a run in forms that other tools read."""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, cast

from guardmark.analysis.run import analyse_run
from guardmark.app.results.opened_run import analysis_settings, open_run
from guardmark.app.results.secret_scan import require_no_secret
from guardmark.core.errors import UnknownName
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import Histogram, IntervalChart, LineChart
from guardmark.reports.figures.files import figure_svg
from guardmark.reports.render.html.layout import series_of
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guardmark.store.reader import RecordReader


_FORMATS = {
    "csv": ("records.csv", "guardmark.exporters.tables:write_csv"),
    "jsonl": ("results.jsonl", "guardmark.store.export:write_jsonl"),
    "minorbench": ("minorbench", "guardmark.exporters.minorbench.summary:write_minorbench"),
    "inspect": ("inspect", "guardmark.exporters.inspect_log:write_inspect"),
    "parquet": ("records.parquet", "guardmark.exporters.tables:write_parquet"),
    "svg": ("figures", "guardmark.app.results.exporting:write_svg"),
}
"""Format to its usual name below the run's folder, and its writer, which returns a count."""

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
    write = cast("Callable[[RecordReader, Path], int]", resolve_name(place))
    with open_run(run) as opened:
        path = out or opened.folder.file(name)
        exported = Exported(path=path, records=write(opened.reader, path))
        require_no_secret([path])
        return exported


def write_svg(reader: RecordReader, path: Path) -> int:
    """Write every chart of the report as an SVG file."""
    document = build_document(analyse_run(reader, analysis_settings(reader)))
    series, folder = series_of(document), RunDir(path=path)
    for block in (block for section in document.sections for block in section.blocks):
        if isinstance(block, IntervalChart | LineChart | Histogram):
            folder.write_text(f"{block.id}.svg", figure_svg(block, series))
    return reader.status().stored
