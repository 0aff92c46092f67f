"""How the answers of a defense streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.store.codec import evidence_from_json
from guardmark.store.connect import values_of
from guardmark.store.schema import STAGE_CODE

if TYPE_CHECKING:
    from guardmark.core.outcome import StreamTrace
    from guardmark.store.reader import RecordReader

_STREAMED: Final = """
    SELECT x.repeat, x.sample, x.evidence FROM details x
    WHERE x.defense = (SELECT id FROM defenses WHERE name = ?) AND x.stage = ?
        AND x.layer = (SELECT id FROM layers WHERE name = ?)
        AND x.evidence LIKE '%"stream":%'
"""


def read_streams(reader: RecordReader, defense: str) -> dict[tuple[int, int], StreamTrace]:
    """Return how the answers streamed that did, by repeat and sample."""
    given = (defense, STAGE_CODE[Stage.DEFENSE], FIRST_LAYER)
    streams: dict[tuple[int, int], StreamTrace] = {}
    with values_of(reader.path):
        for repeat, sample, evidence in reader.connection.rows(_STREAMED, given):
            for trace in evidence_from_json(str(evidence)).stream:
                streams[repeat, sample] = trace
    return streams
