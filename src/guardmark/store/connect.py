"""The connection to `records.sqlite`: how it opens, reads, inserts, and words errors."""

from __future__ import annotations

import os
import sqlite3
import struct
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import StorageError, StoreError
from guardmark.store import schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Row = tuple[Any, ...]

_MAGIC: Final = b"SQLite format 3\x00"
_NAMES_ANOTHER: Final = bytes.fromhex("d9d505f920a163d7")  # how a journal ends that names a file
_BESIDE: Final = ("-journal", "-wal")
_HEADER: Final = 100
_PAGE: Final = 16384
_CACHE_KB: Final = 1024  # rows come in order: more costs memory, less reads joined pages again
_CHECKPOINT_PAGES: Final = 2000  # 32 MB of log between checkpoints: an fsync stalls calls in flight
_CHECKED: Final[dict[Path, tuple[int, ...]]] = {}  # files with usual values, as they stood then
_STEP: Final = 1_000_000  # instructions of SQLite between two looks at the limit
_FEW_STEPS: Final = 100
_BYTES_A_STEP: Final = 50_000  # the most thorough check takes 1 instruction a byte
_DAMAGE: Final = ("not a database", "malformed", "no such", "Could not decode")
_FOREIGN_VALUES: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,  # ten thousand brackets
)


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours while a block runs."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.DatabaseError as error:
        message = str(error)
        if any(word in message for word in _DAMAGE):
            raise StoreError(
                f"{path} is damaged ({message}).\n"
                "Next: restore it from a copy, or start again with --fresh."
            ) from error
        if message == "interrupted":
            raise StoreError(
                f"{path} asks for more work than records of its size can need.\n"
                "Next: do not trust it; restore it from a copy, or ask who made it."
            ) from error
        raise StorageError(
            f"{path} cannot be written or read: {message}.\n"
            "Everything committed before is kept.\n"
            "Next: free disk space or make the folder writable, then give the same command again."
        ) from error


@contextmanager
def values_of(path: Path) -> Iterator[None]:
    """Word as ours what a block cannot make of the values in a file."""
    try:
        yield
    except _FOREIGN_VALUES as error:
        raise StoreError(
            f"{path} is damaged: a value in it cannot be read ({error!a:.80}).\n"
            "Next: restore it from a copy, or start again with --fresh."
        ) from error


