"""Where a run goes: a new folder, or the unfinished one of the same run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from guardmark.core.errors import StoreError
from guardmark.store.records import RecordReader, RunState
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path


def run_folder(
    base: Path, name: str, config_hash: str, data_hash: str, *, now: datetime, fresh: bool
) -> RunDir:
    """Choose the folder of a run.

    Args:
        base: Folder of all runs (`runs`).
        name: Name of the run.
        config_hash: Hash of its configuration.
        data_hash: Hash of its data.
        now: The present time, UTC.
        fresh: Start anew even if an unfinished run could be continued.

    Returns:
        The newest unfinished run of equal configuration and data, or a new folder; nothing
        is created.
    """
    family = base / re.sub(r"[^A-Za-z0-9_.@-]", "_", name)
    if not fresh:
        for earlier in _newest_first(family, config_hash):
            if _can_continue(earlier, config_hash, data_hash):
                return earlier
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    folder = family / f"{stamp}-{config_hash[:8]}"
    serial = 2
    while folder.exists():
        folder = family / f"{stamp}-{config_hash[:8]}-{serial}"
        serial += 1
    return RunDir(path=folder)


def _newest_first(family: Path, config_hash: str) -> Iterator[RunDir]:
    if family.is_dir():
        for folder in sorted(family.glob(f"*-{config_hash[:8]}*"), reverse=True):
            yield RunDir(path=folder)


def _can_continue(folder: RunDir, config_hash: str, data_hash: str) -> bool:
    if not folder.records.exists():
        return False
    try:
        with RecordReader(folder.records) as reader:
            manifest = reader.manifest()
            unfinished = reader.status().state is not RunState.COMPLETE
    except StoreError:
        return False  # a damaged run is left alone; a new one starts beside it
    same = manifest.config_sha256 == config_hash and manifest.data_sha256 == data_hash
    return unfinished and same
