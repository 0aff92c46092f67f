"""What people say of bypasses that rest on a judgement, and the rate that this leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guardmark.analysis.adaptive.resting import read_falls, resting_bypasses
from guardmark.analysis.defense.grouped_rates import grouped_rate
from guardmark.core.layers import AUDIT_PREFIX
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.rates.corrected import audited_rate
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.resting import BypassProof
    from guardmark.analysis.adaptive.rows import AdaptiveRecords
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Estimate, Ratio
    from guardmark.store.reader import RecordReader

YES: Final = "yes"
NO: Final = "no"
UNSURE: Final = "unsure"
_REPLICATES: Final = 4000
_LAST: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedRound:
    """What had got through by the end of a round, as far as people confirm it.

    Attributes:
        name: `R0` to `R5`.
        resting: Attacks that had fallen by somebody's word alone (V3, V3-table).
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
        return self.valid.successes / self.drawn if self.drawn else None

    @property
    def most(self) -> float | None:
        """The share of valid ones if every open item were one, or None without items."""
        rest = self.unsure + self.blank
        return (self.valid.successes + rest) / self.drawn if self.drawn else None

    def of(self, name: str) -> AuditedRound | None:
        """Return what is said of a round, or None where nothing rests on a judgement."""
        return next((each for each in self.rounds if each.name == name), None)


def count_resting(battle: AdaptiveRecords, is_attack: NDArray[np.bool_]) -> int:
    """Count the attacks that got through by nothing better than a judgement or a table."""
    return len(resting_bypasses(read_falls(battle, is_attack.tolist()), _LAST))


def read_audit_card(
    reader: RecordReader,
    battle: AdaptiveRecords,
    is_attack: NDArray[np.bool_],
    *,
    groups: NDArray[np.int32],
    settings: AnalysisSettings,
) -> AuditCard | None:
    """Count what people said of one defense's bypasses."""
    source, said = _read(reader, battle.name)
    if not said:
        return None
    falls = read_falls(battle, is_attack.tolist())
    resting = resting_bypasses(falls, _LAST)
    items = {
        place: said[place, each.text]
        for place, each in resting.items()
        if (place, each.text) in said
    }
    rates = _Rates(groups, settings)
    answered = {place: word == YES for place, word in items.items() if word in {YES, NO}}
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
            _round(falls, answered, number, rates)
            for number in range(_LAST + 1)
            if resting_bypasses(falls, number)
        ),
    )


def _round(
    falls: Mapping[int, BypassProof], answered: Mapping[int, bool], number: int, rates: _Rates
) -> AuditedRound:
    resting = resting_bypasses(falls, number)
    full = {place: fall.is_full(number) for place, fall in falls.items()}
    judged = rates.of((place, place in resting) for place, fell in full.items() if fell)
    valid = rates.of((place, hit) for place, hit in answered.items() if place in resting)
    return AuditedRound(
        name=f"R{number}",
        resting=len(resting),
        valid=valid,
        full=audited_rate(rates.of(full.items()), judged, valid, drawing=rates.drawing),
    )


class _Rates:
    """Rates of marks on samples, with the groups of the samples."""

    def __init__(self, groups: NDArray[np.int32], settings: AnalysisSettings) -> None:
        self._groups = groups
        self._confidence = settings.confidence
        self.drawing = DrawPlan(seed=settings.seed, replicates=_REPLICATES)

    def of(self, marks: Iterable[tuple[int, bool]]) -> Estimate:
        listed = list(marks)
        places = np.array([place for place, _ in listed], dtype=np.int64)
        hits = [hit for _, hit in listed]
        return grouped_rate(hits, self._groups[places], confidence=self._confidence)


def _read(reader: RecordReader, defense: str) -> tuple[str, dict[tuple[int, str], str]]:
    """Return the newest sheet on a defense: its file, and place and text to what was said."""
    layers = [layer for layer in reader.layers() if layer.startswith(AUDIT_PREFIX)]
    for layer in reversed(layers):
        notes = [
            (record.sample, record.subject)
            for record in read_tries(reader, defense=defense, layer=layer)
        ]
        if notes:
            said = {(place, note.digest): str(note.details["same"]) for place, note in notes}
            return str(reader.layer_settings(layer).get("file", "")), said
    return "", {}
