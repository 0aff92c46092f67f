"""Calls under way: a line in a file before each leaves, until its answer is stored.

Who kills a run loses the answers that had not come. What was asked is still there, so the next
command can say how many calls may have been billed without an answer in the records. A line is
one append without waiting for the disk: it survives a kill, not a power cut.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from guardmark.store.file_errors import errors_of_files
from guardmark.store.schema import query

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.store.connect import StoreConnection

UNDER_WAY: Final = ".calls-under-way"
"""Name of the file beside the records; there only while calls are under way, or after a kill."""
POSSIBLY_BILLED: Final = "possibly_billed"
"""Key under which the records keep the count of such calls."""
_MOST_BYTES: Final = 64_000  # after which lines of answered calls are dropped
_MOST_READ: Final = 1 << 24
_MOST_NUMBER: Final = 1 << 63
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)

_FORMS: Final = {4: b"%d %d %d %d\n", 5: b"%d %d %d %d %d\n"}
"""Lines of tries and of records: written before every call, so by one operation."""

CallKey = tuple[int, ...]
"""Numbers of the row its answer becomes: defense, layer, sample and number of a try; or defense,
stage, layer, repeat and sample of a record."""


class CallsUnderWay:
    """Keeps the lines of calls that left and whose answers are not stored."""

    __slots__ = ("_file", "_keys", "_path", "_size")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: set[CallKey] = set()
        self._file: int | None = None
        self._size = 0

    def leave(self, key: CallKey) -> None:
        """Write down that a call is about to leave."""
        if self._file is None:
            with errors_of_files(self._path):
                self._file = os.open(self._path, _FLAGS, 0o666)
        try:
            self._size += os.write(self._file, _line(key))
        except OSError:
            # Entering a context before each call would cost as much as the write.
            with errors_of_files(self._path):
                raise
        self._keys.add(key)

    def arrive(self, key: CallKey) -> None:
        """Note that the answer of a call is there; its row is stored with the next commit."""
        self._keys.discard(key)

    def settle(self) -> None:
        """Drop the lines of answers, all of which are committed now."""
        if self._file is None or (self._keys and self._size < _MOST_BYTES):
            return
        with errors_of_files(self._path):
            if self._keys:
                fresh = self._path.with_suffix(".new")
                fresh.write_bytes(b"".join(map(_line, self._keys)))
                os.close(self._file)
                fresh.replace(self._path)
                self._file = os.open(self._path, _FLAGS)
            else:
                os.ftruncate(self._file, 0)
            self._size = os.fstat(self._file).st_size

    def close(self, *, is_stored: bool = True) -> None:
        """Close the file; it stays where calls that left were dropped, or answers not stored."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            if is_stored and not self._keys:
                self._path.unlink(missing_ok=True)


def count_unanswered(connection: StoreConnection, path: Path) -> int:
    """Count the calls that left, as the file says, and whose answers are not stored."""
    if path.is_symlink() or not path.is_file():
        return 0
    with errors_of_files(path), path.open("rb") as file:
        lines = file.read(_MOST_READ).split(b"\n")[:-1]
    keys = {tuple(map(int, line.split())) for line in lines if line.replace(b" ", b"").isdigit()}
    return sum(_is_unanswered(connection, key) for key in keys)


def _is_unanswered(connection: StoreConnection, key: CallKey) -> bool:
    name = {4: "has_try", 5: "has_record"}.get(len(key))
    if name is None or max(key) >= _MOST_NUMBER:
        return False
    return connection.value(query(name), key) is None


def take_over(connection: StoreConnection, path: Path) -> int:
    """Add the calls that an earlier command left unanswered to the count that the records keep."""
    count = count_unanswered(connection, path)
    if count:
        before = int(connection.meta(POSSIBLY_BILLED) or 0)
        connection.put_meta(POSSIBLY_BILLED, str(before + count))
    with errors_of_files(path):
        for file in (path, path.with_suffix(".new")):
            file.unlink(missing_ok=True)
    return count


def _line(key: CallKey) -> bytes:
    return _FORMS[len(key)] % key
