"""Writing the records of a run: in batches, each row exactly once."""

from __future__ import annotations

import json
import sqlite3
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Self

from guardmark.core.errors import StoreError
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.store import connect, integrity, lookups, samples
from guardmark.store.codec import (
    details_of,
    manifest_from_json,
    manifest_to_json,
    row_of,
    shared_of,
)
from guardmark.store.lookups import Stored
from guardmark.store.reader import RecordReader, RunState, RunStatus
from guardmark.store.record_batch import RecordBatch, SharedEvidence, read_shared_evidence
from guardmark.store.schema import (
    DETAILS_OF_RECORDS,
    ERROR_KIND_CODE,
    OUTCOME_CODE,
    STAGE_CODE,
    SUPERSEDED,
)
from guardmark.store.tries import TryBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from guardmark.core.manifest import RunManifest
    from guardmark.core.record import Record
    from guardmark.core.sample import Sample
    from guardmark.store.samples import PlainSample

__all__ = ["RecordReader", "RecordTable", "RecordWriter", "RunState", "RunStatus"]

_CHUNK: Final = 1000
_PATIENCE_NS: Final = 400_000_000  # after which fewer records are committed, too
_ERROR: Final = OUTCOME_CODE["error"]
_SKIPPED: Final = ERROR_KIND_CODE["skipped"]
_KEY: Final = "defense, stage, layer, repeat, sample, batch"
_COLUMNS: Final = f"{_KEY}, outcome, score, score_kind, error_kind, answer_mode, latency_ns, flags"
_FAILED: Final = (
    f"r.outcome = {_ERROR} AND r.error_kind IS NOT {_SKIPPED} AND r.layer IN"  # noqa: S608 - constants of ours
    " (SELECT id FROM layers WHERE name = 'run' OR name LIKE 'run/%') AND r.stage"
)
_STAGES: Final = tuple(STAGE_CODE[stage] for stage in (Stage.DEFENSE, Stage.MODEL, Stage.JUDGE))
# A defense that reads the response had nothing to read where the target model failed.
_AGAIN: Final = (
    f"({_FAILED} IN {_STAGES}) OR (r.outcome = {_ERROR} AND r.error_kind = {_SKIPPED}"  # noqa: S608 - constants of ours
    f" AND r.stage = {STAGE_CODE[Stage.DEFENSE]} AND (r.repeat, r.sample) IN"
    f" (SELECT repeat, sample FROM records r WHERE {_FAILED} = {STAGE_CODE[Stage.MODEL]}))"
)


class RecordTable(StrEnum):
    """The tables of names that grow with a run."""

    DEFENSES = "defenses"
    LAYERS = "layers"


