"""Writing the records of a run: in batches, each row exactly once."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from contextlib import AbstractContextManager
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import StoreError
from guardmark.core.outcome import Decision, Evidence, Response
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.store import codec, connect, integrity, samples, schema
from guardmark.store.connect import insert
from guardmark.store.loop_load import LOOP_LOAD, LoopLoad
from guardmark.store.reader import REMARKS, RunState
from guardmark.store.tries import TryBatch
from guardmark.store.under_way import UNDER_WAY, CallsUnderWay, take_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from guardmark.core.manifest import RunManifest
    from guardmark.core.sample import Sample
    from guardmark.store.codec import Answer
    from guardmark.store.connect import StoreConnection
    from guardmark.store.samples import Chunk, PlainSample

_COMMIT_SIZE: Final = 1000
_MOST_REMARKS: Final = 100
_LONGEST_REMARK: Final = 1_000
_SESSIONS: Final = "sessions"  # key under which is kept how often conversations were begun
_PATIENCE_NS: Final = 400_000_000  # since the last commit: then fewer records are committed, too
_ERROR: Final = schema.OUTCOME_CODE["error"]
_CHUNK_SIZE: Final = 250  # samples in a chunk
_MOST: Final = 256  # a part that finds new words for every sample is kept row by row
_BY_SAMPLE: Final = itemgetter(0)
_BATCH_KEY: Final = "defense, stage, layer, repeat, batch"
_RECORDS: Final = (
    f"records ({_BATCH_KEY}, score_kind, error_kind, answer_mode, flags,"
    " sample, outcome, score, latency_ns, said)"
)
_OWN: Final = "column1, column2, column3, column4"
_DETAILS: Final = f"details ({_BATCH_KEY}, sample, text, evidence)"

Row = tuple[int, int, float | None, int | None]
SaidRow = tuple[int, int, float | None, int | None, int]
Shared = tuple[int, int, int, int]


class RecordWriter(AbstractContextManager["RecordWriter", None]):
    """The one writer of a run's records.

    Answers are taken by a batch for each part, and `flush` commits them, all or nothing;
    `stored.pending` says what is missing, so that a run that was stopped goes on from there.
    Not for use by two threads. Close it, or use it as a context manager.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = connection = connect.open_to_write(path)
        self.stored = Stored(connection)
        self.sample_count = samples.count(connection)
        self.labelled_count = samples.count_labelled(connection)
        self._parts: dict[tuple[int, int, int, int], RecordBatch] = {}
        self._tries: dict[tuple[int, int], TryBatch] = {}
        self._names = {table: connection.names(table) for table in ("defenses", "layers")}
        self._shared_evidence = SharedEvidence(connection.shared_evidence())
        self._batch: int = connection.value("SELECT max(id) FROM batches") or 0
        self._head = bytes.fromhex(connection.head())
        self._has_failed = False
        self._due_ns = 0
        path = path.with_name(UNDER_WAY)
        self.unanswered = take_over(connection, path)
        self.under_way = CallsUnderWay(path)

    def __exit__(self, *_: object) -> None:
        """Commit what was taken, and close."""
        self.close()

    @property
    def manifest(self) -> RunManifest | None:
        """What was run, or None when it was not stored yet."""
        text = self.connection.meta("manifest")
        return codec.manifest_from_json(text) if text else None

    def put_manifest(self, manifest: RunManifest) -> None:
        """Store what is run; possible until the first record."""
        text = codec.manifest_to_json(manifest)
        if self._batch and text != self.connection.meta("manifest"):
            raise StoreError(
                f"{self.path} holds records of another configuration.\n"
                "Next: choose another output folder, or start again with --fresh."
            )
        self.connection.put_meta("manifest", text)

    def load_samples(
        self,
        source: Iterable[Sample | PlainSample],
        *,
        manifest: Callable[[], RunManifest] | None = None,
    ) -> int:
        """Store all samples, unless they are stored already; all of them or none."""
        if self.connection.meta("samples") is None:
            with self.connection.transaction():
                seal = samples.load(self.connection, source)
                if manifest is not None:
                    self.put_manifest(manifest())
                self.connection.put_meta("samples", seal)
            self.sample_count = samples.count(self.connection)
            self.labelled_count = samples.count_labelled(self.connection)
        return self.sample_count

    def note_remarks(self, remarks: Sequence[str]) -> None:
        """Keep what was seen of parts before the run, at its beginning: nothing is added later."""
        if self.connection.meta(REMARKS) is None:
            cut = [remark[:_LONGEST_REMARK] for remark in remarks[:_MOST_REMARKS]]
            self.connection.put_meta(REMARKS, json.dumps(cut))

    def begin_sessions(self) -> int:
        """Return how often conversations were begun in this run, this time included."""
        noted = self.connection.meta(_SESSIONS) or "0"
        times = int(noted) + 1 if noted.isdecimal() else 1
        self.connection.put_meta(_SESSIONS, str(times))
        return times

    def sample(self, position: int) -> Sample:
        """Return one stored sample."""
        return samples.read_one(self.connection, position)

    def record_batch(
        self,
        defense: str,
        stage: Stage = Stage.DEFENSE,
        *,
        layer: str = FIRST_LAYER,
        repeat: int = 0,
    ) -> RecordBatch:
        """Return where the answers of one part go."""
        numbers = (self._number("defenses", defense), schema.STAGE_CODE[stage])
        key = (*numbers, self._number("layers", layer), repeat)
        return self._parts.setdefault(key, RecordBatch(key, self._shared_evidence))

    def tries(self, defense: str, layer: str) -> TryBatch:
        """Return where the tries at a defense go, or what models say while it is attacked."""
        key = (self._number("defenses", defense), self._number("layers", layer))
        return self._tries.setdefault(key, TryBatch(*key))

    def add_layer(self, name: str, settings: Mapping[str, object]) -> None:
        """Register a later judging with its settings."""
        number = self._number("layers", name)
        text = json.dumps(dict(settings), sort_keys=True)
        before = self.connection.value("SELECT settings FROM layers WHERE id = ?", (number,))
        if before not in {"{}", text}:
            raise StoreError(f"The layer {name!r} exists with other settings. Next: rename it.")
        self.connection.rows("UPDATE layers SET settings = ? WHERE id = ?", (text, number))

    def defenses(self) -> tuple[str, ...]:
        """Return the names under which answers are stored, in the order they were registered."""
        return tuple(self._names["defenses"].values())

    def layers(self) -> tuple[str, ...]:
        """Return the names of layers, in the order they were registered."""
        return tuple(self._names["layers"].values())

    def _number(self, table: str, name: str) -> int:
        names = self._names[table]
        for number, known in names.items():
            if known == name:
                return number
        number = max(names, default=-1) + 1
        query = f"INSERT INTO {table} (id, name) VALUES (?, ?)"  # noqa: S608 - a name of ours
        self.connection.rows(query, (number, name))
        names[number] = name
        return number

    @property
    def waiting(self) -> int:
        """Number of records taken and not committed yet."""
        # Asked after every answer: loops over counts that batches keep, not over their rows.
        waiting = 0
        for part in self._parts.values():
            waiting += part.waiting
        for tries in self._tries.values():
            waiting += tries.waiting
        return waiting

    def flush_if_due(self, now_ns: int, *, count: int = _COMMIT_SIZE) -> bool:
        """Commit when enough has gathered or enough time has passed."""
        waiting = self.waiting
        is_due = waiting >= count or (waiting > 0 and now_ns >= self._due_ns)
        if is_due or not waiting:
            self._due_ns = now_ns + _PATIENCE_NS
        if is_due:
            self.flush()
        return is_due

    def flush(self) -> None:
        """Commit everything taken so far, as one link of the hash chain."""
        parts = [part for _, part in sorted(self._parts.items()) if part.waiting]
        tries = [batch for _, batch in sorted(self._tries.items()) if batch.waiting]
        batches: list[RecordBatch | TryBatch] = [*parts, *tries]
        if not batches:
            return
        for batch in batches:
            batch.sort()
        fresh = self._shared_evidence.fresh
        content: list[object] = [self._content(part) for part in parts]
        if fresh:
            content.append(fresh)
        if tries:
            content.append(("tries", *map(self._content_of_tries, tries)))
        if not self._head:
            self._head = integrity.genesis(self.connection)
        head = integrity.link(self._head, content)
        self._has_failed = True
        self._commit(batches, head)
        self._has_failed = False
        self._batch, self._head = self._batch + 1, head
        fresh.clear()
        for batch in batches:
            batch.clear()
        self.under_way.settle()

    def _commit(self, batches: list[RecordBatch | TryBatch], head: bytes) -> None:
        connection, number = self.connection, self._batch + 1
        try:
            with connection.transaction():
                for batch in batches:
                    batch.store(connection, number)
                self._shared_evidence.store(connection, number)
                link = (number, sum(batch.waiting for batch in batches), head)
                connection.execute("INSERT INTO batches VALUES (?, ?, ?)", link)
                # Until `head` is noted again, a killed process leaves no end of the chain.
                connection.execute("DELETE FROM meta WHERE key = 'head'")
        except sqlite3.IntegrityError as error:
            raise StoreError(f"{self.path}: a record was to be stored twice ({error}).") from error

    def _content(self, part: RecordBatch) -> tuple[object, ...]:
        defense, stage, layer, repeat = part.key
        named = self._names["defenses"][defense], stage, self._names["layers"][layer], repeat
        reasons = [sorted(part.reasons.items())] if part.reasons else []
        return (*named, sorted(part.groups.items()), part.details, *reasons)

    def _content_of_tries(self, batch: TryBatch) -> tuple[object, ...]:
        names = self._names["defenses"][batch.defense], self._names["layers"][batch.layer]
        return (*names, batch.rows, batch.confirmations)

    def plan(self, planned: int) -> None:
        """Note that a run is under way, and how many records it will have when it is complete."""
        self.connection.put_meta("planned", str(planned))
        self.connection.put_meta("state", RunState.RUNNING)

    def note_load(self, load: LoopLoad) -> None:
        """Add how busy this process was while it waited for services."""
        before = LoopLoad.read(self.connection.meta(LOOP_LOAD))
        sum_of_both = LoopLoad(load.busy_ns + before.busy_ns, load.total_ns + before.total_ns)
        self.connection.put_meta(LOOP_LOAD, sum_of_both.text)

    def finish(self, state: RunState) -> None:
        """Commit everything, wait for the disk, and note how the run ended."""
        self.flush()
        self.connection.put_meta("state", state)
        self.note_head()

    def note_head(self) -> None:
        """Commit everything, note the end of the hash chain, and wait for the disk."""
        self.flush()
        with connect.errors_of(self.path):
            self.connection.execute("PRAGMA synchronous = FULL")
            self.connection.put_meta("head", f"{self._batch}:{self._head.hex()}")
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.connection.execute("PRAGMA synchronous = NORMAL")

    def close(self) -> None:
        """Commit what was taken, unless a commit failed before, and close the file."""
        try:
            if not self._has_failed:
                self.flush()
        finally:
            self.under_way.close(is_stored=not self._has_failed)
            self.connection.close()


