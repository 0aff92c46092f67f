"""The charts of a run's report as files."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from guardmark.analysis.run import analyse_run
from guardmark.app.results.artefacts import analysis_settings
from guardmark.app.results.reporting import run_config
from guardmark.core.errors import ConfigError
from guardmark.reports.blocks import Histogram, IntervalChart, LineChart
from guardmark.reports.document import build_document
from guardmark.reports.figures.files import figure_svg
from guardmark.reports.figures.png import figure_png
from guardmark.reports.html_layout import series_of
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from guardmark.reports.blocks import Document
    from guardmark.reports.figures.files import Figure
    from guardmark.store.reader import RecordReader


def write_svg(reader: RecordReader, path: Path) -> int:
    """Write every chart of the report as an SVG file."""
    document = _document(reader)
    series, folder = series_of(document), RunDir(path=path)
    for figure in _figures(document):
        folder.write_text(f"{figure.id}.svg", figure_svg(figure, series))
    return reader.status().stored


def write_png(reader: RecordReader, path: Path) -> int:
    """Write every chart of the report as a PNG file."""
    if find_spec("matplotlib") is None:
        raise ConfigError("PNG needs matplotlib.\nNext: pip install 'guardmark[plots]'.")
    folder = RunDir(path=path)
    for figure in _figures(_document(reader)):
        folder.write_bytes(f"{figure.id}.png", figure_png(figure))
    return reader.status().stored


def _document(reader: RecordReader) -> Document:
    settings = analysis_settings(run_config(reader.manifest()), reader)
    return build_document(analyse_run(reader, settings))


def _figures(document: Document) -> Iterator[Figure]:
    for section in document.sections:
        for block in section.blocks:
            if isinstance(block, IntervalChart | LineChart | Histogram):
                yield block
