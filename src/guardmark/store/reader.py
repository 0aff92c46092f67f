"""Reading the records of a run, also while it is written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self

from guardmark.core.errors import StoreError
from guardmark.core.record import FIRST_LAYER, RecordKey, Stage
from guardmark.store import connect, lookups, samples
from guardmark.store.codec import SELECT_RECORDS, manifest_from_json, record_of
from guardmark.store.run_dir import head_of, holder_of
from guardmark.store.schema import FACET_COLUMNS, OUTCOME_NAMES, STAGE_CODE, STAGES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from guardmark.core.manifest import RunManifest
    from guardmark.core.record import Record
    from guardmark.core.sample import Sample

_CHUNK: Final = 2000


class RunState(StrEnum):
    """How a run stands."""

    NEW = "new"
    RUNNING = "running"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """How far a run is."""

    state: RunState
    planned: int
    stored: int
    retried: int = 0
    head: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceCount:
    """Some records of one defense that agree in label, facet and outcome."""

    is_attack: bool
    facet: str
    outcome: str
    count: int


class RecordReader:
    """Reads the records of a run.

    Close it, or use it as a context manager.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect.open_to_read(path)

    def __enter__(self) -> Self:
        """Return the reader itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        connect.close_reading(self._connection, self.path)

    @property
    def connection(self) -> sqlite3.Connection:
        """The read-only connection, for the other modules of the store."""
        return self._connection

    def manifest(self) -> RunManifest:
        """Return what was run."""
        text = self._meta("manifest")
        if text is None:
            raise StoreError(
                f"{self.path} holds no manifest: the run was stopped while it began.\n"
                "Next: give the command of the run again."
            )
        try:
            return manifest_from_json(text)
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(f"{self.path}: the manifest cannot be read ({error}).") from error

    def layer_settings(self, layer: str) -> Mapping[str, object]:
        """Return the settings a later judging was registered with."""
        rows = self._all("SELECT settings FROM layers WHERE name = ?", (layer,))
        settings: dict[str, object] = json.loads(rows[0][0]) if rows else {}
        return settings

    def sample_count(self) -> int:
        """Return the number of stored samples."""
        with connect.errors_of(self.path):
            return samples.count(self._connection)

    def has_samples(self) -> bool:
        """Return whether all samples were stored."""
        return self._meta("samples") is not None

    def samples(self) -> Iterator[Sample]:
        """Yield all samples in order, in full."""
        with connect.errors_of(self.path):
            yield from samples.read(self._connection)

    def sample_at(self, index: int) -> Sample:
        """Return one sample."""
        with connect.errors_of(self.path):
            for sample in samples.read(self._connection, first=index, last=index):
                return sample
        raise IndexError(index)

    def position_of(self, sample_id: str) -> int | None:
        """Return the position of a sample by its id."""
        rows = self._all("SELECT position FROM samples WHERE id = ?", (sample_id,))
        return int(rows[0][0]) if rows else None

    def defenses(self) -> tuple[str, ...]:
        """Return the names of defenses (of arms, in a pipeline), in the order of the run."""
        return tuple(row[0] for row in self._all("SELECT name FROM defenses ORDER BY id"))

    def layers(self) -> tuple[str, ...]:
        """Return the names of layers: `run` first, then later judgings."""
        return tuple(row[0] for row in self._all("SELECT name FROM layers ORDER BY id"))

    def recorded_stages(self) -> tuple[tuple[str, Stage, str], ...]:
        """Return which combinations of defense, stage and layer have records, in order."""
        query = (
            "SELECT d.name, r.stage, l.name FROM"
            " (SELECT DISTINCT defense, stage, layer FROM records) r"
            " JOIN defenses d ON d.id = r.defense JOIN layers l ON l.id = r.layer"
            " ORDER BY r.defense, r.stage, r.layer"
        )
        return tuple((row[0], STAGES[row[1]], row[2]) for row in self._all(query))

    def records(
        self, *, defense: str | None = None, stage: Stage | None = None, layer: str | None = None
    ) -> Iterator[Record]:
        """Yield records in the order defense, stage, layer, repeat, sample."""
        clauses, values = ["1"], list[Any]()
        for column, value in (("d.name", defense), ("l.name", layer)):
            if value is not None:
                clauses.append(f"{column} = ?")
                values.append(value)
        if stage is not None:
            clauses.append("r.stage = ?")
            values.append(STAGE_CODE[stage])
        query = (
            f"{SELECT_RECORDS} WHERE {' AND '.join(clauses)}"
            " ORDER BY r.defense, r.stage, r.layer, r.repeat, r.sample"
        )
        with connect.errors_of(self.path):
            cursor = self._connection.execute(query, values)
            while rows := cursor.fetchmany(_CHUNK):
                for row in rows:
                    yield record_of(row)

    def record(self, key: RecordKey) -> Record | None:
        """Return one record."""
        query = (
            f"{SELECT_RECORDS} WHERE d.name = ? AND r.stage = ? AND l.name = ?"
            " AND r.repeat = ? AND r.sample = ?"
        )
        values = (key.defense, STAGE_CODE[key.stage], key.layer, key.repeat, key.sample)
        rows = self._all(query, values)
        return record_of(rows[0]) if rows else None

    def counts(
        self,
        defense: str,
        *,
        facet: str = "",
        stage: Stage = Stage.DEFENSE,
        layer: str = FIRST_LAYER,
    ) -> list[SliceCount]:
        """Count records by label and outcome, and by a facet if one is named."""
        if facet and facet not in FACET_COLUMNS:
            raise ValueError(f"facet must be one of {', '.join(FACET_COLUMNS)}, got {facet!r}")
        column = f"k.{facet}" if facet else "''"
        query = (
            f"SELECT k.is_attack, {column} AS f, r.outcome, count(*) FROM records r"  # noqa: S608 - a name of ours
            " JOIN samples s ON s.position = r.sample JOIN kinds k ON k.id = s.kind"
            " WHERE r.defense = (SELECT id FROM defenses WHERE name = ?) AND r.stage = ?"
            " AND r.layer = (SELECT id FROM layers WHERE name = ?)"
            " GROUP BY 2, 1, 3 ORDER BY 2, 1, 3"
        )
        return [
            SliceCount(
                is_attack=row[0] == 1, facet=row[1], outcome=OUTCOME_NAMES[row[2]], count=row[3]
            )
            for row in self._all(query, (defense, STAGE_CODE[stage], layer))
        ]

    def status(self) -> RunStatus:
        """Return how far the run is."""
        state = RunState(self._meta("state") or RunState.NEW)
        if state is RunState.RUNNING and holder_of(self.path.parent) is None:
            state = RunState.INTERRUPTED
        query = (
            "SELECT count(*) FROM records WHERE stage <> ? AND layer IN"
            " (SELECT id FROM layers WHERE name = 'run' OR name LIKE 'run/%')"
        )
        stored = int(self._all(query, (STAGE_CODE[Stage.WARMUP],))[0][0])
        with connect.errors_of(self.path):
            retried = lookups.count_superseded(self._connection)
            head = head_of(self._connection)
        planned = int(self._meta("planned") or 0)
        return RunStatus(state=state, planned=planned, stored=stored, retried=retried, head=head)

    def _meta(self, key: str) -> str | None:
        with connect.errors_of(self.path):
            return lookups.meta(self._connection, key)

    def _all(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with connect.errors_of(self.path):
            return self._connection.execute(query, values).fetchall()
