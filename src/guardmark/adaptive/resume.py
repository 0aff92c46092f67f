"""What a record file holds already: tries of each defense, and replies of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.adaptive.model_reply import stored_replies
from guardmark.adaptive.trace import remembered
from guardmark.core.layers import MODEL_LAYERS
from guardmark.core.record import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.adaptive.caller import Place, StoredAnswer
    from guardmark.adaptive.model_reply import StoredReply
    from guardmark.store.records import RecordReader


def earlier_tries(
    reader: RecordReader, names: Sequence[str]
) -> dict[str, dict[Place, StoredAnswer]]:
    """Return the tries that are stored already."""
    return {name: remembered(reader.records(defense=name, stage=Stage.TRY)) for name in names}


def earlier_replies(
    reader: RecordReader, names: Sequence[str]
) -> dict[str, dict[Place, StoredReply]]:
    """Return what models replied already."""
    known = set(reader.layers())
    return {
        name: {
            place: reply
            for layer in MODEL_LAYERS
            if layer in known
            for place, reply in stored_replies(
                reader.records(defense=name, stage=Stage.TRY, layer=layer)
            ).items()
        }
        for name in names
    }
