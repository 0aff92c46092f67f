"""The verbs `compare` and `stability`: defenses beside each other, slices beside the whole."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from guardmark.analysis.compare.matching import OpenRun
from guardmark.analysis.compare.runs_compared import ScopedComparisons, Wanted, compare_scopes
from guardmark.analysis.pipeline.small_slices import (
    SliceRequest,
    SliceStability,
    measure_small_slices,
)
from guardmark.app.results.opened_run import analysis_settings, find_run
from guardmark.core.errors import ConfigError
from guardmark.reports.chapters.small_slices import stability_document
from guardmark.reports.render.json.documents import stability_json
from guardmark.reports.render.markdown import render_markdown
from guardmark.store.reader import RecordReader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.store.run_dir import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """What was asked for on the command line."""

    wanted: Wanted = field(default_factory=Wanted)
    margin: float | None = None


def compare_runs(paths: Sequence[Path], options: CompareOptions | None = None) -> ScopedComparisons:
    """Compare the defenses of one run, or of several over the same samples, and the systems."""
    chosen = options or CompareOptions()
    folders = [find_run(path) for path in paths]
    if len({folder.path.resolve() for folder in folders}) < len(folders):
        raise ConfigError("A run is named twice; a comparison across runs needs different ones.")
    with ExitStack() as stack:
        readers = [stack.enter_context(RecordReader(folder.records)) for folder in folders]
        settings = analysis_settings(readers[0])
        if chosen.margin is not None:
            settings = replace(settings, non_inferiority_margin=chosen.margin)
        opened = [
            OpenRun(label=label, reader=reader)
            for label, reader in zip(label_runs(folders), readers, strict=True)
        ]
        return compare_scopes(opened, settings, chosen.wanted)


def label_runs(folders: Sequence[RunDir]) -> tuple[str, ...]:
    """Return what to call each run: as little of its path as tells them apart."""
    paths = [folder.path.resolve() for folder in folders]
    labels = [path.name for path in paths]
    for depth in (2, 3):
        taken = Counter(labels)
        labels = [
            label if taken[label] == 1 else "/".join(path.parts[-depth:])
            for label, path in zip(labels, paths, strict=True)
        ]
    taken = Counter(labels)
    return tuple(
        label if taken[label] == 1 else f"{label} #{number}"
        for number, label in enumerate(labels, start=1)
    )


def slice_run(run: Path, request: SliceRequest) -> tuple[RunDir, SliceStability]:
    """Draw small slices of a run and write what they would have said; nothing is called."""
    folder = find_run(run)
    stability = read_slices(folder.records, request)
    write_slices(folder, stability)
    return folder, stability


def write_slices(folder: RunDir, stability: SliceStability) -> None:
    """Write what small slices would have said into a folder."""
    folder.write_text(folder.slice_stability.name, stability_json(stability))
    document = stability_document(stability)
    folder.write_text(folder.slice_stability_md.name, render_markdown(document))


def read_slices(records: Path, request: SliceRequest) -> SliceStability:
    """Draw small slices from the records of a run."""
    with RecordReader(records) as reader:
        return measure_small_slices(reader, analysis_settings(reader), request)
