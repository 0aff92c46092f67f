"""The verbs `import` and `merge`: a finished run of another tool, or several runs, as one run."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from guardmark.app.parts.loading import resolved
from guardmark.app.results.opened_run import find_run, label_runs, run_config
from guardmark.app.results.reporting import finish
from guardmark.app.run.merging import MergeSource, describe_merged, describe_source, merge_records
from guardmark.app.run.run_folder import (
    RUNS,
    describe_run,
    logbook,
    new_run,
    utc_text,
    write_description,
)
from guardmark.app.settings import Config
from guardmark.core.errors import ConfigError, DatasetError, StorageError
from guardmark.core.manifest import PartManifest
from guardmark.core.place import NO_GUARD
from guardmark.core.values import dataclass
from guardmark.interchange.imported import KEPT, PART_TYPE, Statements
from guardmark.interchange.importers import describe_data, read_run, store_rows
from guardmark.store.file_errors import errors_of_files
from guardmark.store.reader import RecordReader, RunState
from guardmark.store.records import RecordWriter
from guardmark.store.run_dir import RunDir, is_held

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from guardmark.app.results.reporting import RunOutput
    from guardmark.core.manifest import RunManifest
    from guardmark.interchange.imported import ImportedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A run that was taken over.

    Attributes:
        notes: What was taken for what, and what was left out.
    """

    folder: RunDir
    config: Config
    samples: int
    answers: int
    notes: tuple[str, ...]


def import_run(
    tool: str,
    path: Path,
    *,
    now: datetime,
    out: Path | None = None,
    statements: Statements | None = None,
) -> Imported:
    """Read a finished run of another tool into records; nothing is called."""
    imported = read_run(tool, path, statements or Statements())
    decisions, responses = _count_answers(imported)
    if not decisions and not responses:
        raise DatasetError(f"{path} holds neither a decision nor an answer: nothing to score.")
    config = Config.model_validate(imported.settings(path, no_guard=NO_GUARD))
    settings = json.dumps(resolved(config), sort_keys=True)
    files = json.dumps(dict(imported.files), sort_keys=True)
    digest = sha256(f"{settings}{files}".encode()).hexdigest()
    if out is not None:
        folder = RunDir(path=out)
    else:
        folder = new_run(RUNS, config.name, digest, now=now)
    if folder.records.exists():
        raise StorageError(
            f"{folder.path} already holds a run.\nNext: name another folder with -o."
        )
    with folder.lock(started=utc_text(now)), RecordWriter(folder.records) as writer:
        home = path
        if path.is_file():
            home = path.parent
        writer.put_manifest(_manifest(imported, config, digest=digest, now=now, home=home))
        writer.load_samples([row.sample for row in imported.rows])
        guards, rows = imported.guards(NO_GUARD), []
        for row in imported.rows:
            rows.append(replace(row, guard=guards.get(row.guard or imported.guard, "")))
        store_rows(writer, rows, unguarded=NO_GUARD, has_model=bool(imported.model))
        if imported.kept:
            writer.add_layer(KEPT, imported.kept)
        writer.finish(RunState.COMPLETE)
    return Imported(
        folder=folder,
        config=config,
        samples=len(imported.rows),
        answers=responses,
        notes=(*imported.readings, *imported.warnings),
    )


def _count_answers(imported: ImportedRun) -> tuple[int, int]:
    """Return how many decisions and how many responses of a model there are."""
    decisions, responses = 0, 0
    for row in imported.rows:
        for answer in row.answers:
            if answer.decision is not None:
                decisions += 1
            if answer.response is not None:
                responses += 1
    return decisions, responses


def _manifest(
    imported: ImportedRun, config: Config, *, digest: str, now: datetime, home: Path
) -> RunManifest:
    """Describe an imported run: its parts are known by name alone."""
    data = describe_data(imported, name=config.name, home=home)
    parts = []
    for stated, name in imported.guards(NO_GUARD).items():
        guard = PartManifest(
            name=name, kind="defense", type=PART_TYPE, view="text", settings={"model": stated}
        )
        parts.append(guard)
    for kind, name in (("model", imported.model), ("judge", imported.judge)):
        if name:
            parts.append(PartManifest(name=name, kind=kind, type=PART_TYPE))
    manifest = describe_run(config, config_sha256=digest, now=now, parts=parts, data=[data])
    evaluator = f"imported from {imported.tool} {imported.created_utc}".strip()
    return replace(manifest, warmup=0, evaluator=evaluator)


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
    files = tuple((label, out / path.name) for label, path in output.files)
    complaints = tuple(text.replace(str(beside.path), str(out)) for text in output.complaints)
    return replace(output, files=files, complaints=complaints)


def _write(
    folders: Sequence[RunDir], target: RunDir, *, now: datetime, allow_missing: bool
) -> Config:
    """Write the records of runs and their description into a folder."""
    with ExitStack() as stack:
        sources = []
        for label, folder in zip(label_runs(folders), folders, strict=True):
            reader = stack.enter_context(RecordReader(folder.records))
            manifest = reader.manifest()
            run_config(manifest)  # it raises where this guardmark cannot read the configuration
            sources.append(MergeSource(label=label, reader=reader, manifest=manifest))
        manifest = describe_merged(sources, allow_missing=allow_missing)
        config = run_config(manifest)
        note = stack.enter_context(logbook(target, now))
        with RecordWriter(target.records) as writer:
            merge_records(sources, writer, manifest)
        merged = []
        for source, folder in zip(sources, folders, strict=True):
            merged.append(describe_source(source, folder.environment))
        write_description(target, config, manifest.data, merged=merged)
        labels = ", ".join(source.label for source in sources)
        note(f"merged from {len(sources)} runs: {labels}")
    return config
