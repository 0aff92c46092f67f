"""What the rules of `run.stop_when` say, read a second time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, Any]

BELOW: Final = "<"
WIDTH: Final = "+-"
DIFFERENT: Final = "!="
_SIGNS: Final = {DIFFERENT: DIFFERENT, BELOW: BELOW, WIDTH: WIDTH, "±": WIDTH}


class Rule(NamedTuple):
    """One rule about one defense, or about two."""

    said: str
    kind: str
    defense: str
    other: str
    is_attack: bool
    limit: float

    @property
    def about(self) -> tuple[str, ...]:
        """The defenses it is about."""
        return (self.defense, self.other) if self.other else (self.defense,)

    def answer(self, low: float, high: float) -> str:
        """Return how the limits of a rate decide it; empty while they leave it open."""
        if self.kind == WIDTH:
            return "reached" if high - low <= 2 * self.limit else ""
        return "yes" if high < self.limit else "no" if low >= self.limit else ""


class Decided(NamedTuple):
    """How a rule came out."""

    rule: Rule
    answer: str
    look: int
    groups: int

    def told(self) -> Json:
        """Return it in the shape of `summary.json`."""
        said, name = self.rule.said, self.rule.defense
        about = "" if said.startswith((f"{name}.", f"{name}!")) else f"{name}: "
        return {
            "rule": said,
            "answer": self.answer,
            "groups": self.groups,
            "text": f"{about}{said} {self.answer} after {self.groups:,} groups",
        }


def read_rules(said: Sequence[str], names: Sequence[str]) -> list[Rule]:
    """Spell rules out, one for each defense they are about."""
    rules: dict[Rule, None] = {}
    for each in said:
        bare = "".join(each.split())
        sign = next(sign for sign in _SIGNS if sign in bare)
        left, right = bare.split(sign)
        if sign == DIFFERENT:
            rule = Rule(bare, DIFFERENT, left, right, is_attack=True, limit=0.0)
            rules[rule] = None
            continue
        name, _, rate = left.rpartition(".")
        kind, is_attack = _SIGNS[sign], rate == "asr"
        for defense in [name] if name else names:
            rule = Rule(bare, kind, defense, "", is_attack=is_attack, limit=float(right))
            rules[rule] = None
    return list(rules)
