"""Reading the records of a run, also while it is written."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, cast

from guardmark.core.errors import StoreError
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.values import dataclass
from guardmark.store import connect, samples, schema
from guardmark.store.codec import manifest_from_json, record_of, stored_object
from guardmark.store.loop_load import LOOP_LOAD, LoopLoad
from guardmark.store.run_dir import is_held
from guardmark.store.schema import ERROR_KIND_CODE, OUTCOME_NAMES, STAGE_CODE, STAGES
from guardmark.store.under_way import POSSIBLY_BILLED, UNDER_WAY, count_unanswered

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from guardmark.core.manifest import RunManifest
    from guardmark.core.record import Record
    from guardmark.core.sample import Sample


REMARKS: Final = "remarks"
"""Key under which is kept what was seen of parts before the run."""


class RunState(StrEnum):
    """How a run stands."""

    NEW = "new"
    RUNNING = "running"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """How far a run is, in records."""

    state: RunState  # whether it came to its end
    planned: int  # records planned
    stored: int  # records stored
    retried: int = 0  # asked about again after an error
    head: str = ""
    possibly_billed: int = 0
    # What was seen of parts that were asked a few known texts before the run.
    remarks: tuple[str, ...] = ()
    # How busy this process was while it waited for services; nothing where it did not.
    load: LoopLoad = field(default=LoopLoad(), metadata={"json": False})


class RecordReader(AbstractContextManager["RecordReader", None]):
    """Reads the records of a run. Close it, or use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = connect.open_to_read(path)
        with connect.closed_on_error(self.connection):
            self.connection.check_values()

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        connect.close_reading(self.connection, self.path)

    def manifest(self) -> RunManifest:
        """Return what was run."""
        text = self.connection.meta("manifest")
        if text is None:
            raise StoreError(
                f"{self.path} holds no manifest: the run was stopped while it began.\n"
                "Next: give the command of the run again."
            )
        with connect.values_of(self.path):
            return manifest_from_json(text)

    def layer_settings(self, layer: str) -> Mapping[str, Any]:
        """Return the settings a later judging was registered with."""
        text = self.connection.value("SELECT settings FROM layers WHERE name = ?", (layer,))
        with connect.values_of(self.path):
            return stored_object(text, "settings", layer)

    def sample_count(self) -> int:
        """Return the number of stored samples with a label."""
        return samples.count_labelled(self.connection)

    def unlabelled_count(self) -> int:
        """Return the number of stored samples without a label, which stand behind the others."""
        return samples.count(self.connection) - self.sample_count()

    def has_samples(self) -> bool:
        """Return whether all samples were stored."""
        return self.connection.meta("samples") is not None

    def samples(self) -> Iterator[Sample]:
        """Yield all samples with a label in order, in full."""
        return samples.read(self.connection, last=self.sample_count() - 1)

    def every_sample(self) -> Iterator[Sample]:
        """Yield all samples in order, in full, those without a label last."""
        return samples.read(self.connection)

    def sample_at(self, index: int) -> Sample:
        """Return one sample."""
        return samples.read_one(self.connection, index)

    def position_of(self, sample_id: str) -> int | None:
        """Return the position of a sample by its id."""
        query = "SELECT position FROM samples WHERE id = ?"
        return cast("int | None", self.connection.value(query, (sample_id,)))

    def defenses(self) -> tuple[str, ...]:
        """Return the names of defenses (of arms, in a pipeline), in the order of the run."""
        return tuple(self.connection.names("defenses").values())

    def layers(self) -> tuple[str, ...]:
        """Return the names of layers: `run` first, then later judgings."""
        return tuple(self.connection.names("layers").values())

    def recorded_stages(self) -> tuple[tuple[str, Stage, str], ...]:
        """Return which combinations of defense, stage and layer have records, in order."""
        rows = self.connection.rows(schema.query("recorded_stages"))
        return tuple((defense, STAGES[stage], layer) for defense, stage, layer in rows)

    @property
    def holds_cases(self) -> bool:
        """Whether a run is one of agents."""
        return any(stage is Stage.CASE for _, stage, _ in self.recorded_stages())

    @property
    def holds_malformed(self) -> bool:
        """Whether a guard or a judge gave an answer that could not be read."""
        return self.connection.value(schema.query("any_malformed")) is not None

    def records(
        self,
        *,
        defense: str | None = None,
        stage: Stage | None = None,
        layer: str | None = None,
        samples: Collection[int] | None = None,
        is_every: bool = False,
    ) -> Iterator[Record]:
        """Yield records in the order defense, stage, layer, repeat, sample.

        `samples` are the positions of those wanted. Those of samples without a label are left out,
        unless every record is asked for.
        """
        code = None if stage is None else STAGE_CODE[stage]
        named = {"d.name": defense, "r.stage": code, "l.name": layer}
        wanted = {column: value for column, value in named.items() if value is not None}
        conditions, values = [f"{column} = ?" for column in wanted], [*wanted.values()]
        if samples is not None:
            conditions.append("r.sample IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(sorted(samples)))
        if not is_every and self.unlabelled_count():
            conditions.append(f"r.sample < {self.sample_count()}")
        condition = " AND ".join(["1", *conditions])
        query = schema.query("records").format(condition=condition)
        with connect.values_of(self.path):
            for rows in self.connection.chunks(query, tuple(values)):
                yield from map(record_of, rows)

    def counts(
        self, defense: str, *, stage: Stage = Stage.DEFENSE, layer: str = FIRST_LAYER
    ) -> Counter[tuple[bool, str]]:
        """Count records of labelled samples by whether these are attacks, and by outcome."""
        rows = self.connection.rows(schema.query("counts"), (defense, STAGE_CODE[stage], layer))
        return Counter(
            {(bool(is_attack), OUTCOME_NAMES[code]): count for is_attack, code, count in rows}
        )

    def status(self) -> RunStatus:
        """Return how far the run is."""
        connection = self.connection
        with connect.values_of(self.path):
            state = RunState(connection.meta("state") or RunState.NEW)
            planned = int(connection.meta("planned") or 0)
            billed = int(connection.meta(POSSIBLY_BILLED) or 0)
            load = LoopLoad.read(connection.meta(LOOP_LOAD))
            remarks = tuple(map(str, json.loads(connection.meta(REMARKS) or "[]")))
        is_in_use = is_held(self.path.parent)
        if state is RunState.RUNNING and not is_in_use:
            state = RunState.INTERRUPTED
        under_way = self.path.with_name(UNDER_WAY)
        unanswered = 0 if is_in_use else count_unanswered(connection, under_way)
        retried = "SELECT count(*) FROM superseded WHERE error_kind IS NOT ?"
        skipped = ERROR_KIND_CODE["skipped"]
        return RunStatus(
            state=state,
            planned=planned,
            stored=connection.value(schema.query("count_stored")),
            retried=connection.value(retried, (skipped,)) if connection.has_superseded else 0,
            head=connection.head(),
            possibly_billed=billed + unanswered,
            remarks=remarks,
            load=load,
        )
