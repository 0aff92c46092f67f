"""Where a run takes place, and what becomes of the folder when the run cannot begin."""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from guardmark.app.data.reading import dataset_specs
from guardmark.app.run.folders import (
    difference,
    foreign_run,
    new_run,
    restore,
    runs_to_continue,
    set_aside,
    stored_manifest,
)
from guardmark.core.errors import StoreError
from guardmark.datasets.reading import file_sha256
from guardmark.store.run_dir import RunDir, holder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from guardmark.app.parts.loading import LoadedConfig

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