class StoreConnection(sqlite3.Connection):
    """A connection to a file of ours that words SQLite's errors as ours."""

    path: Path
    _steps = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run a query; what counts its steps begins anew."""
        self._steps = 0
        return super().execute(sql, parameters)

    def limit_steps(self) -> None:
        """End any query of far more steps than the records of a file of this size can need."""

        def is_over() -> bool:
            self._steps += 1
            return self._steps > _FEW_STEPS and self._steps > _size(self.path) // _BYTES_A_STEP

        self.set_progress_handler(is_over, _STEP)

    def check_schema(self) -> None:
        """Refuse a file with a table, view, index or trigger that guardmark does not write."""
        known = schema.known_definitions()
        # No query of ours has named a table yet, so nothing of a view or trigger has run.
        query = "SELECT type, name, sql FROM sqlite_schema LIMIT 100"
        for kind, name, sql in self.rows(query):
            is_key = kind == "index" and sql is None and str(name).startswith("sqlite_autoindex_")
            if not is_key and schema.folded(str(sql)) not in known:
                raise StoreError(
                    f"{self.path} holds the {kind} {name!r:.80}, which guardmark did not write.\n"
                    "Next: do not trust it; restore it from a copy, or ask who made it."
                )

    def check_values(self) -> None:
        """Refuse a file with values that readers cannot count on; once, while it stays the same."""
        file = self.path.stat()
        state = (file.st_ino, file.st_mtime_ns, file.st_size, _size(_log_of(self.path)))
        if _CHECKED.get(self.path) != state:
            with errors_of(self.path), values_of(self.path):
                try:
                    schema.require_usual_values(self)
                except schema.BeyondLimit as error:
                    raise StoreError(
                        f"{self.path} holds {error}, which is the limit of a run folder.\n"
                        "Next: do not trust it; ask who made it."
                    ) from error
            _CHECKED[self.path] = state

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of a query."""
        with errors_of(self.path):
            return self.execute(query, values).fetchall()

    def value(self, query: str, values: Sequence[Any] = ()) -> Any:
        """Return the first value of the first row, or None without rows."""
        for row in self.rows(query, values):
            return row[0]
        return None

    def chunks(
        self, query: str, values: Sequence[Any] = (), *, size: int = 2000
    ) -> Iterator[list[Row]]:
        """Yield the rows of a query some at a time, so that memory stays flat."""
        with errors_of(self.path):
            cursor = self.execute(query, values)
            while True:
                rows = cursor.fetchmany(size)
                if not rows:
                    return
                yield rows

    def meta(self, key: str) -> str | None:
        """Return one value of the table of single values."""
        value = self.value("SELECT value FROM meta WHERE key = ?", (key,))
        if value is None:
            return None
        return str(value)

    def put_meta(self, key: str, value: str) -> None:
        """Store one value in the table of single values."""
        query = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = ?"
        self.rows(query, (key, value, value))

    def names(self, table: str) -> dict[int, str]:
        """Return the names in `defenses` or `layers` by their numbers, in order."""
        return dict(self.rows(f"SELECT id, name FROM {table} ORDER BY id"))  # noqa: S608 - a name of ours

    def shared_evidence(self) -> dict[int, str]:
        """Return the evidence that many records share by its number (`records.said`)."""
        return dict(self.rows("SELECT id, evidence FROM sayings"))

    def head(self) -> str:
        """Return the hash of the last batch as hex; empty before the first."""
        query = "SELECT lower(hex(hash)) FROM batches ORDER BY id DESC LIMIT 1"
        return str(self.value(query) or "")

    @property
    def has_superseded(self) -> bool:
        """Whether the file has that table; it is made when errors are first asked about again."""
        query = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'superseded'"
        return self.value(query) is not None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what a block writes, all of it or nothing."""
        with errors_of(self.path), schema.transaction(self):
            yield


def identify(path: Path) -> None:
    """Check from the header that a file is a whole SQLite database."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER)
        size, has_log = path.stat().st_size, bool(_size(_log_of(path)))
    except FileNotFoundError as error:
        raise StoreError(
            f"{path} does not exist.\nNext: name the folder of a run (it holds records.sqlite)."
        ) from error
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"{path} cannot be read: {reason}.\nNext: make it readable.") from error
    if len(header) < _HEADER and has_log:
        return  # killed before the first checkpoint: everything is still in the log
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        raise StoreError(
            f"{path} is not a records file of guardmark (no SQLite header).\n"
            "Next: name the folder of a run, or start again with --fresh."
        )
    page, pages = struct.unpack_from(">16xH10xI", header)
    whole = pages * (65536 if page == 1 else page)
    if size < whole and not has_log:  # the header in the file may lag behind the log
        raise StoreError(
            f"{path} is truncated: {size} of {whole} bytes are there.\n"
            "Next: restore it from a copy, or start again with --fresh."
        )


@contextmanager
def closed_on_error(connection: StoreConnection) -> Iterator[StoreConnection]:
    """Close a connection where a block cannot use it."""
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def open_database(path: Path, options: str, *, timeout: float = 10) -> StoreConnection:
    """Open an SQLite file, of whom it may be, so that nothing in or beside it can act."""
    _require_own_journal(path)
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?{options}",
        uri=True,
        isolation_level=None,
        timeout=timeout,
        factory=StoreConnection,
    )
    connection.path = path
    with closed_on_error(connection):
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        if options.startswith("mode=ro"):
            connection.execute("PRAGMA query_only = ON")
            connection.limit_steps()
    return connection


