"""The folder of a run: where its files lie, whole writes with seals, and who holds it.

A seal is the hash of a file, in a chain of lines, appended before its file takes its name: a kill
in between leaves the file of an earlier seal, or none, and never one that looks edited.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from filecmp import cmp
from functools import lru_cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from guardmark.core.errors import StorageError, StoreError
from guardmark.core.limits import MIB, MOST_LOG_BYTES, MOST_SEAL_BYTES
from guardmark.core.version import VERSION
from guardmark.store import connect
from guardmark.store.codec import stored_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.store.connect import StoreConnection


LOCK: Final = ".lock"
LOG: Final = "run.log"
SEALS: Final = "seals.jsonl"
_RECORDS: Final = "records.sqlite"
_ENDINGS: Final = (".sqlite", ".json", ".jsonl", ".yaml", ".html", ".md", ".csv", ".xml", ".log")
_DEPTH: Final = 3
"""Levels above a file at which its run is looked for; exports have folders of their own."""
_PATIENCE_S: Final = 10.0
_NOTED: Final = "seals"  # key of the single value that says how many seals there are
_MOST_OF_HOLDER: Final = 300
_PART: Final = ".part"  # how the name of a file ends that is not whole yet
_TURNS: Final = 9
_NEW_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


class _File:
    """A file of every run, as an attribute of its folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: RunDir, kind: type[RunDir] | None = None) -> Path:
        """Return the path of the file."""
        return run.path / self._name


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDir:
    """The folder of one run."""

    path: Path

    records = _File("records.sqlite")  # the one source of everything else
    results = _File("results.jsonl")  # a line a record, without tries
    trace = _File("trace.jsonl")  # a line a try, without texts and times
    target = _File("target.jsonl")  # a line an answer of the target model to a try
    resolved_config = _File("config.resolved.yaml")  # every default filled in
    data_manifest = _File("data_manifest.json")  # what data was read
    environment = _File("environment.json")  # versions of everything that took part
    summary_json = _File("summary.json")
    summary_md = _File("summary.md")
    report_md = _File("report.md")
    report_html = _File("report.html")
    categories_csv = _File("categories.csv")
    variant_metrics_csv = _File("variant_metrics.csv")
    comparison_json = _File("comparison.json")
    slice_stability = _File("slice_stability.json")
    slice_stability_md = _File("slice_stability.md")
    junit = _File("junit.xml")
    sarif = _File("results.sarif")
    seals = _File(SEALS)  # hashes of what was written, a line each
    log = _File(LOG)

    def checked(self) -> RunDir:
        """Refuse a folder in which a link, a folder, a pipe or a device stands in place of a file.

        A folder from somebody else could have other files read, or overwritten, by such means.
        """
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                is_ours = not is_folder or entry.name.endswith(_ENDINGS)
                if entry.is_file(follow_symlinks=False) or not is_ours:
                    continue
                what = "a link" if entry.is_symlink() else "a pipe or a device"
                raise StoreError(
                    f"{self.path} holds {'a folder' if is_folder else what} in place of a file: "
                    f"{entry.name!a}.\nNext: ask where it comes from, and remove it."
                )
        return self

    def create(self) -> RunDir:
        """Make the folder if it is not there."""
        with errors_of_files(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        return self

    def file(self, name: str) -> Path:
        """Return the path of a file of the run."""
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{name!r} leads out of the run folder")
        return self.path / name

    def write_text(self, name: str, text: str) -> Path:
        """Write a file whole or not at all."""
        path = self.file(name)
        with whole_file(path) as file:
            file.write(text.encode(errors="backslashreplace"))  # as JSON spells half of a pair
        return path

    @contextmanager
    def lock(self, *, started: str = "") -> Iterator[None]:
        """Hold the folder against other runs while a block runs.

        The lock goes with the process, however it ends.
        """
        self.create().checked()
        with errors_of_files(self.path):
            file = os.fdopen(os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o666), "r+")
        with file:
            if not try_lock(file):
                raise StorageError(
                    f"{self.path} is in use by another run: {file.read(_MOST_OF_HOLDER)}.\n"
                    "Next: wait for it, stop it, or choose another output folder with -o."
                )
            with errors_of_files(self.path):
                file.truncate()
                since = f", since {started}" if started else ""
                file.write(f"process {os.getpid()} on {platform.node()}{since}")
                file.flush()
            _LAST_LOCKED[:] = [self.path]
            yield


_LAST_LOCKED: list[Path] = []


def last_locked() -> Path | None:
    """Return the run folder that this process held last: where its traceback is kept."""
    return _LAST_LOCKED[0] if _LAST_LOCKED else None


