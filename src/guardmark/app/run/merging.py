"""The verb `merge`: shards of a run, or runs of other defenses, as one sealed run."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from guardmark.app.results.opened_run import find_run, label_runs, run_config
from guardmark.app.results.reporting import finish
from guardmark.app.run.run_folder import logbook, utc_text, write_description
from guardmark.core.errors import ConfigError, StorageError
from guardmark.engine.merging import MergeSource, describe_merged, describe_source, merge_records
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter
from guardmark.store.run_dir import RunDir, errors_of_files, is_held

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from guardmark.app.results.reporting import RunOutput
    from guardmark.app.settings import Config


def merge_runs(
    paths: Sequence[Path], out: Path, *, now: datetime, allow_missing: bool = False
) -> RunOutput:
    """Merge finished runs into a new folder, which takes its name when it is complete."""
    folders = [find_run(path) for path in paths]
    if len({folder.path.resolve() for folder in folders}) < len(folders):
        raise ConfigError("A run is named twice; each is merged once.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StorageError(f"{out} already exists.\nNext: name another folder with -o.")
    beside = RunDir(path=out.absolute().parent / f".{out.name}.merging")
    if beside.path.exists() and not is_held(beside.path):
        shutil.rmtree(beside.path)  # of a command that was killed
    with beside.lock(started=utc_text(now)):
        try:
            config = _write(folders, beside, now=now, allow_missing=allow_missing)
            output = finish(beside, config, formats=config.report)
        except BaseException:
            shutil.rmtree(beside.path, ignore_errors=True)
            raise
    with errors_of_files(out):
        beside.path.rename(out)
    moved = tuple((label, out / path.name) for label, path in output.files)
    notes = tuple(each.replace(str(beside.path), str(out)) for each in output.complaints)
    return replace(output, files=moved, complaints=notes)


def _write(
    folders: Sequence[RunDir], target: RunDir, *, now: datetime, allow_missing: bool
) -> Config:
    with ExitStack() as stack:
        sources = []
        for label, folder in zip(label_runs(folders), folders, strict=True):
            reader = stack.enter_context(RecordReader(folder.records))
            run_config(manifest := reader.manifest())
            sources.append(MergeSource(label=label, reader=reader, manifest=manifest))
        manifest = describe_merged(sources, allow_missing=allow_missing)
        config = run_config(manifest)
        note = stack.enter_context(logbook(target, now))
        with RecordWriter(target.records) as writer:
            merge_records(sources, writer, manifest)
        merged = [
            describe_source(source, folder.environment)
            for source, folder in zip(sources, folders, strict=True)
        ]
        write_description(target, config, manifest.data, merged=merged)
        note(f"merged from {len(merged)} runs: {', '.join(each['run'] for each in merged)}")
    return config