def open_to_write(path: Path) -> StoreConnection:
    """Open the records for writing; create them where there are none.

    Commits do not wait for the disk: a killed process loses none, a power loss may take the last
    ones but never leaves half of one. `note_head` in `RecordWriter` waits for the disk.
    """
    if path.exists() and (_size(path) or _size(_log_of(path))):
        identify(path)
    with errors_of(path), closed_on_error(open_database(path, "mode=rwc")) as connection:
        connection.execute(f"PRAGMA page_size = {_PAGE}")  # of a new file only
        is_new = not _has_tables(connection)
        if not is_new:
            _require_present_version(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        if is_new:
            schema.create(connection)
        connection.check_values()
        return connection


def open_to_read(path: Path) -> StoreConnection:
    """Open the records for reading, also while a run writes them."""
    identify(path)
    with errors_of(path), closed_on_error(_open_as_it_lies(path)) as connection:
        if not _has_tables(connection):
            raise StoreError(
                f"{path} is empty: the run was stopped while it began.\n"
                "Next: give the command of the run again."
            )
        _require_present_version(connection)
        return connection


def is_blank(path: Path) -> bool:
    """Tell whether a file holds no table yet: its run was stopped while it began."""
    if not (_size(path) or _size(_log_of(path))):
        return True
    identify(path)
    with errors_of(path), closing(_open_as_it_lies(path)) as connection:
        return not _has_tables(connection)


def copy_records(path: Path, target: Path) -> None:
    """Write the records of a run into another file, as they are at this moment."""
    connection = open_to_read(path)
    try:
        with errors_of(target), closing(sqlite3.connect(target)) as copy:
            connection.backup(copy)
    finally:
        close_reading(connection, path)


def close_reading(connection: sqlite3.Connection, path: Path) -> None:
    """Close a read-only connection and take away the empty log that it leaves behind.

    SQLite lets only a connection that may write remove it, and nobody while the file is in use.
    """
    connection.close()
    with suppress(OSError, sqlite3.Error):
        if _log_of(path).stat().st_size == 0:
            with closing(open_database(path, "mode=rw", timeout=0)) as last:
                _has_tables(last)


def _open_as_it_lies(path: Path) -> StoreConnection:
    try:
        with closed_on_error(open_database(path, "mode=ro")) as connection:
            _has_tables(connection)
    except sqlite3.OperationalError:
        # A folder that cannot be written has no place for the shared-memory file of the log, and
        # nobody takes back there what was half written: a copy says what a writer would see.
        with TemporaryDirectory() as scratch:
            copies = [path.with_name(f"{path.name}{end}") for end in _BESIDE]
            if not any(map(_size, copies)):
                return open_database(path, "mode=ro&immutable=1")
            for each in (path, *filter(_size, copies)):
                copyfile(each, Path(scratch, each.name))
            with closing(open_database(Path(scratch, path.name), "mode=rw")) as source:
                return _in_memory(source, path)
    return connection


def _in_memory(source: StoreConnection, path: Path) -> StoreConnection:
    copy = sqlite3.connect(":memory:", isolation_level=None, factory=StoreConnection)
    copy.path = path
    source.backup(copy)
    return copy


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])


def _require_present_version(connection: StoreConnection) -> None:
    """Refuse a file that holds no records of ours, or records of another schema version."""
    application = connection.value("PRAGMA application_id")
    is_unreleased = application == schema.UNRELEASED_APPLICATION_ID
    if application != schema.APPLICATION_ID and not is_unreleased:
        raise StoreError(
            f"{connection.path} is an SQLite database of another program.\n"
            "Next: name the folder of a run, or choose another output folder."
        )
    version = int(connection.value("PRAGMA user_version"))
    if version > schema.SCHEMA_VERSION and not is_unreleased:
        raise StoreError(
            f"{connection.path} has schema version {version}; this guardmark reads version"
            f" {schema.SCHEMA_VERSION}.\nNext: update guardmark."
        )
    if version < schema.SCHEMA_VERSION or is_unreleased:
        raise StoreError(
            f"{connection.path} has schema version {version}, from before the first release; this"
            f" guardmark reads version {schema.SCHEMA_VERSION}.\n"
            "Next: run the measurement again, or read it with the guardmark that wrote it."
        )
    connection.check_schema()


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _require_own_journal(path: Path) -> None:
    """Refuse the journal of several databases: SQLite deletes the file that its end names."""
    journal = path.with_name(f"{path.name}{_BESIDE[0]}")
    if not journal.is_file():
        return
    with journal.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(_NAMES_ANOTHER)))
        if file.read() == _NAMES_ANOTHER:
            raise StoreError(
                f"{journal} would have SQLite delete another file.\n"
                "Next: do not trust this folder; ask where it comes from."
            )


_TOGETHER: Final = 25  # more gain little, and a statement grows with them


def insert(
    connection: sqlite3.Connection, into: str, *, chosen: str, rows: Sequence[Row], shared: Row = ()
) -> None:
    """Insert rows of equal width, in order, by few statements that SQLite prepares once."""
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
