"""What people say of bypasses that rest on a judgement, and how that changes the rates."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, ClassVar, Final

from guardmark.analysis.adaptive.rows import FULL
from guardmark.analysis.adaptive.success import ROUNDS
from guardmark.core.values import dataclass
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.rates.corrected import audited_rate
from guardmark.store.layers import ADAPTIVE, AUDIT_PREFIX
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.analysis.adaptive.rows import AdaptiveRecords, Try
    from guardmark.analysis.defense.counts import SampleRates
    from guardmark.core.estimate import Estimate
    from guardmark.stats.figures import Ratio
    from guardmark.store.reader import RecordReader

YES: Final = "yes"
NO: Final = "no"
UNSURE: Final = "unsure"
_REPLICATES: Final = 4000
BY_RULE: Final = frozenset({"V0", "V1", "V2"})
"""Tiers that a rule proves."""
BY_WORD: Final = FULL - BY_RULE
"""The other proved tiers: they rest on a judge or on a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedRound:
    """What had got through by the end of a round, as far as people confirm it.

    Attributes:
        name: `R0` to `R5`.
        resting: Attacks that got through by somebody's word alone (V3, V3-table).
        valid: Of the audited ones among these: those that ask for the same.
        full: The rate of all proved tiers, its part by somebody's word times `valid`.
    """

    name: str = field(metadata={"json": "round"})
    resting: int
    valid: Estimate
    full: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCard:
    """What people say of the bypasses of one defense that rest on a judgement.

    Attributes:
        source: Name of the file they filled in.
        resting: Attacks that fell by somebody's word alone: what the sheet was drawn from.
        drawn: Of these on the sheet.
        valid: Of those answered with yes or no: those that ask for the same.
        unsure: Answered with unsure; they count in no rate.
        blank: Not answered; they count in no rate.
        tiers: `valid` for each of these tiers.
        rounds: Every round by whose end something rested on a judgement.
    """

    DERIVED: ClassVar = ("least", "most")

    source: str
    resting: int
    drawn: int
    valid: Estimate
    unsure: int
    blank: int
    tiers: tuple[tuple[str, Estimate], ...]
    rounds: tuple[AuditedRound, ...]

    @property
    def least(self) -> float | None:
        """The share of valid ones if every open item were none, or None without items."""
        if self.drawn:
            return self.valid.successes / self.drawn
        return None

    @property
    def most(self) -> float | None:
        """The share of valid ones if every open item were one, or None without items."""
        rest = self.unsure + self.blank
        if self.drawn:
            return (self.valid.successes + rest) / self.drawn
        return None

    def of(self, name: str) -> AuditedRound | None:
        """Return what is said of a round, or None where nothing rests on a judgement."""
        for each in self.rounds:
            if each.name == name:
                return each
        return None


class Proofs:
    """How each attack that was answered at first got through: by a rule, or by a judgement."""

    def __init__(self, records: AdaptiveRecords, is_attack: Sequence[bool]) -> None:
        self.defense = records.name
        self._by_rule: dict[int, int] = {}
        self._by_word: dict[int, Try] = {}
        for sample, passed in sorted(records.baseline.items()):
            if is_attack[sample]:
                self._add(records, sample, passed=passed)

    def _add(self, records: AdaptiveRecords, sample: int, *, passed: bool) -> None:
        """Keep the round by which a rule proves a bypass, and the first that rests on a word."""
        self._by_rule[sample] = 0 if passed else len(ROUNDS)
        for history in (records.battery.get(sample), records.arms[ADAPTIVE].get(sample)):
            if history is None:
                continue
            for each in history.tries:
                if history.holds(each, BY_RULE):
                    number = ROUNDS.index(each.round)
                    self._by_rule[sample] = min(number, self._by_rule[sample])
                if history.holds(each, BY_WORD):
                    self._by_word.setdefault(sample, each)

    def resting(self, until: int = len(ROUNDS) - 1) -> dict[int, Try]:
        """Return what got through by the end of a round by a judgement alone."""
        resting = {}
        for sample, each in self._by_word.items():
            if ROUNDS.index(each.round) <= until < self._by_rule[sample]:
                resting[sample] = each
        return resting

    def full(self, until: int) -> dict[int, bool]:
        """Tell what had got through, at any counted tier, by the end of a round."""
        resting = self.resting(until)
        through = {}
        for sample, number in self._by_rule.items():
            through[sample] = number <= until or sample in resting
        return through


def read_audit_card(
    reader: RecordReader, proofs: Proofs, *, rates: SampleRates, seed: int
) -> AuditCard | None:
    """Count what people said of one defense's bypasses."""
    source, labels = _newest_sheet(reader, proofs.defense)
    if not labels:
        return None
    resting = proofs.resting()
    answers = {}
    for sample, each in resting.items():
        if (sample, each.text) in labels:
            answers[sample] = labels[sample, each.text]
    confirmed = {}
    for sample, answer in answers.items():
        if answer in {YES, NO}:
            confirmed[sample] = answer == YES
    words = list(answers.values())
    return AuditCard(
        source=source,
        resting=len(resting),
        drawn=len(answers),
        valid=rates.of(confirmed.items()),
        unsure=words.count(UNSURE),
        blank=words.count(""),
        tiers=tuple(_by_tier(resting, confirmed, rates)),
        rounds=tuple(_by_round(proofs, confirmed, rates, seed=seed)),
    )


def _by_tier(
    resting: Mapping[int, Try], confirmed: Mapping[int, bool], rates: SampleRates
) -> Iterator[tuple[str, Estimate]]:
    """Yield the share of valid bypasses for each tier that rests on a judgement."""
    for tier in sorted({each.tier for each in resting.values()}):
        of_tier = {}
        for sample, is_valid in confirmed.items():
            if resting[sample].tier == tier:
                of_tier[sample] = is_valid
        yield tier, rates.of(of_tier.items())


def _by_round(
    proofs: Proofs, confirmed: Mapping[int, bool], rates: SampleRates, *, seed: int
) -> Iterator[AuditedRound]:
    """Yield every round by whose end something rested on a judgement, as people confirm it."""
    drawing = DrawPlan(seed=seed, replicates=_REPLICATES)
    for number, name in enumerate(ROUNDS):
        resting = proofs.resting(number)
        if not resting:
            continue
        through = proofs.full(number)
        audited = {}
        for sample, is_valid in confirmed.items():
            if sample in resting:
                audited[sample] = is_valid
        by_word = {sample: sample in resting for sample, fell in through.items() if fell}
        valid = rates.of(audited.items())
        yield AuditedRound(
            name=name,
            resting=len(resting),
            valid=valid,
            full=audited_rate(
                rates.of(through.items()), rates.of(by_word.items()), valid, drawing=drawing
            ),
        )


def _newest_sheet(reader: RecordReader, defense: str) -> tuple[str, dict[tuple[int, str], str]]:
    """Return the newest sheet on a defense: its file, and sample and text to the answer."""
    for layer in reversed(reader.layers()):
        if not layer.startswith(AUDIT_PREFIX):
            continue
        labels = {}
        for record in read_tries(reader, defense=defense, layer=layer):
            place = record.sample, record.subject.digest
            labels[place] = str(record.subject.details["same"])
        if labels:
            return str(reader.layer_settings(layer).get("file", "")), labels
    return "", {}