def count_errors(writer: RecordWriter) -> int:
    """Count the errors of a run that may be asked about again."""
    return int(writer.connection.value(schema.query("count_errors")))


def supersede_errors(writer: RecordWriter) -> None:
    """Move the errors of a run out of the way, so that it is incomplete where they were.

    The moved records keep the number of their batch, so the hash chain still covers them.
    """
    connection = writer.connection
    with connection.transaction():
        connection.execute(schema.definitions()["superseded"])
        for statement in schema.table_of("statements.toml")["supersede_errors"]:
            connection.execute(statement)
        connection.put_meta("state", "running")


class Stored:
    """Questions about what is committed; rows a batch has only taken do not count."""

    def __init__(self, connection: StoreConnection) -> None:
        self._connection = connection

    @property
    def is_complete(self) -> bool:
        """Whether the run came to its end."""
        return self._connection.meta("state") == RunState.COMPLETE

    def count(self, batch: RecordBatch) -> int:
        """Count the records of a part."""
        return int(self._connection.value(schema.query("count_of_part"), batch.key))

    def has_tries(self, layer: str) -> bool:
        """Tell whether anything stands in a layer of tries."""
        query = "SELECT 1 FROM tries WHERE layer = (SELECT id FROM layers WHERE name = ?) LIMIT 1"
        return self._connection.value(query, (layer,)) is not None

    def count_by_outcome(self, batch: RecordBatch) -> list[int]:
        """Count the records of a part by outcome: of benign samples, of attacks, of unlabelled."""
        outcomes = len(schema.OUTCOME_NAMES)
        counts = [0] * (3 * outcomes)
        rows = self._connection.rows(schema.query("counts_of_part"), batch.key)
        for label, outcome, number in rows:
            counts[outcome + outcomes * label] = number
        return counts

    def groups(self) -> list[str]:
        """Return the group of every sample, in order of position."""
        query = "SELECT coalesce(origin, id) FROM samples ORDER BY position"
        return [group for (group,) in self._connection.rows(query)]

    def outcomes(self, batch: RecordBatch, positions: Sequence[int]) -> dict[int, int]:
        """Return the outcome codes of some samples in a part."""
        return self._picked("outcomes_of_part", batch, positions)

    def texts(self, batch: RecordBatch, positions: Sequence[int]) -> dict[int, str]:
        """Return the stored answers of some samples in a part."""
        return self._picked("texts_of_part", batch, positions)

    def rewritten(self, batch: RecordBatch, positions: Sequence[int]) -> dict[int, str]:
        """Return what goes on in place of some samples that a guard rewrote."""
        return self._picked("rewritten_of_part", batch, positions)

    def count_rewritten(self, batch: RecordBatch) -> int:
        """Count the samples that a guard rewrote."""
        return int(self._connection.value(schema.query("count_rewritten"), batch.key))

    def answer(self, batch: RecordBatch, position: int) -> Answer | None:
        """Return what a part answered about a sample, or None."""
        condition = (
            "r.defense = ? AND r.stage = ? AND r.layer = ? AND r.repeat = ? AND r.sample = ?"
        )
        query = schema.query("records").format(condition=condition)
        for row in self._connection.rows(query, (*batch.key, position)):
            return codec.answer_of(codec.record_of(row))
        return None

    def _picked(self, query: str, batch: RecordBatch, positions: Sequence[int]) -> dict[int, Any]:
        values = (*batch.key, json.dumps(positions))
        return dict(self._connection.rows(schema.query(query), values))

    def pending(
        self,
        batch: RecordBatch | None,
        *,
        size: int = _CHUNK_SIZE,
        order: Sequence[int] | None = None,
    ) -> Iterator[Chunk]:
        """Yield the samples that have no record of a part, in an order of positions."""
        total = samples.count(self._connection)
        query = schema.query("samples_asked")
        key: tuple[int, ...] = ()
        if batch is not None:
            stored = self.count(batch)
            if stored >= total:
                return
            if stored:
                query = schema.query("samples_missing")
                key = batch.key
        kinds = samples.kinds_of(self._connection)
        attacks = {number for number, kind in kinds.items() if kind[0]}
        if order is None:
            order = range(total)
        for start in range(0, total, size):
            wanted = list(order[start : start + size])
            picked = self._connection.rows(query, (json.dumps(wanted), *key))
            by_position = {row[0]: row for row in picked}
            rows = [by_position[position] for position in wanted if position in by_position]
            if rows:
                yield samples.chunk_of(rows, attacks, self._connection.path)


