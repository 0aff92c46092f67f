"""Texts that a defense let go on in place of those that it was shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.store.connect import values_of
from guardmark.store.schema import FLAG_REWRITTEN, OUTCOME_CODE, STAGE_CODE

if TYPE_CHECKING:
    from guardmark.store.reader import RecordReader

_TEXTS: Final = """
    SELECT r.repeat, r.sample, x.text
    FROM records r JOIN details x USING (defense, stage, layer, repeat, sample)
    WHERE r.defense = (SELECT id FROM defenses WHERE name = ?) AND r.stage = ?
        AND r.layer = (SELECT id FROM layers WHERE name = ?)
        AND r.outcome = ? AND r.flags & ? AND x.text IS NOT NULL
"""
_ANY: Final = "SELECT 1 FROM records WHERE stage = ? AND outcome = ? AND flags & ? LIMIT 1"
_STAGE: Final = STAGE_CODE[Stage.DEFENSE]
_ALLOW: Final = OUTCOME_CODE["allow"]


def read_rewritten(reader: RecordReader, defense: str) -> dict[tuple[int, int], str]:
    """Return the texts that went on, by repeat and sample."""
    given = (defense, _STAGE, FIRST_LAYER, _ALLOW, FLAG_REWRITTEN)
    texts: dict[tuple[int, int], str] = {}
    with values_of(reader.path):
        for repeat, sample, text in reader.connection.rows(_TEXTS, given):
            texts[repeat, sample] = str(text)
    return texts


def holds_rewritten(reader: RecordReader) -> bool:
    """Tell whether any defense of a run let another text go on."""
    return reader.connection.value(_ANY, (_STAGE, _ALLOW, FLAG_REWRITTEN)) is not None