class RecordWriter:
    """The one writer of a run's records.

    Answers are taken by a batch for each part, and `flush` commits them, all or nothing;
    `stored.pending` says what is missing, so that a run that was stopped goes on from there.
    Not for use by two threads. Close it, or use it as a context manager.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect.open_to_write(path)
        self._parts: dict[tuple[int, int, int, int], RecordBatch] = {}
        self._tries: dict[tuple[int, int], TryBatch] = {}
        self._has_failed = False
        self._due_ns = 0
        self._load_state()

    def _load_state(self) -> None:
        with connect.errors_of(self.path):
            last = self._connection.execute(
                "SELECT id, hash FROM batches ORDER BY id DESC LIMIT 1"
            ).fetchone()
            self._names = {table: self._read_names(table) for table in RecordTable}
            self._count = samples.count(self._connection)
            self._shared_evidence = SharedEvidence(read_shared_evidence(self._connection))
        self._batch: int = last[0] if last else 0
        self._head: bytes | None = last[1] if last else None

    def _read_names(self, table: RecordTable) -> dict[int, str]:
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
        """Store what is run; possible until the first record."""
        text = manifest_to_json(manifest)
        if self._batch and text != self._meta("manifest"):
            raise StoreError(
                f"{self.path} holds records of another configuration.\n"
                "Next: choose another output folder, or start again with --fresh."
            )
        self._put_meta("manifest", text)

    def load_samples(
        self,
        source: Iterable[Sample | PlainSample],
        *,
        manifest: Callable[[], RunManifest] | None = None,
    ) -> int:
        """Store all samples, unless they are stored already; all of them or none."""

        def sealed(seal: str) -> None:
            if manifest is not None:
                self.put_manifest(manifest())
            self._put_meta("samples", seal)

        if not self.has_samples:
            with connect.errors_of(self.path):
                samples.load(self._connection, source, sealed=sealed)
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
        """Return one stored sample."""
        for sample in samples.read(self._connection, first=position, last=position):
            return sample
        raise IndexError(position)

    # --- parts -----------------------------------------------------------------------------

    def record_batch(
        self,
        defense: str,
        stage: Stage = Stage.DEFENSE,
        *,
        layer: str = FIRST_LAYER,
        repeat: int = 0,
    ) -> RecordBatch:
        """Return where the answers of one part go."""
        numbers = (self._number(RecordTable.DEFENSES, defense), STAGE_CODE[stage])
        key = (*numbers, self._number(RecordTable.LAYERS, layer), repeat)
        return self._parts.setdefault(key, RecordBatch(key, self._shared_evidence))

    def tries(self, defense: str, layer: str) -> TryBatch:
        """Return where the tries at a defense go, or what models say while it is attacked."""
        key = (self._number(RecordTable.DEFENSES, defense), self._number(RecordTable.LAYERS, layer))
        return self._tries.setdefault(key, TryBatch(*key))

    def add_layer(self, name: str, settings: Mapping[str, object]) -> None:
        """Register a later judging with its settings."""
        number = self._number(RecordTable.LAYERS, name)
        text = json.dumps(dict(settings), sort_keys=True)
        with connect.errors_of(self.path):
            query = "SELECT settings FROM layers WHERE id = ?"
            before = self._connection.execute(query, (number,)).fetchone()[0]
            if before not in {"{}", text}:
                raise StoreError(f"The layer {name!r} exists with other settings. Next: rename it.")
            self._connection.execute("UPDATE layers SET settings = ? WHERE id = ?", (text, number))

    def _number(self, table: RecordTable, name: str) -> int:
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

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, for the other modules of the store."""
        return self._connection

    # --- records ---------------------------------------------------------------------------

    def add(self, record: Record) -> None:
        """Take one record in its readable form; for imports and tests."""
        key = record.key
        part = self.record_batch(key.defense, key.stage, layer=key.layer, repeat=key.repeat)
        part.groups[shared_of(record)].append(row_of(record))
        details = details_of(record)
        if details is not None:
            part.details.append((key.sample, *details))

    @property
    def waiting(self) -> int:
        """Number of records taken and not committed yet."""
        parts = sum([part.waiting for part in self._parts.values()])
        return parts + sum([tries.waiting for tries in self._tries.values()])

    def flush_if_due(self, now_ns: int, *, count: int = _CHUNK) -> bool:
        """Commit when enough has gathered or enough time has passed."""
        waiting = self.waiting
        if not waiting:
            self._due_ns = now_ns + _PATIENCE_NS
            return False
        if waiting < count and now_ns < self._due_ns:
            return False
        self._due_ns = now_ns + _PATIENCE_NS
        self.flush()
        return True

    def flush(self) -> None:
        """Commit everything taken so far, as one link of the hash chain."""
        parts = [part for _, part in sorted(self._parts.items()) if part.waiting]
        tries = [each for _, each in sorted(self._tries.items()) if each.waiting]
        batches: list[RecordBatch | TryBatch] = [*parts, *tries]
        if not batches:
            return
        for batch in batches:
            batch.sort()
        named, fresh = [self._named(part) for part in parts], self._shared_evidence.fresh
        tried = [self._named_tries(each) for each in tries]
        head = integrity.link(self._chain_head(), named, shared_evidence=fresh, tries=tried)
        self._has_failed = True
        with connect.errors_of(self.path):
            self._commit(batches, head)
        self._has_failed = False
        self._batch, self._head = self._batch + 1, head
        fresh.clear()
        for batch in batches:
            batch.clear()

    def _commit(self, batches: list[RecordBatch | TryBatch], head: bytes) -> None:
        connection, number = self._connection, self._batch + 1
        try:
            connection.execute("BEGIN IMMEDIATE")
            for batch in batches:
                batch.store(connection, number)
            self._shared_evidence.store(connection, number)
            link = (number, sum(batch.waiting for batch in batches), head)
            connection.execute("INSERT INTO batches VALUES (?, ?, ?)", link)
            connection.execute("COMMIT")
        except sqlite3.IntegrityError as error:
            raise StoreError(f"{self.path}: a record was to be stored twice ({error}).") from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _named(self, part: RecordBatch) -> integrity.BatchRows:
        return integrity.BatchRows(
            defense=self._names[RecordTable.DEFENSES][part.defense],
            stage=part.stage,
            layer=self._names[RecordTable.LAYERS][part.layer],
            repeat=part.repeat,
            groups=sorted(part.groups.items()),
            details=part.details,
            said=sorted(part.said.items()),
        )

    def _named_tries(self, batch: TryBatch) -> integrity.TryRows:
        defense = self._names[RecordTable.DEFENSES][batch.defense]
        layer = self._names[RecordTable.LAYERS][batch.layer]
        return defense, layer, batch.rows, batch.confirmations

    def _chain_head(self) -> bytes:
        if self._head is None:
            self._head = integrity.genesis(self._meta("manifest") or "", self.samples_seal)
        return self._head

    # --- beginning and end -----------------------------------------------------------------

    def begin(self, planned: int) -> None:
        """Note that a run starts or continues."""
        self.plan(planned)
        self._put_meta("state", RunState.RUNNING)

    def plan(self, planned: int) -> None:
        """Note how many records the run will have when it is complete."""
        self._put_meta("planned", str(planned))

    def finish(self, state: RunState) -> None:
        """Commit everything, wait for the disk, and note how the run ended."""
        self.flush()
        self._put_meta("state", state)
        self.note_head()

    def note_head(self) -> None:
        """Commit everything, note the end of the hash chain, and wait for the disk."""
        self.flush()
        with connect.errors_of(self.path):
            self._connection.execute("PRAGMA synchronous = FULL")
            self._put_meta("head", f"{self._batch}:{(self._head or b'').hex()}")
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