class RecordBatch:
    """Encodes answers of one part into rows that its writer has not yet committed."""

    __slots__ = ("_number_of", "details", "groups", "key", "reasons", "repeat", "waiting")

    def __init__(self, key: tuple[int, int, int, int], shared_evidence: SharedEvidence) -> None:
        self.key, self.repeat = key, key[-1]  # defense, stage, layer and repeat, as numbers
        self._number_of = shared_evidence.number_of
        self.groups: defaultdict[Shared, list[Row]] = defaultdict(list)
        self.reasons: defaultdict[Shared, list[SaidRow]] = defaultdict(list)
        self.details: list[tuple[int, str | None, str | None]] = []
        self.waiting = 0
        """Number of rows taken and not committed."""

    def sort(self) -> None:
        """Bring what is taken into the order in which it is committed."""
        for rows in self._taken():
            rows.sort(key=_BY_SAMPLE)
        self.details.sort(key=_BY_SAMPLE)

    def _taken(self) -> list[list[Any]]:
        return [*self.groups.values(), *self.reasons.values()]

    def store(self, connection: sqlite3.Connection, batch: int) -> None:
        """Write what is taken, in the transaction that is open."""
        # What rows share stands in the statement: binding is most of what a row costs.
        key = f"{', '.join(map(str, self.key))}, ?"
        parts: list[tuple[str, str, Any]] = []
        for groups, reasons in ((self.groups, "NULL"), (self.reasons, "column5")):
            for shared, rows in groups.items():
                codes = ", ".join("NULL" if code < 0 else str(code) for code in shared)
                parts.append((_RECORDS, f"{key}, {codes}, {_OWN}, {reasons}", rows))
        parts.append((_DETAILS, f"{key}, column1, column2, column3", self.details))
        for into, chosen, rows in parts:
            insert(connection, into, chosen=chosen, rows=rows, shared=(batch,))

    def clear(self) -> None:
        """Forget what was committed."""
        self.groups.clear()
        self.reasons.clear()
        self.details.clear()
        self.waiting = 0

    def add(self, sample: int, answer: Answer, *, latency_ns: int | None, flags: int = 0) -> int:
        """Take the answer of a part, and return its outcome; the next flush commits it."""
        evidence, reasons, text, more = answer.evidence, None, None, None
        try:
            row = codec.encode(answer, latency_ns, flags)
            if isinstance(answer, Decision):
                if answer.text is not None and row[0] != _ERROR:
                    text = answer.text
                if evidence is not None and row[0] != _ERROR:
                    reasons = self._number_of(evidence)
            elif isinstance(answer, Response):
                text = answer.text
            if evidence is not None and reasons is None:
                more = codec.evidence_text(evidence)
        except codec.ILL_TYPED as mistake:
            row, more = codec.encode_mistake(answer, mistake, latency_ns, flags)
        if text is not None or more is not None:
            self.details.append((sample, text, more))
        outcome, score, score_kind, error, mode, took, flags = row
        shared = (score_kind, -1 if error is None else error, -1 if mode is None else mode, flags)
        if reasons is None:
            self.groups[shared].append((sample, outcome, score, took))
        else:
            self.reasons[shared].append((sample, outcome, score, took, reasons))
        self.waiting += 1
        return outcome


