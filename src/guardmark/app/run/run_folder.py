"""Where a run takes place, and what becomes of the folder when the run cannot begin."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from guardmark.core.errors import StoreError
from guardmark.datasets.loading import file_sha256
from guardmark.datasets.settings import dataset_specs
from guardmark.store.connect import is_blank
from guardmark.store.records import RecordReader, RunState
from guardmark.store.run_dir import RunDir, holder_of

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

    A run is continued if its data files are unchanged. Comparing their hashes is enough:
    which rows are taken and how they are read is part of the configuration's hash. So a run
    over a million rows goes on at once.
    """
    name, is_retry = loaded.config.name, start is Start.RETRY
    if start is Start.FRESH:
        return RunLocation(folder=_folder(out, name, config_hash, now=now), is_fresh=True)
    folders = (
        [RunDir(path=out)]
        if out is not None
        else runs_to_continue(RUNS, name, config_hash, also_complete=is_retry)
    )
    files = None
    for folder in folders:
        manifest = stored_manifest(folder)
        if manifest is None:
            if out is None and not is_retry and holder_of(folder.path) is None:
                return RunLocation(folder=folder)  # killed while its samples were read
            continue
        files = files or _file_hashes(loaded)
        strange = difference(manifest, config_hash=config_hash, files=files)
        if not strange:
            return RunLocation(folder=folder, has_samples=True)
        if out is not None:
            raise foreign_run(folder, strange)
    if is_retry:
        raise StoreError(
            "There is no run of this configuration and data whose errors could be asked about "
            "again.\nNext: leave out --retry-errors, or name the folder of the run with -o."
        )
    return RunLocation(folder=_folder(out, name, config_hash, now=now))


def _folder(out: Path | None, name: str, config_hash: str, *, now: datetime) -> RunDir:
    return new_run(RUNS, name, config_hash, now=now) if out is None else RunDir(path=out)


def _file_hashes(loaded: LoadedConfig) -> dict[str, str]:
    return {
        spec.shown_as: file_sha256(spec.path)
        for entry in loaded.config.data
        for spec in dataset_specs(entry, loaded.folder)
    }


@contextmanager
def begun(place: RunLocation, *, now: datetime, started: str) -> Iterator[Callable[[], None]]:
    """Hold the folder of a run; take a beginning back that an exception ends too early."""
    folder, is_kept = place.folder, place.has_samples
    missing = [path for path in (folder.path, *folder.path.parents) if not path.exists()]

    def keep() -> None:
        nonlocal is_kept
        is_kept = True

    with folder.lock(started=started):
        aside = set_aside(folder, now=now) if place.is_fresh else {}
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
        for suffix in ("", "-wal", "-shm"):
            path = folder.records.with_name(folder.records.name + suffix)
            path.unlink(missing_ok=True)
        restore(aside)


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
        if not reader.has_samples():
            return None
        return reader.manifest()


def difference(manifest: RunManifest, *, config_hash: str, files: Mapping[str, str]) -> str:
    """Say what makes a stored run another one than the run that is asked for."""
    if manifest.config_sha256 != config_hash:
        return "of another configuration, or of other options (--limit, --only)"
    before = {file: h for data in manifest.data for file, h in data.files.items()}
    changed = sorted(file for file in {*before, *files} if before.get(file) != files.get(file))
    return f"over other data: {changed[0]} was changed since" if changed else ""


def foreign_run(folder: RunDir, strange: str) -> StoreError:
    """Return the error of a folder that holds another run than the one asked for."""
    return StoreError(
        f"{folder.path} holds a run {strange}; it was left as it is.\n"
        "Next: name another folder with -o, or set that run aside with --fresh."
    )


def set_aside(folder: RunDir, *, now: datetime) -> dict[Path, Path]:
    """Rename records and seals of an earlier run, so that a fresh one starts in its folder."""
    moved = {}
    for suffix in ("", "-wal", "-shm"):
        path = folder.records.with_name(folder.records.name + suffix)
        if path.exists():
            name = f"records.before-{now.strftime(_STAMP)}.sqlite{suffix}"
            moved[path] = path.rename(path.with_name(name))
    if folder.seals.exists():
        name = f"seals.before-{now.strftime(_STAMP)}.jsonl"
        moved[folder.seals] = folder.seals.rename(folder.seals.with_name(name))
    return moved


def restore(moved: Mapping[Path, Path]) -> None:
    """Give the records that were set aside their names again."""
    for path, aside in moved.items():
        aside.rename(path)


def _family(base: Path, name: str) -> Path:
    return base / re.sub(r"[^A-Za-z0-9_.@-]", "_", name)


def _is_unfinished(folder: RunDir) -> bool:
    try:
        with RecordReader(folder.records) as reader:
            if reader.status().state is not RunState.COMPLETE:
                return True
            # Killed while it wrote its reports: asking every service again would be a pity.
            wanted = reader.manifest().settings.get("report")
    except StoreError:
        return False  # a damaged run is left alone; a new one starts beside it
    reports = {
        "json": folder.summary_json,
        "md": folder.summary_md,
        "csv": folder.variant_metrics_csv,
        "html": folder.report_html,
    }
    return isinstance(wanted, list) and any(
        name in wanted and not report.exists() for name, report in reports.items()
    )