def is_held(folder: Path) -> bool:
    """Tell whether somebody writes into a run folder at this moment."""
    try:
        with (folder / LOCK).open("r+") as file:
            return not try_lock(file)
    except OSError:
        return False


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes its name only once it is complete and on the disk.

    A file that has exactly these bytes already is left as it is, its time of change included:
    who writes reports again from the same records changes nothing. In the folder of a run it is
    sealed first.
    """
    with errors_of_files(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        file, part = _begin(path)
        try:
            with file:
                yield file
                file.flush()
                is_known = path.is_file() and cmp(part, path, shallow=False)
                if not is_known:
                    os.fsync(file.fileno())
            _seal_file(path, part)
            if is_known:
                part.unlink()
            else:
                part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _begin(path: Path) -> tuple[IO[bytes], Path]:
    """Open the file that is to become another, locked; again where it was swept away before."""
    for turn in range(_TURNS):
        name = path.parent / f".{path.name}.{secrets.token_hex(6)}{_PART}"
        # Created as any other file is, so that its mode follows the umask.
        number = os.open(name, _NEW_FILE, 0o666)
        file = os.fdopen(number, "wb")
        # A disk without locks knows no sweeping either.
        if (try_lock(file) or turn == _TURNS - 1) and os.fstat(number).st_nlink:
            break
        file.close()
    return file, Path(name)


def _sweep(path: Path) -> None:
    """Remove what writers of a file left half written when they were killed, and what is empty.

    Who still writes holds a lock. A part of another file may be sealed, so it stays.
    """
    for left in path.parent.glob(f".*{_PART}"):
        with suppress(OSError), left.open("rb+") as file:
            is_of_file = left.name.startswith(f".{path.name}.")
            if (is_of_file or not left.stat().st_size) and try_lock(file):
                left.unlink()


@contextmanager
def errors_of_files(path: Path) -> Iterator[None]:
    """Word what the system says of a file that cannot be written."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise StorageError(
            f"{path} cannot be written: a file stands where a folder is needed.\n"
            "Next: name another folder with -o."
        ) from error
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror or error}.\n"
            "Next: free disk space or make the folder writable, or choose another with -o."
        ) from error


def try_lock(file: IO[Any]) -> bool:
    """Take the lock on a file, unless somebody has it."""
    try:
        if os.name == "nt":
            import msvcrt

            # Beyond the content: Windows would also keep others from reading locked bytes.
            file.seek(1 << 20)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]  # Windows only
        else:
            import fcntl

            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


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


def _seal_file(path: Path, content: Path) -> None:
    """Seal once what is about to be named `path`, where that lies in the folder of a run."""
    path = path.absolute()
    folder = next((up for up in path.parents[:_DEPTH] if (up / _RECORDS).is_file()), None)
    if folder is None:
        return
    with content.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    name = path.relative_to(folder).as_posix()
    with (folder / SEALS).open("a+b") as seals:
        _wait_for_lock(seals, folder / SEALS)
        lines = _whole_lines(seals)
        if _is_last(lines, name, digest):
            return
        last = lines[lines[:-1].rfind(b"\n") + 1 :]
        stamps = (_stamp(folder / name) for name in (_RECORDS, f"{_RECORDS}-wal"))
        head, layers = _heads_at(folder / _RECORDS, *stamps)
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
    """Read the seals of a run folder; a line that a crash cut off is none."""
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
    if not (folder / SEALS).is_file() or not (folder / _RECORDS).is_file():
        return
    if (folder / LOG).is_file():
        if (folder / LOG).stat().st_size > MOST_LOG_BYTES:
            raise StoreError(
                f"{folder / LOG} has more than {MOST_LOG_BYTES // MIB} MiB, so it is not sealed: "
                "no log of a run is so long.\nNext: move it out of the folder."
            )
        _seal_file(folder / LOG, folder / LOG)
    with errors_of_files(folder / SEALS), (folder / SEALS).open("a+b") as seals:
        _wait_for_lock(seals, folder / SEALS)
        lines = _whole_lines(seals).splitlines(keepends=True)
        if not lines:
            return
        noted = f"{len(lines)}:{sha256(lines[-1]).hexdigest()}"
        with closing(connect.open_to_write(folder / _RECORDS)) as connection:
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


def _wait_for_lock(file: IO[bytes], path: Path) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not try_lock(file):
        if time.monotonic() > end:
            raise StorageError(f"{path} is in use by another process.\nNext: try again later.")
        time.sleep(0.002)


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
