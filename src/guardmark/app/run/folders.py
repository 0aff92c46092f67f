"""Where a run goes: a new folder, or the unfinished one of the same run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from guardmark.core.errors import StoreError
from guardmark.store.connect import is_blank
from guardmark.store.records import RecordReader, RunState
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from guardmark.core.manifest import RunManifest

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
    if not folder.records.exists() or is_blank(folder.records):
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
    """Rename the records of an earlier run, so that a fresh one starts in the same folder."""
    moved = {}
    for suffix in ("", "-wal", "-shm"):
        path = folder.records.with_name(folder.records.name + suffix)
        if path.exists():
            name = f"records.before-{now.strftime(_STAMP)}.sqlite{suffix}"
            moved[path] = path.rename(path.with_name(name))
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
