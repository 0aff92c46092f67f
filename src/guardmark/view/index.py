"""The runs below a folder, read once and again only where something changed."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from guardmark.store.records import RunState
from guardmark.view.entries import RunEntry, read_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

_RECORDS: Final = "records.sqlite"
_WATCHED: Final = (_RECORDS, f"{_RECORDS}-wal", "summary.json", ".lock")
_DEPTH: Final = 3
_KEY: Final = 16

_Stamp = tuple[tuple[int, int], ...]


class RunIndex:
    """Knows the runs below a folder; may be asked from several threads.

    Links are not followed, so nothing outside the folder is ever read.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = Lock()
        self._known: dict[str, tuple[_Stamp, RunEntry]] = {}

    def entries(self) -> tuple[RunEntry, ...]:
        """Return all runs, newest first; what changed is read anew."""
        with self._lock:
            known: dict[str, tuple[_Stamp, RunEntry]] = {}
            for folder in _runs_below(self._root, _DEPTH):
                place = str(folder.relative_to(self._root))
                key = sha256(os.fsencode(place)).hexdigest()[:_KEY]
                known[key] = self._entry(key, folder, place)
            self._known = known
        found = [entry for _, entry in known.values()]
        return tuple(sorted(found, key=lambda each: (each.created_utc, each.place), reverse=True))

    def find(self, key: str) -> RunEntry | None:
        """Return one run, read anew if it changed."""
        with self._lock:
            before = self._known.get(key)
            if before is None:
                return None
            folder, place = before[1].folder, before[1].place
            if not (folder / _RECORDS).is_file():
                del self._known[key]
                return None
            self._known[key] = self._entry(key, folder, place)
            return self._known[key][1]

    def stamp(self, key: str) -> _Stamp:
        """Return what changes when the files of a run do; empty for unknown runs."""
        with self._lock:
            before = self._known.get(key)
        return () if before is None else _stamp(before[1].folder)

    def _entry(self, key: str, folder: Path, place: str) -> tuple[_Stamp, RunEntry]:
        stamp = _stamp(folder)
        before = self._known.get(key)
        # A process that dies leaves no mark on its files, so a running one is always read.
        if before and before[0] == stamp and before[1].state != RunState.RUNNING.value:
            return before
        return stamp, read_entry(key, folder, place)


def _stamp(folder: Path) -> _Stamp:
    found = []
    for name in _WATCHED:
        try:
            stat = os.lstat(folder / name)
        except OSError:
            found.append((0, 0))
        else:
            # Reading alone may make an empty log appear.
            found.append((stat.st_mtime_ns, stat.st_size) if stat.st_size else (0, 0))
    return tuple(found)


def _runs_below(folder: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as found:
            below = sorted(found, key=lambda each: each.name)
    except OSError:
        return
    if any(each.name == _RECORDS and each.is_file(follow_symlinks=False) for each in below):
        yield folder
        return
    if depth:
        for each in below:
            if each.is_dir(follow_symlinks=False) and not each.name.startswith("."):
                yield from _runs_below(Path(each.path), depth - 1)