class SharedEvidence:
    """Reasons that records share: a rule blocks thousands of samples in the same words."""

    __slots__ = ("_by_object", "_numbers", "fresh")

    def __init__(self, stored: Mapping[int, str] | None = None) -> None:
        self._numbers = {text: number for number, text in (stored or {}).items()}
        # By object first: parts hand out the same one, and comparing all of its fields costs
        # more than the rest of a row. The object is kept, so that its number stays its own.
        self._by_object: dict[int, tuple[Evidence, int]] = {}
        self.fresh: list[tuple[int, str]] = []

    def number_of(self, evidence: Evidence) -> int | None:
        """Name evidence that holds a reason and nothing else."""
        known = self._by_object.get(id(evidence))
        if known is not None:
            return known[1]
        if not evidence.reason or evidence != Evidence(reason=evidence.reason):
            return None
        text = codec.evidence_to_json(evidence)
        number = self._numbers.get(text)
        if number is None:
            number = len(self._numbers)
            if number >= _MOST:
                return None
            self._numbers[text] = number
            self.fresh.append((number, text))
        if len(self._by_object) < _MOST:
            self._by_object[id(evidence)] = (evidence, number)
        return number

    def store(self, connection: sqlite3.Connection, batch: int) -> None:
        """Write those that are not committed yet, in the transaction that is open."""
        rows = [(*row, batch) for row in self.fresh]
        connection.executemany("INSERT INTO sayings VALUES (?, ?, ?)", rows)
