"""A run made from the tables that an export to Parquet left beside its partitions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import StoreError, needs
from guardmark.store.connect import open_to_write
from guardmark.store.file_errors import errors_of_files
from guardmark.store.run_dir import RunDir
from guardmark.store.schema import definitions
from guardmark.store.seals import forget_seals

if TYPE_CHECKING:
    from guardmark.store.connect import StoreConnection

TABLES: Final = "_run"  # a name that readers of partitions pass over
FIELDS: Final = "SELECT name, type FROM pragma_table_info(?)"
AT_ONCE: Final = 10_000  # rows that are written and read together
_MOST: Final = 1 << 30  # bytes that so many rows may unpack to
_RATIO: Final = 100  # bytes of records for one of Parquet, beyond the first of these


def unpack_run(folder: Path) -> None:
    """Make `records.sqlite` of a run from its tables in Parquet, whole or not at all."""
    source = RunDir(path=RunDir(path=folder).checked().path / TABLES).checked().path
    with needs(f"Reading {folder} needs pyarrow", "parquet"):
        from pyarrow import ArrowException
    broken = (ArrowException, ValueError, OverflowError, OSError, sqlite3.Error)
    with errors_of_files(folder), TemporaryDirectory(dir=folder, prefix=".records.") as beside:
        made = Path(beside, "records.sqlite")
        with closing(open_to_write(made)) as connection:
            try:
                _fill(connection, source)
            except broken as error:
                reason = (str(error) or type(error).__name__).splitlines()[0]
                raise StoreError(
                    f"The run in {source} cannot be made from its tables: {reason}.\n"
                    "Next: free disk space where it is full, else export the run again."
                ) from error
        made.replace(folder / made.name)


def _fill(connection: StoreConnection, source: Path) -> None:
    connection.execute("PRAGMA journal_mode = OFF")  # what fails is thrown away as a whole
    size = _MOST + _RATIO * sum(file.stat().st_size for file in source.glob("*.pq"))
    connection.execute(f"PRAGMA max_page_count = {size // connection.value('PRAGMA page_size')}")
    if (source / "superseded.pq").exists():
        connection.execute(definitions()["superseded"])
    with connection.transaction():
        for (name,) in connection.rows("SELECT name FROM sqlite_schema WHERE type = 'table'"):
            _fill_table(connection, name, source / f"{name}.pq")
        # The tables bring no seals along: the files that they covered stayed behind.
        forget_seals(connection)
        if connection.meta("samples"):
            connection.execute(definitions()["samples_by_id"])


def _fill_table(connection: StoreConnection, name: str, file: Path) -> None:
    from pyarrow.parquet import ParquetFile, read_metadata

    fields = [field for field, _ in connection.rows(FIELDS, (name,))]
    connection.execute(f"DELETE FROM {name}")  # noqa: S608 - a name of ours
    insert = f"INSERT INTO {name} VALUES ({', '.join('?' * len(fields))})"  # noqa: S608 - a name of ours
    metadata = read_metadata(file)
    if metadata.schema.to_arrow_schema().names != fields:
        raise ValueError(f"{file.name} has other columns than the table {name}")
    for number in range(metadata.num_row_groups):
        if metadata.row_group(number).total_byte_size > _MOST:
            raise ValueError(f"{file.name} unpacks to more than guardmark writes at once")
    # As a dictionary, a text that many rows share takes its memory only once.
    paths = [column.path for column in metadata.schema]
    with ParquetFile(file, read_dictionary=paths, pre_buffer=False) as table:
        for batch in table.iter_batches(AT_ONCE):
            connection.executemany(insert, zip(*map(_cells, batch.columns), strict=True))


def _cells(column: Any) -> Any:
    if hasattr(column, "dictionary"):
        known = [*column.dictionary.to_pylist(), None]
        return map(known.__getitem__, column.indices.fill_null(-1).to_pylist())
    return column.to_pylist()
