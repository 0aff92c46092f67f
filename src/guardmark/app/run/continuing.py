"""Whether a command continues a run, after a kill or an error, and which one."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from guardmark.app.run.run_folder import RUNS, SHOWN_OF_HASH, RunLocation, family_of, new_run
from guardmark.app.settings import REPORTS
from guardmark.core.errors import StoreError
from guardmark.datasets.loading import file_hashes
from guardmark.datasets.specs import dataset_specs
from guardmark.store.connect import is_blank
from guardmark.store.reader import RecordReader, RunState
from guardmark.store.run_dir import RunDir, is_held

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.core.manifest import RunManifest

SPENT_NOTE: Final = (
    "Note: the command before was killed; what it had spent counts in the limits of this one"
)


def unanswered_note(count: int) -> str:
    """Say what became of the calls that an earlier command left unanswered."""
    calls = "1 call was" if count == 1 else f"{count:,} calls were"
    return (
        f"Note: {calls} under way when this was stopped; without an answer in the records, but "
        "possibly billed. What is still needed is asked again"
    )


_NOT_ALWAYS = {"comparison.json", "gate.json", "junit.xml", "results.sarif"}
"""Reports without which a run may be finished."""


class Start(StrEnum):
    """How a command takes up a run."""

    CONTINUE = "continue"
    FRESH = "fresh"
    RETRY = "retry"


def find_place(
    loaded: LoadedConfig, *, out: Path | None, start: Start, config_hash: str, now: datetime
) -> RunLocation:
    """Find the unfinished run that a command continues, or the folder of a new one."""
    name, is_retry, shard = loaded.config.name, start is Start.RETRY, loaded.config.run.shard
    new = (
        new_run(RUNS, name, config_hash, now=now, shard=shard) if out is None else RunDir(path=out)
    )
    if start is Start.FRESH:
        return RunLocation(folder=new, is_fresh=True)
    folders = (
        runs_to_continue(RUNS, name, config_hash, also_complete=is_retry) if out is None else [new]
    )
    files = None
    for folder in folders:
        manifest = stored_manifest(folder)
        if manifest is None:
            if out is None and not is_retry and not is_held(folder.path):
                return RunLocation(folder=folder)  # killed while its samples were read
            continue
        files = files or data_hashes(loaded)
        strange = difference(manifest, config_hash=config_hash, files=files, shard=shard)
        if not strange:
            return RunLocation(folder=folder, has_samples=True)
        if out is not None:
            raise StoreError(
                f"{folder.path} holds a run {strange}; it was left as it is.\n"
                "Next: name another folder with -o, or set that run aside with --fresh."
            )
    if is_retry:
        raise StoreError(
            "There is no run of this configuration and data whose errors could be asked about "
            "again.\nNext: leave out --failed, or name the folder of the run with -o."
        )
    return RunLocation(folder=new)


def data_hashes(loaded: LoadedConfig) -> dict[str, str]:
    """Return the hash of each file of data that a configuration names."""
    return {
        name: digest
        for entry in loaded.config.data
        for spec in dataset_specs(entry, loaded.folder)
        for name, digest in file_hashes(spec).items()
    }


def runs_to_continue(
    base: Path, name: str, config_hash: str, *, also_complete: bool = False
) -> Iterator[RunDir]:
    """Yield earlier runs that the same command would continue, newest first."""
    family = family_of(base, name)
    for path in sorted(family.glob(f"*-{config_hash[:SHOWN_OF_HASH]}*"), reverse=True):
        folder = RunDir(path=path)
        if folder.records.exists() and (also_complete or _is_unfinished(folder)):
            yield folder


def stored_manifest(folder: RunDir) -> RunManifest | None:
    """Return what a folder's run was, if it got as far as storing its samples."""
    is_there = folder.checked().records.exists()
    if not is_there or is_blank(folder.records):
        if folder.summary_json.exists() or folder.results.exists():
            raise StoreError(
                f"{folder.records} is {'empty' if is_there else 'missing'}, but reports of a "
                "finished run lie beside it.\n"
                "Next: restore it from a copy, name another folder with -o, or set what is there"
                " aside with --fresh."
            )
        return None
    with RecordReader(folder.records) as reader:
        if reader.has_samples():
            return reader.manifest()
        return None


def difference(
    manifest: RunManifest, *, config_hash: str, files: Mapping[str, str], shard: str | None = None
) -> str:
    """Say what makes a stored run another one than the run that is asked for."""
    if manifest.config_sha256 != config_hash:
        return "of another configuration, or of other options (--limit, --only)"
    run = manifest.settings.get("run")
    if isinstance(run, dict) and run.get("shard") != shard:
        return "of another shard"
    before = {file: h for data in manifest.data for file, h in data.files.items()}
    changed = sorted(file for file in {*before, *files} if before.get(file) != files.get(file))
    if changed:
        return f"over other data: {changed[0]} was changed since"
    return ""


def _is_unfinished(folder: RunDir) -> bool:
    try:
        with RecordReader(folder.records) as reader:
            if reader.status().state is not RunState.COMPLETE:
                return True
            # Killed while it wrote its reports: asking every service again would be a pity.
            return bool(missing_reports(folder, reader.manifest()))
    except StoreError:
        return False  # a damaged run is left alone; a new one starts beside it


def missing_reports(folder: RunDir, manifest: RunManifest) -> list[str]:
    """Name the reports that a configuration asks for and every finished run has, and are gone."""
    wanted = manifest.settings.get("report")
    return [
        name
        for name, form in REPORTS.items()
        if isinstance(wanted, list)
        and form in wanted
        and name not in _NOT_ALWAYS
        and not folder.file(name).exists()
    ]
