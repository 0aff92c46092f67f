"""What calls used: of one defense as columns, and of every part together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.store import connect, lookups
from guardmark.store.codes import FLAG_CACHED, STAGE_CODE, STAGES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from guardmark.store.reader import RecordReader


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageColumns:
    """Tokens and money of the calls that reported any."""

    sample: NDArray[np.int64]
    repeat: NDArray[np.int64]
    read: NDArray[np.float64]
    written: NDArray[np.float64]
    cost: NDArray[np.float64]


def usage_columns(reader: RecordReader, defense: str) -> UsageColumns:
    """Read what the calls of a defense used."""
    import numpy as np

    query = (
        "SELECT sample, repeat, json_extract(evidence, '$.usage[0]'),"
        " json_extract(evidence, '$.usage[1]'), json_extract(evidence, '$.usage[2]')"
        " FROM details WHERE defense = (SELECT id FROM defenses WHERE name = ?) AND stage = ?"
        " AND layer = (SELECT id FROM layers WHERE name = ?)"
        # The word is looked for first: parsing every piece of evidence would cost far more.
        " AND instr(evidence, '\"usage\"') AND json_type(evidence, '$.usage') = 'array'"
        " ORDER BY repeat, sample"
    )
    key = (defense, STAGE_CODE[Stage.DEFENSE], FIRST_LAYER)
    with connect.errors_of(reader.path):
        rows = reader.connection.execute(query, key).fetchall()
    table = np.array(rows, dtype=np.float64).reshape(len(rows), 5)
    return UsageColumns(
        sample=table[:, 0].astype(np.int64),
        repeat=table[:, 1].astype(np.int64),
        read=table[:, 2],
        written=table[:, 3],
        cost=table[:, 4],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartUsage:
    """What the calls of one part used at one stage, as far as its service reported.

    Attributes:
        part: Name of the defense, model or judge.
        stage: `defense`, `warmup`, `model`, `judge` or `try`.
        layer: Which judging; `run` for the run itself.
        calls: Answers that report usage and were asked for in this run; those that were asked
            about again count each time.
        recalled: Answers that were kept from an earlier run; in no sum.
        tokens_read: Tokens read, or None where no answer reports any.
        tokens_written: Tokens written, or None where no answer reports any.
        cost: In the currency of the price table, or None where no answer was priced.
        priced: Answers behind `cost`.
    """

    part: str
    stage: str
    layer: str
    calls: int
    recalled: int
    tokens_read: int | None
    tokens_written: int | None
    cost: float | None
    priced: int


_STORED: Final = (
    "SELECT x.defense, x.stage, x.layer, r.flags, x.evidence"  # noqa: S608 - a constant of ours
    " FROM details x JOIN records r USING (defense, stage, layer, repeat, sample)"
    f" UNION ALL SELECT defense, {STAGE_CODE[Stage.TRY]}, layer, flags, evidence FROM tries"
)
_ASKED_AGAIN: Final = " UNION ALL SELECT defense, stage, layer, flags, evidence FROM superseded"
_ALL_USAGE: Final = (
    "SELECT d.name, x.stage, l.name, x.flags & ?, json_extract(x.evidence, '$.usage[0]'),"
    " json_extract(x.evidence, '$.usage[1]'), json_extract(x.evidence, '$.usage[2]') FROM ({}) x"
    " JOIN defenses d ON d.id = x.defense JOIN layers l ON l.id = x.layer"
    " WHERE instr(x.evidence, '\"usage\"') AND json_type(x.evidence, '$.usage') = 'array'"
    " ORDER BY x.defense, x.stage, x.layer"
)


def read_usage(reader: RecordReader) -> tuple[PartUsage, ...]:
    """Add up what all calls of a run used."""
    with connect.errors_of(reader.path):
        again = _ASKED_AGAIN if lookups.has_superseded(reader.connection) else ""
        query = _ALL_USAGE.format(_STORED + again)
        rows = reader.connection.execute(query, (FLAG_CACHED,)).fetchall()
    parts = []
    for (name, stage, layer), calls in groupby(rows, key=lambda row: row[:3]):
        everything = list(calls)
        asked = [row[4:] for row in everything if not row[3]]
        read, written, cost = ([row[at] for row in asked if row[at] is not None] for at in range(3))
        parts.append(
            PartUsage(
                part=name,
                stage=STAGES[stage].value,
                layer=layer,
                calls=len(asked),
                recalled=len(everything) - len(asked),
                tokens_read=sum(read) if read else None,
                tokens_written=sum(written) if written else None,
                cost=math.fsum(cost) if cost else None,
                priced=len(cost),
            )
        )
    return tuple(parts)
