"""Seals: the hash of each file that was written into a run folder, in a chain of lines.

A seal is appended before its file takes its name. Who is killed in between leaves the file of
an earlier seal, or none, and never one that looks as if somebody had edited it.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import file_digest, sha256
from typing import IO, TYPE_CHECKING, Final

from guardmark.core.errors import StorageError, StoreError
from guardmark.core.manifest import VERSION
from guardmark.store import connect

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

    TryLock = Callable[[IO[bytes]], bool]

SEALS: Final = "seals.jsonl"
_RECORDS: Final = "records.sqlite"
_DEPTH: Final = 3
"""Levels above a file at which its run is looked for; exports have folders of their own."""
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What a file was when it was written: a line of `seals.jsonl`."""

    file: str
    sha256: str
    size: int
    head: str
    version: str
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SealChain:
    """All seals of a run folder, the oldest first, and the lines at which the chain breaks."""

    seals: tuple[Seal, ...] = ()
    broken: tuple[int, ...] = ()

    def by_file(self) -> dict[str, list[Seal]]:
        """Return the seals of each file, the oldest first."""
        found: dict[str, list[Seal]] = {}
        for seal in self.seals:
            found.setdefault(seal.file, []).append(seal)
        return found


def seal_file(path: Path, content: Path, *, try_lock: TryLock) -> None:
    """Seal what is about to be named `path`, where that lies in the folder of a run.

    The same bytes under the same name are sealed once.
    """
    path = path.absolute()
    folder = next((up for up in path.parents[:_DEPTH] if (up / _RECORDS).is_file()), None)
    if folder is None:
        return
    with content.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    name = path.relative_to(folder).as_posix()
    with (folder / SEALS).open("a+b") as seals:
        _wait_for_lock(seals, folder / SEALS, try_lock)
        lines = _whole_lines(seals)
        if _is_last(lines, name, digest):
            return
        last = lines[lines[:-1].rfind(b"\n") + 1 :]
        seal = Seal(
            file=name,
            sha256=digest,
            size=content.stat().st_size,
            head=records_head(folder / _RECORDS),
            version=VERSION,
            before=sha256(last).hexdigest() if last else "",
        )
        seals.write(_line(seal))
        seals.flush()
        os.fsync(seals.fileno())


def read_seals(folder: Path) -> SealChain:
    """Read the seals of a run folder; a line that a crash cut off is none."""
    try:
        content = (folder / SEALS).read_bytes()
    except FileNotFoundError:
        return SealChain()
    except OSError as error:
        raise StorageError(f"{folder / SEALS} cannot be read: {error.strerror}.") from error
    seals, broken, before = [], [], ""
    for number, each in enumerate(content.split(b"\n")[:-1], 1):
        line = each + b"\n"
        seal = _parsed(line)
        if seal is None or seal.before != before:
            broken.append(number)
        if seal is not None:
            seals.append(seal)
        before = sha256(line).hexdigest()
    return SealChain(seals=tuple(seals), broken=tuple(broken))


def records_head(records: Path) -> str:
    """Return the head of the hash chain of a run's records as hex; empty before the first."""
    log = records.with_name(f"{records.name}-wal")
    return _head_at(records, _stamp(records), _stamp(log))


@lru_cache(maxsize=1)  # files of one run are written one after the other
def _head_at(records: Path, *_stamps: tuple[int, int]) -> str:
    try:
        connection = connect.open_to_read(records)
    except StoreError:
        return ""  # killed or still beginning: nothing was committed
    try:
        with connect.errors_of(records):
            return head_of(connection)
    finally:
        connect.close_reading(connection, records)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def head_of(connection: sqlite3.Connection) -> str:
    """Return the hash of the last batch as hex; empty before the first."""
    row = connection.execute("SELECT hash FROM batches ORDER BY id DESC LIMIT 1").fetchone()
    return "" if row is None else bytes(row[0]).hex()


def _wait_for_lock(file: IO[bytes], path: Path, try_lock: TryLock) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not try_lock(file):
        if time.monotonic() > end:
            raise StorageError(f"{path} is in use by another process.\nNext: try again later.")
        time.sleep(0.002)


def _whole_lines(file: IO[bytes]) -> bytes:
    """Read the lines of a file; take away the last one where a crash cut it off."""
    file.seek(0)
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        file.truncate(len(whole))
    return whole


def _is_last(lines: bytes, name: str, digest: str) -> bool:
    """Tell whether the last seal of a file is of these bytes."""
    start = (b"\n" + lines).rfind(b"\n" + _start(name))
    if start < 0:
        return False
    seal = _parsed(lines[start : lines.index(b"\n", start) + 1])
    return seal is not None and seal.sha256 == digest


def _start(name: str) -> bytes:
    return f'{{"file":{json.dumps(name)},'.encode()


def _line(seal: Seal) -> bytes:
    return (json.dumps(asdict(seal), separators=(",", ":")) + "\n").encode()


def _parsed(line: bytes) -> Seal | None:
    try:
        seal = Seal(**json.loads(line))
    except (ValueError, TypeError):
        return None
    texts = (seal.file, seal.sha256, seal.head, seal.version, seal.before)
    is_typed = all(isinstance(each, str) for each in texts) and type(seal.size) is int
    return seal if is_typed and _line(seal) == line else None
