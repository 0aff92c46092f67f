"""Writing the records of a run: in batches, each row exactly once."""

from __future__ import annotations

import json
import sqlite3
from enum import StrEnum
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Self

from guardmark.core.errors import StoreError
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.store import chain, connect, lookups, samples
from guardmark.store.codec import manifest_from_json, manifest_to_json
from guardmark.store.codes import STAGE_CODE
from guardmark.store.encode import details_of, row_of
from guardmark.store.lanes import Lane
from guardmark.store.lookups import Stored
from guardmark.store.reader import RecordReader, RunState, RunStatus
from guardmark.store.schema import KEY_COLUMNS, VALUE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from guardmark.core.manifest import RunManifest
    from guardmark.core.record import Record
    from guardmark.core.sample import Sample

__all__ = ["RecordReader", "RecordWriter", "RunState", "RunStatus", "Table"]

_CHUNK: Final = 1000
_KEY: Final = itemgetter(0, 1, 2, 3, 4)
_ROW: Final = (
    f"INSERT INTO records ({', '.join(KEY_COLUMNS + VALUE_COLUMNS)}, batch)"  # noqa: S608 - only our own column names
    f" VALUES ({', '.join('?' * len(KEY_COLUMNS + VALUE_COLUMNS))}, "
)
_DETAIL: Final = (
    f"INSERT INTO details ({', '.join(KEY_COLUMNS)}, text, evidence, batch)"  # noqa: S608 - only our own column names
    " VALUES (?, ?, ?, ?, ?, ?, ?, "
)


class Table(StrEnum):
    """The tables of names that grow with a run."""

    DEFENSES = "defenses"
    LAYERS = "layers"


