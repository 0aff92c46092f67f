"""The verb `stability`: small slices of a finished run beside the whole of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.pipeline.small_slices import (
    SliceRequest,
    SliceStability,
    measure_small_slices,
)
from guardmark.app.results.artefacts import analysis_settings
from guardmark.app.results.reporting import find_run, run_config
from guardmark.reports.small_slices import stability_json, stability_markdown
from guardmark.store.records import RecordReader

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.store.run_dir import RunDir


def slice_run(run: Path, request: SliceRequest) -> tuple[RunDir, SliceStability]:
    """Draw small slices of a run and write what they would have said; nothing is called."""
    folder = find_run(run)
    found = read_slices(folder.records, request)
    folder.write_text(folder.slice_stability.name, stability_json(found))
    folder.write_text(folder.slice_stability_md.name, stability_markdown(found))
    return folder, found


def read_slices(records: Path, request: SliceRequest) -> SliceStability:
    """Draw small slices from the records of a run."""
    with RecordReader(records) as reader:
        settings = analysis_settings(run_config(reader.manifest()), reader)
        return measure_small_slices(reader, settings, request)
