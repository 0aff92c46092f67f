"""What a part says of many samples alike, kept once and named by a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.outcome import Evidence
from guardmark.store.codec import evidence_to_json

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

_MOST: Final = 256  # a part that finds new words for every sample is kept row by row


class SharedEvidence:
    """Reasons that records share: a rule blocks thousands of samples in the same words."""

    __slots__ = ("_by_object", "_numbers", "fresh")

    def __init__(self, stored: Mapping[int, str] | None = None) -> None:
        self._numbers = {text: number for number, text in (stored or {}).items()}
        # By object first: parts hand out the same one, and comparing all of its fields costs
        # more than the rest of a row. The object is kept, so that its number stays its own.
        self._by_object: dict[int, tuple[Evidence, int]] = {}
        self.fresh: list[tuple[int, str]] = []

    def number_of(self, evidence: Evidence) -> int | None:
        """Name evidence that holds a reason and nothing else."""
        known = self._by_object.get(id(evidence))
        if known is not None:
            return known[1]
        if not evidence.reason or evidence != Evidence(reason=evidence.reason):
            return None
        text = evidence_to_json(evidence)
        number = self._numbers.get(text)
        if number is None:
            number = len(self._numbers)
            if number >= _MOST:
                return None
            self._numbers[text] = number
            self.fresh.append((number, text))
        if len(self._by_object) < _MOST:
            self._by_object[id(evidence)] = (evidence, number)
        return number

    def store(self, connection: sqlite3.Connection, batch: int) -> None:
        """Write those that are not committed yet, in the transaction that is open."""
        said = [(*saying, batch) for saying in self.fresh]
        connection.executemany("INSERT INTO sayings VALUES (?, ?, ?)", said)


def sayings_of(connection: sqlite3.Connection) -> dict[int, str]:
    """Read what is stored."""
    return dict(connection.execute("SELECT id, evidence FROM sayings").fetchall())
