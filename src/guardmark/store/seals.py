"""Seals: what each file of a run was when it was written, in a chain of lines.

A seal is the hash of a file, appended before its file takes its name: a kill in between leaves the
file of an earlier seal, or none, and never one that looks edited.
"""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import asdict
from functools import lru_cache
from hashlib import file_digest, sha256
from typing import IO, TYPE_CHECKING, Final

from guardmark.core.errors import StorageError, StoreError
from guardmark.core.limits import MIB, MOST_LOG_BYTES, MOST_SEAL_BYTES
from guardmark.core.values import dataclass
from guardmark.core.version import VERSION
from guardmark.store import connect
from guardmark.store.codec import stored_object
from guardmark.store.file_errors import errors_of_files
from guardmark.store.locks import wait_for_lock

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.store.connect import StoreConnection

LOG: Final = "run.log"
SEALS: Final = "seals.jsonl"
RECORDS: Final = "records.sqlite"
_DEPTH: Final = 3
"""Levels above a file at which its run is looked for; exports have folders of their own."""
_NOTED: Final = "seals"  # key of the single value that says how many seals there are


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What a file was when it was written: a line of `seals.jsonl`.

    `head` is that of the records at this time, `layers` the hash of what they say of their layers,
    such as the settings of a judge; seals of older versions have none.
    """

    file: str
    sha256: str
    size: int
    head: str
    version: str
    before: str
    layers: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealsNoted:
    """How many seals there were when a command ended, and the hash of the last one's line."""

    count: int
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SealChain:
    """All seals of a run folder, the oldest first, and the lines at which the chain breaks."""

    seals: tuple[Seal, ...] = ()
    broken: tuple[int, ...] = ()
    hashes: tuple[str, ...] = ()  # of the lines, as the next line and the records name them

    def by_file(self) -> dict[str, list[Seal]]:
        """Return the seals of each file, the oldest first."""
        seals: dict[str, list[Seal]] = {}
        for seal in self.seals:
            seals.setdefault(seal.file, []).append(seal)
        return seals


def seal_file(path: Path, content: Path) -> None:
    """Seal once what is about to be named `path`, where that lies in the folder of a run."""
    path = path.absolute()
    folder = next((up for up in path.parents[:_DEPTH] if (up / RECORDS).is_file()), None)
    if folder is None:
        return
    with content.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    name = path.relative_to(folder).as_posix()
    with (folder / SEALS).open("a+b") as seals:
        wait_for_lock(seals, folder / SEALS)
        lines = _whole_lines(seals)
        if _is_last(lines, name, digest):
            return
        last = lines[lines[:-1].rfind(b"\n") + 1 :]
        stamps = (_stamp(folder / name) for name in (RECORDS, f"{RECORDS}-wal"))
        head, layers = _heads_at(folder / RECORDS, *stamps)
        seal = Seal(
            file=name,
            sha256=digest,
            size=content.stat().st_size,
            head=head,
            version=VERSION,
            before=sha256(last).hexdigest() if last else "",
            layers=layers,
        )
        seals.write(_line(seal))
        seals.flush()
        os.fsync(seals.fileno())


def read_seals(folder: Path) -> SealChain:
    """Read the seals of a run folder, without a last line that a crash cut off."""
    try:
        if (folder / SEALS).stat().st_size > MOST_SEAL_BYTES:
            raise StoreError(
                f"{folder / SEALS} has more than {MOST_SEAL_BYTES >> 20} MiB, which is the limit.\n"
                "Next: do not trust this folder; ask who made it."
            )
        content = (folder / SEALS).read_bytes()
    except FileNotFoundError:
        return SealChain()
    except OSError as error:
        reason = f"{folder / SEALS} cannot be read: {error.strerror}"
        raise StorageError(f"{reason}.\nNext: make it readable.") from error
    seals, broken, hashes, before = [], [], [], ""
    for number, each in enumerate(content.split(b"\n")[:-1], 1):
        line = each + b"\n"
        seal = _parsed(line)
        if seal is None or seal.before != before:
            broken.append(number)
        if seal is not None:
            seals.append(seal)
        before = sha256(line).hexdigest()
        hashes.append(before)
    return SealChain(seals=tuple(seals), broken=tuple(broken), hashes=tuple(hashes))


