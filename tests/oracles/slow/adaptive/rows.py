"""Tries of an adaptive attacker as slow references sorts them."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.oracles.slow.formulas.rates import Trial, rate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tests.oracles.slow.source import Answer, Source

Json = dict[str, Any]

ARMS: Final = {"adaptive": "adaptive", "blind": "adaptive/blind", "null": "adaptive/null"}
"""Arm to its layer."""
STRICT: Final = ("V0", "V1")
"""Tiers of variants that provably hold the same text."""
FULL: Final = ("V0", "V1", "V2", "V3-table", "V3")
"""Every proved tier."""
ROUNDS: Final = ("R0", "R1", "R2", "R3", "R4", "R5")
"""Rounds, in order."""
_CONFIRMED: Final = (
    "SELECT l.name, c.number, c.sample FROM confirmations c JOIN layers l ON l.id = c.layer"
    " WHERE c.is_confirmed AND c.defense = (SELECT id FROM defenses WHERE name = ?)"
)
FINDINGS: Final = "adaptive/findings/"
"""What the layers of findings begin with; the name of the defense follows."""


def seed_layer(layer: str, number: int) -> str:
    """Return where the tries of an arm stand at the n-th seed."""
    return layer if number == 1 else layer.replace("adaptive", f"adaptive/seed-{number}", 1)


@dataclass(slots=True)
class Row:
    """One try."""

    answer: Answer
    note: Json
    layer: str

    @property
    def place(self) -> int:
        """Position of the sample."""
        return self.answer.subject.position

    @property
    def passed(self) -> bool:
        """Whether it was let through."""
        return self.answer.outcome == "allow"


@dataclass(slots=True, kw_only=True)
class Fight:
    """All tries against one defense, sorted out."""

    name: str
    budget: int
    confidence: float
    is_random: bool
    confirmed: frozenset[tuple[str, int, int]] = frozenset()
    has_attacker: bool = False
    seeds: int = 1
    rows: defaultdict[tuple[str, str], list[Row]] = field(default_factory=lambda: defaultdict(list))
    asked: list[Row] = field(default_factory=list)
    static: dict[int, bool] = field(default_factory=dict)
    group: dict[int, str] = field(default_factory=dict)
    again: defaultdict[tuple[str, int, str], list[bool]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def take(self, row: Row) -> None:
        """Sort one try in."""
        self.asked.append(row)
        self.group[row.place] = row.answer.subject.group
        if not row.answer.is_answered:
            return
        self.rows[row.layer, row.note["account"]].append(row)
        if row.note["account"] == "confirm":
            self.again[row.layer, row.place, row.note["text"]].append(row.passed)
        is_first = row.note["account"] == "baseline" and row.note["round"] == "R0"
        if is_first and row.answer.subject.is_attack:
            self.static[row.place] = row.passed

    def holds(self, row: Row, tiers: Collection[str] = FULL) -> bool:
        """Tell whether a try is a bypass of these tiers."""
        if not row.passed or row.note["tier"] not in tiers:
            return False
        return not self.is_random or (row.layer, row.answer.repeat, row.place) in self.confirmed

    def searched(self, layer: str) -> dict[int, list[Row]]:
        """Return the search tries of an arm by attack, in order."""
        found: defaultdict[int, list[Row]] = defaultdict(list)
        for row in self.rows[layer, "search"]:
            found[row.place].append(row)
        return found

    def firsts(self, layer: str) -> dict[int, int | None]:
        """Return for each attack its first bypass by search: 0 as it is, None without one."""
        tries = self.searched(layer)
        return {
            place: 0
            if is_static
            else next((n for n, row in enumerate(tries.get(place, ()), 1) if self.holds(row)), None)
            for place, is_static in self.static.items()
        }

    def rate(self, has: Callable[[int], bool]) -> Json:
        """Return the rate of a property over the attacks that count."""
        trials = [Trial(group=self.group[place], hit=has(place)) for place in self.static]
        return rate(trials, self.confidence)

    def fallen(self, until: str, tiers: Collection[str]) -> set[int]:
        """Return the attacks that had got through by the end of a round."""
        allowed = set(ROUNDS[: ROUNDS.index(until) + 1])
        found = {place for place, is_static in self.static.items() if is_static}
        if until == "R0":
            return found
        tried = [*self.rows["adaptive", "battery"], *self.rows["adaptive", "search"]]
        return found | {
            row.place
            for row in tried
            if row.place in self.static and row.note["round"] in allowed and self.holds(row, tiers)
        }


def read_fights(source: Source) -> list[Fight]:
    """Sort the tries of a run out by defense."""
    settings = source.layers.get("adaptive", {})
    fights: dict[str, Fight] = {}
    for layer, said in source.layers.items():
        if layer.startswith(FINDINGS):
            flags = set(said.get("flags", ()))
            name = layer.removeprefix(FINDINGS)
            fights[name] = Fight(
                name=name,
                budget=int(settings.get("budget", 0)),
                confidence=float(source.manifest["confidence"]),
                is_random=bool({"RANDOMISED", "STATEFUL", "RATE_LIMITED"} & flags),
                confirmed=frozenset(source.connection.execute(_CONFIRMED, (name,))),
                has_attacker="attacker" in settings,
                seeds=int(settings.get("seeds", 1)),
            )
    seeds = range(1, int(settings.get("seeds", 1)) + 1)
    arms = {seed_layer(layer, number) for layer in ARMS.values() for number in seeds}
    arms |= {"adaptive/attacker", "adaptive/critic"}
    for answer in source.answers("try"):
        if answer.layer in arms and answer.defense in fights:
            note = json.loads(answer.text or "{}")
            fights[answer.defense].take(Row(answer, note, answer.layer))
    return list(fights.values())
