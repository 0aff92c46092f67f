"""The charts of a run's report as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.run import analyse_run
from guardmark.app.artefacts import analysis_settings
from guardmark.app.reporting import run_config
from guardmark.reports.blocks import Histogram, IntervalChart, LineChart
from guardmark.reports.document import build_document
from guardmark.reports.figures import figure_svg
from guardmark.reports.html_layout import series_of
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.store.reader import RecordReader


def write_svg(reader: RecordReader, path: Path) -> int:
    """Write every chart of the report as an SVG file.

    Args:
        reader: An open reader.
        path: Folder to write into; each file lies there whole or not at all.

    Returns:
        Number of records the charts tell of.

    Raises:
        StorageError: If a file cannot be written.
    """
    settings = analysis_settings(run_config(reader.manifest()), reader)
    document = build_document(analyse_run(reader, settings))
    series, folder = series_of(document), RunDir(path=path)
    for section in document.sections:
        for block in section.blocks:
            if isinstance(block, IntervalChart | LineChart | Histogram):
                folder.write_text(f"{block.id}.svg", figure_svg(block, series))
    return reader.status().stored
