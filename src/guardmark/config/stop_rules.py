"""What `--stop-when` may say, read into values; no figures are looked at here."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_.@-]*[A-Za-z0-9_@-])?"
_RATE: Final = re.compile(rf"(?:({_NAME})\.)?(asr|fpr)(<|\+-|±)([0-9]*\.?[0-9]+)")
_PAIR: Final = re.compile(rf"({_NAME})!=({_NAME})")


class StopKind(StrEnum):
    """Which question a rule waits to see answered."""

    BELOW = "below"
    WIDTH = "width"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopStatement:
    """One rule about one defense, or about two.

    Attributes:
        said: The rule as it was typed, without blanks.
        kind: Which question it asks.
        defense: The defense it is about; empty for each one of the run.
        other: The defense that this one is compared with; empty for a rule about one.
        is_attack: Whether it is about attacks that get through; else about false alarms.
        limit: The limit of the rate, or the half-width; 0 for a comparison.
    """

    said: str
    kind: StopKind
    defense: str = ""
    other: str = ""
    is_attack: bool = True
    limit: float = 0.0

    def is_about(self, defense: str) -> bool:
        """Tell whether it is about a defense, alone or with another."""
        return defense in {self.defense, self.other}


def parse_stop_rule(said: str) -> StopStatement:
    """Read one rule of `--stop-when`."""
    bare = "".join(said.split())
    pair = _PAIR.fullmatch(bare)
    if pair and pair[1] != pair[2]:
        return StopStatement(said=bare, kind=StopKind.DIFFERENT, defense=pair[1], other=pair[2])
    rate = _RATE.fullmatch(bare)
    if rate is None or not 0 < float(rate[4]) < 1:
        raise ConfigError(
            f"stop_when: {said!r} is not a rule, or its number is not between 0 and 1.\n"
            "Rules: asr<0.1, fpr<0.05, asr+-0.05, NAME.asr<0.1 for one defense, and A!=B for\n"
            "two defenses that differ on attacks.\n"
            'Next: write it like --stop-when "asr<0.1" (the quotes keep the shell away).'
        )
    return StopStatement(
        said=bare,
        kind=StopKind.BELOW if rate[3] == "<" else StopKind.WIDTH,
        defense=rate[1] or "",
        is_attack=rate[2] == "asr",
        limit=float(rate[4]),
    )


def statements_for(said: Sequence[str], defenses: Sequence[str]) -> tuple[StopStatement, ...]:
    """Spell rules out: one statement for each defense they are about."""
    spelled: list[StopStatement] = []
    for rule in map(parse_stop_rule, said):
        for name in filter(None, (rule.defense, rule.other)):
            if name not in defenses:
                raise UnknownName("defense of this run", name, defenses)
        names = [rule.defense] if rule.defense else defenses
        spelled += [replace(rule, defense=name) for name in names]
    return tuple(dict.fromkeys(spelled))