def count_errors(writer: RecordWriter) -> int:
    """Count the errors of a run that may be asked about again."""
    query = f"SELECT count(*) FROM records r WHERE {_FAILED} IN {_STAGES}"  # noqa: S608 - constants of ours
    with connect.errors_of(writer.path):
        return int(writer.connection.execute(query).fetchone()[0])


def supersede_errors(writer: RecordWriter) -> None:
    """Move the errors of a run out of the way, so that it is incomplete where they were.

    All of them or none, and the run is marked as running with them: killed at any moment, it
    is either the run before or one that the same command continues. The moved records keep the
    number of their batch, so the hash chain still covers them.
    """
    connection = writer.connection
    with connect.errors_of(writer.path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(SUPERSEDED)
            connection.execute(
                f"INSERT INTO superseded ({_COLUMNS}, text, evidence)"  # noqa: S608 - constants of ours
                f" SELECT {', '.join(f'r.{name}' for name in _COLUMNS.split(', '))},"
                f" x.text, x.evidence FROM records r{DETAILS_OF_RECORDS} WHERE {_AGAIN}"
            )
            for table in ("details", "records"):
                connection.execute(
                    f"DELETE FROM {table} WHERE ({_KEY}) IN (SELECT {_KEY} FROM superseded)"  # noqa: S608 - constants of ours
                )
            lookups.put_meta(connection, "state", "running")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