def note_seals(folder: Path) -> None:
    """Seal the log, and keep in the records how many seals there are and the last one.

    Called as a command ends.
    So somebody who cuts the last lines of `seals.jsonl` leaves a count that does not agree. Seals
    that came after the last note (of a command that was killed) are not covered by it.
    """
    if not (folder / SEALS).is_file() or not (folder / RECORDS).is_file():
        return
    if (folder / LOG).is_file():
        if (folder / LOG).stat().st_size > MOST_LOG_BYTES:
            raise StoreError(
                f"{folder / LOG} has more than {MOST_LOG_BYTES // MIB} MiB, so it is not sealed: "
                "no log of a run is so long.\nNext: move it out of the folder."
            )
        seal_file(folder / LOG, folder / LOG)
    with errors_of_files(folder / SEALS), (folder / SEALS).open("a+b") as seals:
        wait_for_lock(seals, folder / SEALS)
        lines = _whole_lines(seals).splitlines(keepends=True)
        if not lines:
            return
        noted = f"{len(lines)}:{sha256(lines[-1]).hexdigest()}"
        with closing(connect.open_to_write(folder / RECORDS)) as connection:
            if connection.meta(_NOTED) != noted:
                connection.put_meta(_NOTED, noted)


def read_noted_seals(connection: StoreConnection) -> SealsNoted | None:
    """Read what the records keep of the seals; None where no command ended yet."""
    count, _, last = (connection.meta(_NOTED) or "").partition(":")
    if not count.isdecimal():
        return None
    return SealsNoted(count=int(count), last=last)


def forget_seals(connection: StoreConnection) -> None:
    """Drop the note of seals from records that were made anew in a folder without them."""
    connection.execute("DELETE FROM meta WHERE key = ?", (_NOTED,))


def is_current(path: Path, connection: StoreConnection) -> bool:
    """Tell whether a file in the folder of a run is what this version wrote of these records."""
    seal = next(iter(read_seals(path.parent).by_file().get(path.name, [])[-1:]), None)
    now = connection.head(), layers_of(connection), VERSION
    if seal is None or (seal.head, seal.layers, seal.version) != now or not path.is_file():
        return False
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest() == seal.sha256


@lru_cache(maxsize=1)  # files of one run are written one after the other
def _heads_at(records: Path, *_stamps: tuple[int, int]) -> tuple[str, str]:
    try:
        connection = connect.open_to_read(records)
    except StoreError:
        return "", ""  # killed or still beginning: nothing was committed
    try:
        return connection.head(), layers_of(connection)
    finally:
        connect.close_reading(connection, records)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        state = path.stat()
    except FileNotFoundError:
        return (0, 0)
    return (state.st_mtime_ns, state.st_size)


def layers_of(connection: StoreConnection, *, up_to: int | None = None) -> str:
    """Return the hash of names and settings of the layers as hex, all or the first ones."""
    rows = connection.execute("SELECT id, name, settings FROM layers ORDER BY id").fetchall()
    wanted = [row for row in rows if up_to is None or row[0] <= up_to]
    return sha256(json.dumps(wanted).encode()).hexdigest()


def _whole_lines(file: IO[bytes]) -> bytes:
    """Read the lines of a file; take away the last one where a crash cut it off."""
    if file.seek(0, os.SEEK_END) > MOST_SEAL_BYTES:
        raise StoreError(
            f"{file.name} is too large to be what guardmark wrote.\n"
            "Next: remove it, if it lies in a folder of your own, and write the reports again."
        )
    file.seek(0)
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        file.truncate(len(whole))
    return whole


def _is_last(lines: bytes, name: str, digest: str) -> bool:
    """Tell whether the last seal of a file is of these bytes."""
    start = f'{{"file":{json.dumps(name)},'.encode()
    last = next((each for each in lines.split(b"\n")[::-1] if each.startswith(start)), b"")
    seal = _parsed(last + b"\n")
    return seal is not None and seal.sha256 == digest


def _line(seal: Seal) -> bytes:
    fields = {key: value for key, value in asdict(seal).items() if key != "layers" or value}
    return (json.dumps(fields, separators=(",", ":")) + "\n").encode()


def _parsed(line: bytes) -> Seal | None:
    try:
        seal = Seal(**stored_object(line.decode(), "seal"))
    except (ValueError, TypeError, RecursionError):
        return None
    return seal if _line(seal) == line else None
