"""Which samples are turns of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.store.codec import stored_object
from guardmark.store.connect import values_of

if TYPE_CHECKING:
    from guardmark.store.reader import RecordReader

_RESTS: Final = "SELECT position, rest FROM samples WHERE rest IS NOT NULL ORDER BY position"


class StoredTurn(NamedTuple):
    """A sample that is a turn: its position, its conversation, its number, and of how many."""

    position: int
    conversation: str
    turn: int
    turns: int


def asks_by_turn(reader: RecordReader) -> bool:
    """Tell whether a run asked at each turn of some conversations."""
    data = reader.manifest().settings.get("data")
    if not isinstance(data, list):
        return False
    return any(entry.get("turns") == "each" for entry in data if isinstance(entry, dict))


def read_turns(reader: RecordReader) -> list[StoredTurn]:
    """Return the turns of a run, those without a label too, by position."""
    found = []
    with values_of(reader.path):
        for position, rest in reader.connection.rows(_RESTS, ()):
            metadata = stored_object(rest, "rest").get("metadata", {})
            name, turn, turns = (metadata.get(key) for key in ("conversation", "turn", "turns"))
            if isinstance(name, str) and isinstance(turn, int) and isinstance(turns, int):
                found.append(StoredTurn(int(position), name, turn, turns))
    return found
