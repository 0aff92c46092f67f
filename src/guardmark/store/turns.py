"""Which samples are turns of a conversation, and which are all of its turns in one message."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.core.values import dataclass
from guardmark.store.codec import stored_object
from guardmark.store.connect import values_of

if TYPE_CHECKING:
    from guardmark.store.connect import StoreConnection
    from guardmark.store.reader import RecordReader

_RESTS: Final = "SELECT position, rest FROM samples WHERE rest IS NOT NULL ORDER BY position"
_BY_TURN: Final = ("each", "both")


class StoredTurn(NamedTuple):
    """A sample that is a turn: its position, its conversation, its number, and of how many.

    Attributes:
        position: Of the sample.
        conversation: Id of its conversation.
        turn: Its number, from 1.
        turns: How many turns of the conversation are asked about.
    """

    position: int
    conversation: str
    turn: int
    turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTalks:
    """The turns of a run by position, and the joined message of conversations that have one.

    Attributes:
        turns: The turns, by position.
        joined: Conversation to the position of the message that joins its turns.
    """

    turns: list[StoredTurn] = field(default_factory=list)
    joined: dict[str, int] = field(default_factory=dict)


def asked_turns(reader: RecordReader) -> frozenset[str]:
    """Return how a run asked about conversations turn by turn: `each`, `both`, or nothing."""
    data = reader.manifest().settings.get("data")
    if not isinstance(data, list):
        return frozenset()
    stated = (entry.get("turns") for entry in data if isinstance(entry, dict))
    return frozenset(turns for turns in stated if turns in _BY_TURN)


def read_talks(connection: StoreConnection) -> StoredTalks:
    """Return the turns of a run, those without a label too."""
    talks = StoredTalks()
    with values_of(connection.path):
        for position, rest in connection.rows(_RESTS, ()):
            metadata = stored_object(rest, "rest").get("metadata", {})
            name, turn, turns = (metadata.get(key) for key in ("conversation", "turn", "turns"))
            if not isinstance(name, str):
                continue
            if isinstance(turn, int) and isinstance(turns, int):
                talks.turns.append(StoredTurn(int(position), name, turn, turns))
            elif isinstance(metadata.get("joined"), int):
                talks.joined[name] = int(position)
    return talks
