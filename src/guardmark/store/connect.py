"""The connection to `records.sqlite`: how it opens, inserts, and tells of errors."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing, contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import StorageError, StoreError
from guardmark.store import migrations, schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


_MAGIC: Final = b"SQLite format 3\x00"
_HEADER: Final = 100
_PAGE: Final = 16384
_CACHE_KB: Final = 128  # rows come in order, so a larger cache only costs memory
_CHECKPOINT_PAGES: Final = 2000  # 32 MB of log between checkpoints: an fsync stalls calls in flight
_DAMAGE: Final = ("not a database", "malformed", "no such table", "no such column")


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours while a block runs."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.DatabaseError as error:
        said = str(error)
        if any(word in said for word in _DAMAGE):
            raise StoreError(
                f"{path} is damaged ({said}).\n"
                "Next: restore it from a copy, or start again with --fresh."
            ) from error
        raise StorageError(
            f"{path} cannot be written or read: {said}.\n"
            "Everything committed before is kept.\n"
            "Next: free disk space or make the folder writable, then give the same command again."
        ) from error


def identify(path: Path) -> None:
    """Check from the header that a file holds our records, whole and of a known version."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER)
        size = path.stat().st_size
        log = path.with_name(path.name + "-wal")
        has_log = log.exists() and log.stat().st_size > 0
    except FileNotFoundError as error:
        raise StoreError(
            f"{path} does not exist.\nNext: name the folder of a run (it holds records.sqlite)."
        ) from error
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}.") from error
    if len(header) < _HEADER and has_log:
        return  # killed before the first checkpoint: everything is still in the log
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        raise StoreError(
            f"{path} is not a records file of guardmark (no SQLite header).\n"
            "Next: name the folder of a run, or start again with --fresh."
        )
    if has_log:
        return  # the header in the file may lag behind the log; SQLite reads both
    _check_header(path, header, size)


def _check_header(path: Path, header: bytes, size: int) -> None:
    (raw_page,) = struct.unpack_from(">H", header, 16)
    page = 65536 if raw_page == 1 else raw_page
    (pages,) = struct.unpack_from(">I", header, 28)
    (version,) = struct.unpack_from(">I", header, 60)
    (application,) = struct.unpack_from(">I", header, 68)
    (cookie,) = struct.unpack_from(">I", header, 40)
    if cookie == 0 and pages <= 1 and application == 0:
        return  # killed between making the file and making its tables
    if application != schema.APPLICATION_ID:
        raise _foreign(path)
    if size < page * pages:
        raise StoreError(
            f"{path} is truncated: {size} of {page * pages} bytes are there.\n"
            "Next: restore it from a copy, or start again with --fresh."
        )
    if version > schema.SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema version {version}; this guardmark reads up to"
            f" {schema.SCHEMA_VERSION}.\nNext: update guardmark."
        )


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open the records for writing; create them where there are none.

    Commits do not wait for the disk (`synchronous=NORMAL` in WAL mode): a killed process
    loses nothing that was committed, a power loss may take the last commits but never
    leaves half of one. `note_head` in `RecordWriter` waits for the disk.
    """
    is_new = not path.exists() or (
        path.stat().st_size == 0 and not path.with_name(path.name + "-wal").exists()
    )
    if not is_new:
        identify(path)
    with errors_of(path):
        connection = sqlite3.connect(path, isolation_level=None, timeout=10)
        try:
            connection.execute(f"PRAGMA page_size = {_PAGE}")  # of a new file only
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            _create_or_migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def _create_or_migrate(connection: sqlite3.Connection, path: Path) -> None:
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables == 0:
        schema.create(connection)
        return
    _check_application(connection, path)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != schema.SCHEMA_VERSION:
        migrations.migrate(connection, shown_as=str(path))


def is_blank(path: Path) -> bool:
    """Tell whether a file holds no table yet: its run was stopped while it began."""
    log = path.with_name(path.name + "-wal")
    if path.stat().st_size == 0 and not (log.exists() and log.stat().st_size):
        return True
    identify(path)
    with errors_of(path), closing(_read_only(path, "mode=ro")) as connection:
        tables: int = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    return tables == 0


def _check_application(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
        raise _foreign(path)


def _check_begun(connection: sqlite3.Connection, path: Path) -> None:
    if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        raise StoreError(
            f"{path} is empty: the run was stopped while it began.\n"
            "Next: give the command of the run again."
        )


def _foreign(path: Path) -> StoreError:
    return StoreError(
        f"{path} is an SQLite database of another program.\n"
        "Next: name the folder of a run, or choose another output folder."
    )


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open the records for reading, also while a run writes them."""
    identify(path)
    with errors_of(path):
        connection = _open_as_it_lies(path)
        try:
            _check_begun(connection, path)
            _check_application(connection, path)
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        except BaseException:
            connection.close()
            raise
    if version == schema.SCHEMA_VERSION:
        return connection
    connection.close()
    try:
        open_to_write(path).close()
    except StorageError:
        return _migrated_copy(path)
    return open_to_read(path)


def _open_as_it_lies(path: Path) -> sqlite3.Connection:
    log = path.with_name(path.name + "-wal")
    try:
        return _read_only(path, "mode=ro")
    except sqlite3.OperationalError:
        # A folder that cannot be written has no place for the shared-memory file of the
        # log; without a log the file can be read as it lies.
        if log.exists() and log.stat().st_size > 0:
            raise
        return _read_only(path, "mode=ro&immutable=1")


def _migrated_copy(path: Path) -> sqlite3.Connection:
    """Bring an older file that may not be written up to date in memory."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    with errors_of(path), closing(_open_as_it_lies(path)) as connection:
        connection.backup(copy)
        migrations.migrate(copy, shown_as=str(path))
        copy.execute("PRAGMA query_only = ON")
    return copy


def close_reading(connection: sqlite3.Connection, path: Path) -> None:
    """Close a read-only connection and take away the empty log that it leaves behind.

    SQLite lets only a connection that may write remove the log. Nothing is removed while
    somebody else has the file open, or where the log holds anything.
    """
    connection.close()
    log = path.with_name(path.name + "-wal")
    with suppress(OSError, sqlite3.Error):
        if log.stat().st_size == 0:
            with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as last:
                last.execute("SELECT count(*) FROM sqlite_schema").fetchone()


def _read_only(path: Path, options: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?{options}", uri=True, isolation_level=None, timeout=10
    )
    try:
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


_TOGETHER: Final = 25  # more gain little, and a statement grows with them


def insert(
    connection: sqlite3.Connection,
    into: str,
    *,
    chosen: str,
    rows: Sequence[tuple[Any, ...]],
    shared: tuple[Any, ...] = (),
) -> None:
    """Insert rows of equal width, in order.

    The statement is the same for every call with the same words, so it is prepared once.
    """
    if not rows:
        return
    one = f"({', '.join('?' * len(rows[0]))})"
    whole = len(rows) - len(rows) % _TOGETHER
    for together, part in ((_TOGETHER, rows[:whole]), (1, rows[whole:])):
        places = ", ".join([one] * together)
        connection.executemany(
            f"INSERT INTO {into} SELECT {chosen} FROM (VALUES {places})",  # noqa: S608 - words of ours
            [
                (*shared, *chain.from_iterable(part[start : start + together]))
                for start in range(0, len(part), together)
            ],
        )
