"""What the calls of a defense consumed, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.store import connect
from guardmark.store.codes import STAGE_CODE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from guardmark.store.reader import RecordReader


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageColumns:
    """Tokens and money of the calls that reported any.

    Attributes:
        sample: Position of the sample.
        repeat: Which repetition.
        read: Tokens read; nan where not reported.
        written: Tokens written; nan where not reported.
        cost: Money as stored; nan where not reported.
    """

    sample: NDArray[np.int64]
    repeat: NDArray[np.int64]
    read: NDArray[np.float64]
    written: NDArray[np.float64]
    cost: NDArray[np.float64]


def usage_columns(reader: RecordReader, defense: str) -> UsageColumns:
    """Read what the calls of a defense consumed.

    Args:
        reader: An open reader.
        defense: Name of the defense.

    Returns:
        One place a call that reported usage; none for a defense that never does.
    """
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
