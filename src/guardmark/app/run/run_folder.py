"""Where a run takes place, and what becomes of the folder when the run cannot begin."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from guardmark.app.run.description import utc_text
from guardmark.app.settings import REPORTS
from guardmark.core.errors import StoreError
from guardmark.datasets.loading import file_sha256
from guardmark.datasets.settings import dataset_specs
from guardmark.store.connect import is_blank
from guardmark.store.reader import RecordReader, RunState
from guardmark.store.run_dir import RunDir, is_held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.core.manifest import RunManifest


RUNS = Path("runs")
"""Folder of all runs when none is named."""


class Start(StrEnum):
    """How a command takes up a run."""

    CONTINUE = "continue"
    FRESH = "fresh"
    RETRY = "retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLocation:
    """Where a run takes place."""

    folder: RunDir
    has_samples: bool = False
    is_fresh: bool = False


def find_place(
    loaded: LoadedConfig, *, out: Path | None, start: Start, config_hash: str, now: datetime
) -> RunLocation:
    """Find the unfinished run that a command continues, or the folder of a new one.

    Hashes of the data files are enough to compare: which rows are taken, and how they are read,
    is part of the configuration's hash.
    """
    name, is_retry = loaded.config.name, start is Start.RETRY
    new = new_run(RUNS, name, config_hash, now=now) if out is None else RunDir(path=out)
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
        files = files or _file_hashes(loaded)
        strange = difference(manifest, config_hash=config_hash, files=files)
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
            "again.\nNext: leave out --retry-errors, or name the folder of the run with -o."
        )
    return RunLocation(folder=new)


def _file_hashes(loaded: LoadedConfig) -> dict[str, str]:
    return {
        spec.shown_as: file_sha256(spec.path)
        for entry in loaded.config.data
        for spec in dataset_specs(entry, loaded.folder)
    }


@contextmanager
def begun(location: RunLocation, *, now: datetime) -> Iterator[Callable[[], None]]:
    """Hold the folder of a run; take a beginning back that an exception ends too early."""
    folder, is_kept = location.folder, location.has_samples
    missing = [path for path in (folder.path, *folder.path.parents) if not path.exists()]

    def keep() -> None:
        nonlocal is_kept
        is_kept = True

    with folder.lock(started=utc_text(now)):
        aside = set_aside(folder, now=now) if location.is_fresh else {}
        is_ours = not folder.records.exists()
        try:
            yield keep
        except BaseException:
            if is_ours and not is_kept:
                _take_back(folder, missing, aside)
            raise


def _take_back(folder: RunDir, missing: list[Path], aside: dict[Path, Path]) -> None:
    with suppress(OSError):  # what cannot be removed hinders no later run
        if folder.path in missing:
            shutil.rmtree(folder.path, ignore_errors=True)
            for path in missing[1:]:
                path.rmdir()
            return
        for path in _record_files(folder):
            path.unlink(missing_ok=True)
        for path, earlier in aside.items():
            earlier.rename(path)


_NOT_ALWAYS = {"comparison.json", "junit.xml", "results.sarif"}
"""Reports without which a run may be finished."""
_STAMP = "%Y%m%dT%H%M%SZ"
_SHOWN_OF_HASH = 8


def new_run(base: Path, name: str, config_hash: str, *, now: datetime) -> RunDir:
    """Name the folder of a new run."""
    stem = f"{now.strftime(_STAMP)}-{config_hash[:_SHOWN_OF_HASH]}"
    folder, serial = _family(base, name) / stem, 2
    while folder.exists():
        folder, serial = folder.with_name(f"{stem}-{serial}"), serial + 1
    return RunDir(path=folder)


def runs_to_continue(
    base: Path, name: str, config_hash: str, *, also_complete: bool = False
) -> Iterator[RunDir]:
    """Yield earlier runs that the same command would continue, newest first."""
    family = _family(base, name)
    for path in sorted(family.glob(f"*-{config_hash[:_SHOWN_OF_HASH]}*"), reverse=True):
        folder = RunDir(path=path)
        if folder.records.exists() and (also_complete or _is_unfinished(folder)):
            yield folder


def stored_manifest(folder: RunDir) -> RunManifest | None:
    """Return what a folder's run was, if it got as far as storing its samples."""
    if not folder.checked().records.exists():
        return None
    if is_blank(folder.records):
        if folder.summary_json.exists() or folder.results.exists():
            raise StoreError(
                f"{folder.records} is empty, but reports of a finished run lie beside it.\n"
                "Next: restore it from a copy, name another folder with -o, or set what is there"
                " aside with --fresh."
            )
        return None
    with RecordReader(folder.records) as reader:
        return reader.manifest() if reader.has_samples() else None


def difference(manifest: RunManifest, *, config_hash: str, files: Mapping[str, str]) -> str:
    """Say what makes a stored run another one than the run that is asked for."""
    if manifest.config_sha256 != config_hash:
        return "of another configuration, or of other options (--limit, --only)"
    before = {file: h for data in manifest.data for file, h in data.files.items()}
    changed = sorted(file for file in {*before, *files} if before.get(file) != files.get(file))
    return f"over other data: {changed[0]} was changed since" if changed else ""


def set_aside(folder: RunDir, *, now: datetime) -> dict[Path, Path]:
    """Rename records and seals of an earlier run, so that a fresh one starts in its folder."""
    return {
        path: path.rename(path.with_name(f"{path.stem}.before-{now.strftime(_STAMP)}{path.suffix}"))
        for path in (*_record_files(folder), folder.seals)
        if path.exists()
    }


def _record_files(folder: RunDir) -> list[Path]:
    """The file of the records, and those that SQLite keeps beside it."""
    records = folder.records
    return [records.with_name(f"{records.name}{suffix}") for suffix in ("", "-wal", "-shm")]


def _family(base: Path, name: str) -> Path:
    return base / re.sub(r"[^A-Za-z0-9_.@-]", "_", name)


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