class RecordWriter:
    """The one writer of a run's records.

    Answers are taken by lanes and committed by `flush`, all of a batch or nothing; `pending`
    says what is not stored yet, so that a run that was stopped anywhere goes on from there.
    Not for use by two threads. Close it, or use it as a context manager.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect.open_to_write(path)
        self._rows: list[tuple[Any, ...]] = []
        self._details: list[tuple[Any, ...]] = []
        self._has_failed = False
        self._due_ns = 0
        self._load_state()

    def _load_state(self) -> None:
        with connect.errors_of(self.path):
            last = self._connection.execute(
                "SELECT id, hash FROM batches ORDER BY id DESC LIMIT 1"
            ).fetchone()
            self._names = {table: self._read_names(table) for table in Table}
            self._count = samples.count(self._connection)
        self._batch: int = last[0] if last else 0
        self._head: bytes | None = last[1] if last else None

    def _read_names(self, table: Table) -> dict[int, str]:
        return dict(self._connection.execute(f"SELECT id, name FROM {table}").fetchall())  # noqa: S608 - a name of ours

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Commit what was taken, and close."""
        self.close()

    # --- what stands before the first record -----------------------------------------------

    @property
    def manifest(self) -> RunManifest | None:
        """What was run, or None when it was not stored yet."""
        text = self._meta("manifest")
        return manifest_from_json(text) if text else None

    def put_manifest(self, manifest: RunManifest) -> None:
        """Store what is run; possible until the first record.

        Args:
            manifest: What is run.

        Raises:
            StoreError: If records exist already under another manifest.
        """
        text = manifest_to_json(manifest)
        if self._batch and text != self._meta("manifest"):
            raise StoreError(
                f"{self.path} holds records of another configuration.\n"
                "Next: choose another output folder, or start again with --fresh."
            )
        self._put_meta("manifest", text)

    def load_samples(self, source: Iterable[Sample]) -> int:
        """Store all samples, unless they are stored already.

        Args:
            source: In order. Not touched when the samples are stored.

        Returns:
            Number of samples stored.

        Raises:
            DatasetError: If two have the same id, or a text is not valid Unicode.
        """
        if not self.has_samples:
            with connect.errors_of(self.path):
                seal = samples.load(self._connection, source)
            self._put_meta("samples", seal)
            self._count = samples.count(self._connection)
        return self._count

    @property
    def has_samples(self) -> bool:
        """Whether all samples were stored, by this process or an earlier one."""
        return self._meta("samples") is not None

    @property
    def samples_seal(self) -> str:
        """SHA-256 (hex) over the stored samples; empty before they are stored."""
        return self._meta("samples") or ""

    @property
    def sample_count(self) -> int:
        """Number of stored samples."""
        return self._count

    def sample(self, position: int) -> Sample:
        """Return one stored sample.

        Args:
            position: From 0.

        Returns:
            The sample, in full.

        Raises:
            IndexError: If there is no such sample.
        """
        for sample in samples.read(self._connection, first=position, last=position):
            return sample
        raise IndexError(position)

    # --- lanes -----------------------------------------------------------------------------

    def lane(
        self,
        defense: str,
        stage: Stage = Stage.DEFENSE,
        *,
        layer: str = FIRST_LAYER,
        repeat: int = 0,
    ) -> Lane:
        """Return where the answers of one part go.

        Args:
            defense: Name of the defense (of the arm, in a pipeline).
            stage: Where in the pipeline.
            layer: `run`, or the name of a later judging.
            repeat: Which repetition, from 0.

        Returns:
            A lane that feeds this writer.
        """
        numbers = (self._number(Table.DEFENSES, defense), STAGE_CODE[stage])
        key = (*numbers, self._number(Table.LAYERS, layer), repeat)
        return Lane(key, rows=self._rows, details=self._details)

    def add_layer(self, name: str, settings: Mapping[str, object]) -> None:
        """Register a later judging with its settings.

        Args:
            name: Name of the layer; must be new, or have the same settings.
            settings: JSON values.

        Raises:
            StoreError: If a layer of this name has other settings.
        """
        number = self._number(Table.LAYERS, name)
        text = json.dumps(dict(settings), sort_keys=True)
        with connect.errors_of(self.path):
            query = "SELECT settings FROM layers WHERE id = ?"
            before = self._connection.execute(query, (number,)).fetchone()[0]
            if before not in {"{}", text}:
                raise StoreError(f"The layer {name!r} exists with other settings. Next: rename it.")
            self._connection.execute("UPDATE layers SET settings = ? WHERE id = ?", (text, number))

    def _number(self, table: Table, name: str) -> int:
        names = self._names[table]
        for number, known in names.items():
            if known == name:
                return number
        number = max(names, default=-1) + 1
        with connect.errors_of(self.path):
            self._connection.execute(
                f"INSERT INTO {table} (id, name) VALUES (?, ?)",  # noqa: S608 - a name of ours
                (number, name),
            )
        names[number] = name
        return number

    @property
    def stored(self) -> Stored:
        """Questions about what is committed."""
        return Stored(self._connection, self.path)

    # --- records ---------------------------------------------------------------------------

    def add(self, record: Record) -> None:
        """Take one record in its readable form; for imports and tests.

        Args:
            record: Everything observed; its sample must be stored.
        """
        key = record.key
        lane = self.lane(key.defense, key.stage, layer=key.layer, repeat=key.repeat)
        prefix = (*lane.key, key.sample)
        self._rows.append((*prefix, *row_of(record)))
        details = details_of(record)
        if details is not None:
            self._details.append((*prefix, *details))

    @property
    def waiting(self) -> int:
        """Number of records taken and not committed yet."""
        return len(self._rows)

    def flush_if_due(
        self, now_ns: int, *, count: int = _CHUNK, after_ns: int = 400_000_000
    ) -> bool:
        """Commit when enough has gathered or enough time has passed.

        Args:
            now_ns: A monotonic clock.
            count: Records that make a batch.
            after_ns: Time after which fewer do.

        Returns:
            Whether something was committed.
        """
        if not self._rows:
            self._due_ns = now_ns + after_ns
            return False
        if len(self._rows) < count and now_ns < self._due_ns:
            return False
        self._due_ns = now_ns + after_ns
        self.flush()
        return True

    def flush(self) -> None:
        """Commit everything taken so far, as one link of the hash chain.

        Raises:
            StoreError: If a record is stored already.
            StorageError: If the disk is full or the file cannot be written; what was
                committed before is kept, and this batch is not half there.
        """
        if not self._rows:
            return
        self._rows.sort(key=_KEY)
        self._details.sort(key=_KEY)
        head = chain.link(
            self._chain_head(), rows=self._rows, details=self._details, names=self._used_names()
        )
        number = self._batch + 1
        self._has_failed = True
        with connect.errors_of(self.path):
            self._commit(number, head)
        self._has_failed = False
        self._batch, self._head = number, head
        self._rows.clear()
        self._details.clear()

    def _commit(self, number: int, head: bytes) -> None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(f"{_ROW}{number})", self._rows)
            if self._details:
                connection.executemany(f"{_DETAIL}{number})", self._details)
            link = (number, len(self._rows), head)
            connection.execute("INSERT INTO batches VALUES (?, ?, ?)", link)
            connection.execute("COMMIT")
        except sqlite3.IntegrityError as error:
            raise StoreError(f"{self.path}: a record was to be stored twice ({error}).") from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _chain_head(self) -> bytes:
        if self._head is None:
            self._head = chain.genesis(self._meta("manifest") or "", self.samples_seal)
        return self._head

    def _used_names(self) -> tuple[dict[int, str], dict[int, str]]:
        defenses, layers = self._names[Table.DEFENSES], self._names[Table.LAYERS]
        return (
            {number: defenses[number] for number in {row[0] for row in self._rows}},
            {number: layers[number] for number in {row[2] for row in self._rows}},
        )

    # --- beginning and end -----------------------------------------------------------------

    def begin(self, planned: int) -> None:
        """Note that a run starts or continues.

        Args:
            planned: Records the run will have when it is complete.
        """
        self.plan(planned)
        self._put_meta("state", RunState.RUNNING)

    def plan(self, planned: int) -> None:
        """Note how many records the run will have when it is complete.

        Args:
            planned: Warm-up calls and tries apart.
        """
        self._put_meta("planned", str(planned))

    def finish(self, state: RunState) -> None:
        """Commit everything, wait for the disk, and note how the run ended.

        Args:
            state: How it ended.
        """
        self.flush()
        with connect.errors_of(self.path):
            self._connection.execute("PRAGMA synchronous = FULL")
            head = (self._head or b"").hex()
            self._put_meta("head", f"{self._batch}:{head}")
            self._put_meta("state", state)
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.execute("PRAGMA synchronous = NORMAL")

    def close(self) -> None:
        """Commit what was taken, unless a commit failed before, and close the file."""
        try:
            if not self._has_failed:
                self.flush()
        finally:
            self._connection.close()

    def _meta(self, key: str) -> str | None:
        with connect.errors_of(self.path):
            return lookups.meta(self._connection, key)

    def _put_meta(self, key: str, value: str) -> None:
        with connect.errors_of(self.path):
            lookups.put_meta(self._connection, key, value)
