"""Chains of up to three operators, and the order in which they may stand."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from guardmark.attacks.contract import Slot, weakest
from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.attacks.contract import OperatorConfig, Tier

LONGEST = 3
"""Most operators in a chain."""

HIDDEN = "F10"
"""Family after which nothing may follow: what is hidden cannot be rewritten any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorChain:
    """Operators applied one after the other."""

    arms: tuple[OperatorConfig, ...]
    key: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse an order that is not allowed."""
        object.__setattr__(self, "key", " + ".join(arm.key for arm in self.arms))
        if fault := fault_of(self.arms):
            raise ConfigError(f"The chain {self.key!r} is not allowed: {fault}.")

    @staticmethod
    def of(*arms: OperatorConfig) -> OperatorChain:
        """Chain some arms."""
        return OperatorChain(arms=arms)

    @property
    def tier(self) -> Tier:
        """The weakest of the declared tiers."""
        return weakest(arm.tier for arm in self.arms)

    @property
    def needs_decoder(self) -> bool:
        """Whether a reader has to decode."""
        return any(arm.needs_decoder for arm in self.arms)

    @property
    def families(self) -> tuple[str, ...]:
        """Families in order."""
        return tuple(arm.family for arm in self.arms)

    @property
    def slot(self) -> Slot:
        """Slot of the last arm."""
        return self.arms[-1].operator.slot


def fault_of(arms: Sequence[OperatorConfig]) -> str:
    """Say why arms may not stand in this order."""
    if not 1 <= len(arms) <= LONGEST:
        return f"it has {len(arms)} operators, and 1 to {LONGEST} are possible"
    names = [arm.operator.name for arm in arms]
    if len(set(names)) < len(names):
        return "an operator stands twice"
    if sum(arm.operator.slot is Slot.ENCODING for arm in arms) > 1:
        return "there are two encodings"
    for before, after in pairwise(arms):
        if before.family == HIDDEN:
            return f"nothing may follow {before.operator.name}, which hides the text"
        if after.operator.slot < before.operator.slot:
            return (
                f"{after.operator.name} ({after.operator.slot.name.lower()}) stands after "
                f"{before.operator.name} ({before.operator.slot.name.lower()})"
            )
    return ""


def may_follow(chain: OperatorChain, arm: OperatorConfig) -> bool:
    """Say whether an arm may be put after a chain."""
    return not fault_of((*chain.arms, arm))
