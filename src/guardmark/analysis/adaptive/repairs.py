"""What cleaning texts before a defense changes, and what an attacker then still achieves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guardmark.analysis.adaptive.rows import FULL, STRICT, words_of
from guardmark.analysis.adaptive.success import AttackMask
from guardmark.core.values import dataclass
from guardmark.stats.rates.clustered import FEW_GROUPS
from guardmark.stats.rates.means import mean_over_seeds, share_over_seeds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.rows import AdaptiveRecords, Try
    from guardmark.analysis.defense.counts import SampleRates
    from guardmark.core.estimate import Estimate
    from guardmark.stats.rates.means import SeedMean

    _Sides = dict[str, list[tuple[int, bool]]]


REPAIR: Final = "repair"
HELD: Final = "repair, held"
KNOWN: Final = "repair, known"
"""Rounds: bypasses and benign texts, attacks blocked as they are, and every known bypass."""
JOINT: Final = "+"  # between the steps of a repair of several
_SIDES: Final = ("closed", "cost", "opened")
_LAST: Final = "R4"  # the repaired defense is attacked without the attacker model of round 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairCard:
    """What one way of cleaning does to some texts of each kind.

    Attributes:
        name: The step, `canon` for the whole canonical form, or several steps joined by `+`.
        closed: Share of the bypasses that are blocked once cleaned.
        cost: Share of benign texts let through that are blocked once cleaned.
        opened: Share of attacks blocked as they are that pass once cleaned.
    """

    name: str
    closed: Estimate
    cost: Estimate
    opened: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedCard:
    """The defense asked about the text as it is and about the cleaned one, attacked again.

    Attributes:
        steps: Of the cleaning, as a configuration names them.
        refused: Steps that were left out: each would let a blocked text in.
        checked: Texts that were blocked, tries included; none of them passes once cleaned.
        known: Share of all known bypasses that are blocked now.
        cost: Share of benign texts let through that are blocked now.
        before: Attacks through the defense as it is, by the end of round 4.
        after: Attacks through the repaired defense, attacked anew with the same budget, over seeds.
        after_strict: The same by provably equal texts.
        change: After minus before, attack by attack.
    """

    DERIVED: ClassVar = ("name",)

    steps: tuple[str, ...]
    refused: tuple[str, ...]
    checked: int
    known: Estimate
    cost: Estimate
    before: Estimate
    after: SeedMean
    after_strict: SeedMean
    change: SeedMean

    @property
    def name(self) -> str:
        """The steps in one word."""
        return JOINT.join(self.steps)

    @property
    def is_shown_to_help(self) -> bool:
        """Whether an attacker was shown to get less far against it: the change excludes 0.

        Where every group changed alike there are no limits; ten groups that all did are enough.
        """
        change = self.change
        if change.high is not None:
            return change.high < 0
        return change.value is not None and change.value < 0 and change.groups >= FEW_GROUPS


def read_repairs(
    records: AdaptiveRecords, attack: NDArray[np.bool_], rates: SampleRates
) -> tuple[RepairCard, ...]:
    """Count what each way of cleaning blocks, costs and lets in."""
    asked = (each for each in records.rest.get("repair", ()) if each.round in {REPAIR, HELD})
    return tuple(
        RepairCard(name=name, **{side: rates.of(marks[side]) for side in _SIDES})
        for name, marks in _by_repair(asked, attack).items()
    )


def _by_repair(tries: Iterable[Try], attack: NDArray[np.bool_]) -> dict[str, _Sides]:
    """Sort answers by repair and by what they are about: the sample, and whether it was so."""
    repairs: dict[str, _Sides] = {}
    for each in tries:
        side = "cost"
        if each.round == HELD:
            side = "opened"
        elif attack[each.sample]:
            side = "closed"
        sides = repairs.setdefault(each.chain, {name: [] for name in _SIDES})
        sides[side].append((each.sample, bool(each.passed) is (side == "opened")))
    return repairs


def read_repaired(
    view: AttackMask, attack: NDArray[np.bool_], rates: SampleRates
) -> RepairedCard | None:
    """Compare the repaired defense with the defense as it is, or None where nothing helped."""
    records, repaired = view.records, view.records.repaired
    if repaired is None:
        return None
    steps, refused = words_of(repaired.findings, "steps"), words_of(repaired.findings, "refused")
    name = JOINT.join(steps)
    sides: list[_Sides] = []
    for asked in (KNOWN, REPAIR):
        tries = [each for each in records.rest["repair"] if each.round == asked]
        sides.append(_by_repair(tries, attack).get(name, {}))
    arms = (repaired.arms, *repaired.repeated)
    again = [AttackMask(replace(repaired, arms=each), attack, rates) for each in arms]
    both = np.array(sorted(set(view.places) & set(again[0].places)), dtype=np.int64)

    def marks(mask: AttackMask, tiers: frozenset[str]) -> NDArray[np.bool_]:
        return mask.bypassed(_LAST, tiers)[np.searchsorted(mask.places, both)]

    before, groups = marks(view, FULL), rates.groups[both]
    full = np.stack([marks(mask, FULL) for mask in again], axis=1)
    strict = np.stack([marks(mask, STRICT) for mask in again], axis=1)
    change = full.astype(float) - before[:, None]
    return RepairedCard(
        steps=steps,
        refused=refused,
        checked=int(str(repaired.findings.get("checked", 0))),
        known=rates.of(sides[0].get("closed", ())),
        cost=rates.of(sides[1].get("cost", ())),
        before=rates.at(both.tolist(), before),
        after=share_over_seeds(full, groups, confidence=rates.confidence),
        after_strict=share_over_seeds(strict, groups, confidence=rates.confidence),
        change=mean_over_seeds(change, groups, least=-1.0, most=1.0, confidence=rates.confidence),
    )
