"""What the evidence of stored answers tells: how they streamed, how often they were asked for."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.store.codec import evidence_from_json, stored_object
from guardmark.store.connect import values_of
from guardmark.store.schema import STAGE_CODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.core.outcome import StreamTrace
    from guardmark.store.reader import RecordReader

_TRY: Final = STAGE_CODE[Stage.TRY]
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


def read_attempts(reader: RecordReader) -> Iterator[tuple[tuple[str, int, str], list[Any], int]]:
    """Yield the attempts of answers of which some failed, by part, and how many answers it gave.

    An attempt is its time, its status, its error, and the wait before it.
    """
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    resent, answers_of = script.split(";")[:2]
    rows = reader.connection.rows(resent, (_TRY,))
    for (name, stage, layer), group in groupby(rows, key=itemgetter(0, 1, 2)):
        with values_of(reader.path):
            told = [stored_object(row[3], "evidence").get("attempts", ()) for row in group]
        answers = [tries for tries in told if len(tries) > 1 and any(each[2] for each in tries)]
        if answers:
            count = reader.connection.value(answers_of, (_TRY, stage, name, layer))
            yield (name, stage, layer), answers, count
