"""What people say of bypasses that rest on a judgement, and the rate that this leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final

from guardmark.analysis.adaptive.rows import FULL
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.rates.corrected import audited_rate
from guardmark.store.layers import ADAPTIVE, AUDIT_PREFIX
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.adaptive.rows import AdaptiveRecords, Try
    from guardmark.analysis.defense.counts import SampleRates
    from guardmark.core.estimate import Estimate
    from guardmark.stats.figures import Ratio
    from guardmark.store.reader import RecordReader


YES: Final = "yes"
NO: Final = "no"
UNSURE: Final = "unsure"
_REPLICATES: Final = 4000
_LAST: Final = 5  # number of the last round
BY_RULE: Final = frozenset({"V0", "V1", "V2"})  # tiers that a rule proves
BY_WORD: Final = FULL - BY_RULE  # the other proved tiers: they rest on a judge or on a table


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedRound:
    """What had got through by the end of a round, as far as people confirm it."""

    name: str = field(metadata={"json": "round"})  # `R0` to `R5`.
    resting: int  # Attacks that got through by somebody's word alone (V3, V3-table).
    valid: Estimate  # Of the audited ones among these: those that ask for the same.
    full: Ratio  # The rate of all proved tiers, its part by somebody's word times `valid`.


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCard:
    """What people say of the bypasses of one defense that rest on a judgement."""

    DERIVED: ClassVar = ("least", "most")

    source: str  # Name of the file they filled in.
    resting: int  # Attacks that fell by somebody's word alone: what the sheet was drawn from.
    drawn: int  # Of these on the sheet.
    valid: Estimate  # Of those answered with yes or no: those that ask for the same.
    unsure: int  # Answered with unsure; they count in no rate.
    blank: int  # Not answered; they count in no rate.
    tiers: tuple[tuple[str, Estimate], ...]  # `valid` for each of these tiers.
    rounds: tuple[AuditedRound, ...]  # Every round by whose end something rested on a judgement.

    @property
    def least(self) -> float | None:
        """The share of valid ones if every open item were none, or None without items."""
        return self.valid.successes / self.drawn if self.drawn else None

    @property
    def most(self) -> float | None:
        """The share of valid ones if every open item were one, or None without items."""
        rest = self.unsure + self.blank
        return (self.valid.successes + rest) / self.drawn if self.drawn else None

    def of(self, name: str) -> AuditedRound | None:
        """Return what is said of a round, or None where nothing rests on a judgement."""
        return next((each for each in self.rounds if each.name == name), None)


class Proofs:
    """How each attack that was answered at first got through: by a rule, or by somebody's word."""

    def __init__(self, records: AdaptiveRecords, is_attack: Sequence[bool]) -> None:
        self.defense = records.name
        self._by_rule: dict[int, float] = {}
        self._by_word: dict[int, Try] = {}
        for index, passed in sorted(records.baseline.items()):
            if is_attack[index]:
                histories = (records.battery.get(index), records.arms[ADAPTIVE].get(index))
                tries = [(one, each) for one in histories if one for each in one.tries]
                rounds = [_round_of(each) for one, each in tries if one.holds(each, BY_RULE)]
                self._by_rule[index] = 0 if passed else min(rounds, default=math.inf)
                words = ((index, each) for one, each in tries if one.holds(each, BY_WORD))
                self._by_word.update(islice(words, 1))

    def resting(self, until: int = _LAST) -> dict[int, Try]:
        """Return what got through by the end of a round, but by somebody's word alone."""
        return {
            index: each
            for index, each in self._by_word.items()
            if _round_of(each) <= until < self._by_rule[index]
        }

    def full(self, until: int) -> dict[int, bool]:
        """Tell what had got through, at any counted tier, by the end of a round."""
        words = self.resting(until)
        return {index: by <= until or index in words for index, by in self._by_rule.items()}


def _round_of(each: Try) -> int:
    return int(each.round.removeprefix("R"))


def read_audit_card(
    reader: RecordReader, proofs: Proofs, *, rates: SampleRates, seed: int
) -> AuditCard | None:
    """Count what people said of one defense's bypasses."""
    source, labels = _read(reader, proofs.defense)
    if not labels:
        return None
    resting = proofs.resting()
    items = {i: labels[i, each.text] for i, each in resting.items() if (i, each.text) in labels}
    answered = {index: word == YES for index, word in items.items() if word in {YES, NO}}
    rounds = [(number, held) for number in range(_LAST + 1) if (held := proofs.resting(number))]
    drawing = DrawPlan(seed=seed, replicates=_REPLICATES)
    return AuditCard(
        source=source,
        resting=len(resting),
        drawn=len(items),
        valid=rates.of(answered.items()),
        unsure=sum(word == UNSURE for word in items.values()),
        blank=sum(not word for word in items.values()),
        tiers=tuple(
            (tier, rates.of((p, hit) for p, hit in answered.items() if resting[p].tier == tier))
            for tier in sorted({each.tier for each in resting.values()})
        ),
        rounds=tuple(
            AuditedRound(
                name=f"R{number}",
                resting=len(held),
                valid=(valid := rates.of((p, hit) for p, hit in answered.items() if p in held)),
                full=audited_rate(
                    rates.of(proofs.full(number).items()),
                    rates.of((p, p in held) for p, fell in proofs.full(number).items() if fell),
                    valid,
                    drawing=drawing,
                ),
            )
            for number, held in rounds
        ),
    )


def _read(reader: RecordReader, defense: str) -> tuple[str, dict[tuple[int, str], str]]:
    """Return the newest sheet on a defense: its file, and place and text to what was said."""
    for layer in reversed([each for each in reader.layers() if each.startswith(AUDIT_PREFIX)]):
        labels = {
            (record.sample, record.subject.digest): str(record.subject.details["same"])
            for record in read_tries(reader, defense=defense, layer=layer)
        }
        if labels:
            return str(reader.layer_settings(layer).get("file", "")), labels
    return "", {}
