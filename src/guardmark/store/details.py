"""What the details of stored answers hold: streams, attempts, and texts that were rewritten.

A record keeps here what few answers have: the text that goes on, and evidence as JSON.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.store.codec import evidence_from_json, stored_object
from guardmark.store.connect import values_of
from guardmark.store.schema import FLAG_REWRITTEN, OUTCOME_CODE, STAGE_CODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.core.outcome import StreamTrace
    from guardmark.store.reader import RecordReader

_TRY: Final = STAGE_CODE[Stage.TRY]
_DEFENSE: Final = STAGE_CODE[Stage.DEFENSE]
_ERROR: Final = 2  # where the error stands in an attempt
_STREAMED: Final = """
    SELECT x.repeat, x.sample, x.evidence FROM details x
    WHERE x.defense = (SELECT id FROM defenses WHERE name = ?) AND x.stage = ?
        AND x.layer = (SELECT id FROM layers WHERE name = ?)
        AND x.evidence LIKE '%"stream":%'
"""
_TEXTS: Final = """
    SELECT r.repeat, r.sample, x.text
    FROM records r JOIN details x USING (defense, stage, layer, repeat, sample)
    WHERE r.defense = (SELECT id FROM defenses WHERE name = ?) AND r.stage = ?
        AND r.layer = (SELECT id FROM layers WHERE name = ?)
        AND r.outcome = ? AND r.flags & ? AND x.text IS NOT NULL
"""
_ANY_REWRITTEN: Final = (
    "SELECT 1 FROM records WHERE stage = ? AND outcome = ? AND flags & ? LIMIT 1"
)
_ALLOW: Final = OUTCOME_CODE["allow"]


def read_streams(
    reader: RecordReader, defense: str, *, stage: Stage = Stage.DEFENSE
) -> dict[tuple[int, int], StreamTrace]:
    """Return how the answers of a part streamed that did, by repeat and sample."""
    given = (defense, STAGE_CODE[stage], FIRST_LAYER)
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
        answers = []
        with values_of(reader.path):
            for row in group:
                attempts = stored_object(row[3], "evidence").get("attempts", ())
                if len(attempts) > 1 and any(attempt[_ERROR] for attempt in attempts):
                    answers.append(attempts)
        if answers:
            count = reader.connection.value(answers_of, (_TRY, stage, name, layer))
            yield (name, stage, layer), answers, count


def read_rewritten(reader: RecordReader, defense: str) -> dict[tuple[int, int], str]:
    """Return the texts that went on, by repeat and sample."""
    given = (defense, _DEFENSE, FIRST_LAYER, _ALLOW, FLAG_REWRITTEN)
    texts: dict[tuple[int, int], str] = {}
    with values_of(reader.path):
        for repeat, sample, text in reader.connection.rows(_TEXTS, given):
            texts[repeat, sample] = str(text)
    return texts


def holds_rewritten(reader: RecordReader) -> bool:
    """Tell whether any defense of a run let another text go on."""
    return reader.connection.value(_ANY_REWRITTEN, (_DEFENSE, _ALLOW, FLAG_REWRITTEN)) is not None
