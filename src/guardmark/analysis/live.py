"""Decisions on live traffic, read line by line and counted as their labels come."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from hashlib import blake2b
from typing import Final, NamedTuple

from guardmark.core.outcome import Outcome
from guardmark.core.record import Stage
from guardmark.core.sample import Label
from guardmark.store.schema import OUTCOME_CODE

_LABELS: Final = {Label.BENIGN: 0, Label.ATTACK: 1}
_UNLABELLED: Final = 2
_MOST_DEFENSES: Final = 100
_LONGEST_NAME: Final = 200


class StreamedLine(NamedTuple):
    """A line of a stream: a decision, a label, or both; None for what it does not say."""

    key: bytes  # Hash of the id.
    defense: str
    outcome: int | None
    label: int | None


def parse_line(line: bytes) -> StreamedLine | None:
    """Read a line of JSON; None where it cannot be used."""
    try:
        row = json.loads(line)
        name, defense = row["id"], row.get("defense", "traffic")
        if not (isinstance(name, str | int) and isinstance(defense, str) and defense):
            return None
        key = blake2b(str(name).encode("utf-8", "surrogatepass"), digest_size=16)
        is_decision = row.get("stage", Stage.DEFENSE) == Stage.DEFENSE
        outcome, label = row.get("outcome") if is_decision else None, row.get("label")
        code = None if outcome is None else OUTCOME_CODE[Outcome(outcome)]
        side = None if label is None else _LABELS[Label(label)]
        return StreamedLine(key.digest(), defense[:_LONGEST_NAME], code, side)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


class LiveCounts:
    """Counts of each defense by label and outcome; of what came last it knows every id."""

    def __init__(self, *, remembered: int = 250_000) -> None:
        self.rows: dict[str, list[list[int]]] = {}
        self.notes = Counter(lines=0, unreadable=0, repeated=0, contradicted=0, relabelled=0)
        self._remembered = remembered
        # Label, and outcome by defense.
        self._known: OrderedDict[bytes, tuple[int, dict[str, int]]] = OrderedDict()

    def take(self, line: StreamedLine | None) -> None:
        """Count a line; of two decisions about one id the first counts, of two labels the last."""
        self.notes["lines"] += 1
        is_new = line is not None and line.outcome is not None and line.defense not in self.rows
        if line is None or (is_new and len(self.rows) >= _MOST_DEFENSES):
            self.notes["unreadable"] += 1
            return
        known = self._known.pop(line.key, None)
        before, decided = known or (_UNLABELLED, {})
        label = before if line.label is None else line.label
        self.notes["waiting"] -= known is not None and not decided
        self.notes["relabelled"] += _UNLABELLED != before != label
        for name, outcome in decided.items():
            self.rows[name][before][outcome] -= 1
        if line.outcome is not None:
            if (earlier := decided.get(line.defense)) is not None:
                self.notes["repeated" if earlier == line.outcome else "contradicted"] += 1
            decided.setdefault(line.defense, line.outcome)
        for name, outcome in decided.items():
            self.rows.setdefault(name, [[0] * 4 for _ in range(3)])[label][outcome] += 1
        self._known[line.key] = label, decided
        self.notes["waiting"] += not decided
        if len(self._known) > self._remembered:
            self.notes["waiting"] -= not self._known.popitem(last=False)[1][1]
