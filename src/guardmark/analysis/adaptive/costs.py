"""What a bypass costs the attacker: calls, words of a model, money and time, where known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from guardmark.core.usage import UsageTotals

if TYPE_CHECKING:
    from collections.abc import Mapping


ATTACKER_ACCOUNTS: Final = ("baseline", "diagnosis", "battery", "search", "confirm")
"""Accounts of defense calls that the attacker pays."""
MODEL_ACCOUNT: Final = "attacker"
"""Account of the attacker model's calls, which are no calls of the defense."""
CRITIC_ACCOUNT: Final = "critic"
"""Account of the calls of its critic, which the attacker pays as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPerBypass:
    """One kind of cost of an attack on one defense."""

    DERIVED: ClassVar = ("per_bypass", "per_attack")

    total: float | None  # Of the calls that reported it; None where none did.
    known: int  # Calls that reported it.
    calls: int  # Calls that might have.
    # Attacks that got through, as they are included.
    bypasses: int = field(metadata={"json": False})
    attacks: int = field(metadata={"json": False})  # Attacks that were answered.

    @property
    def is_partial(self) -> bool:
        """Whether some calls did not report it, so that it is a lower limit."""
        return 0 < self.known < self.calls

    @property
    def per_bypass(self) -> float | None:
        """The total over attacks that got through, or None without any or without a total."""
        return None if self.total is None or not self.bypasses else self.total / self.bypasses

    @property
    def per_attack(self) -> float | None:
        """The total over all attacks, or None without any or without a total."""
        return None if self.total is None or not self.attacks else self.total / self.attacks


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCard:
    """What attacking one defense took."""

    calls: CostPerBypass  # Of the defense, on the attacker's accounts.
    # Of an attacker model and its critic; total None where there is none.
    model_calls: CostPerBypass
    tokens: CostPerBypass  # Of these models.
    money: CostPerBypass  # Of both, where prices are known.
    # Service time of both. It comes from a clock.
    seconds: CostPerBypass = field(metadata={"json": False})


def read_costs(accounts: Mapping[str, UsageTotals], *, bypasses: int, attacks: int) -> CostCard:
    """Add up what an attacker paid."""
    defense, model = (
        [accounts[name] for name in names if name in accounts]
        for names in (ATTACKER_ACCOUNTS, (MODEL_ACCOUNT, CRITIC_ACCOUNT))
    )
    both, asked = sum([*defense, *model], UsageTotals()), sum(model, UsageTotals())

    def cost(total: float | None, known: int, calls: int) -> CostPerBypass:
        return CostPerBypass(
            total=total, known=known, calls=calls, bypasses=bypasses, attacks=attacks
        )

    def count(paid: list[UsageTotals]) -> CostPerBypass:
        calls = sum(each.calls for each in paid)
        return cost(float(calls) if paid else None, calls, calls)

    return CostCard(
        calls=count(defense),
        model_calls=count(model),
        tokens=cost(asked.tokens if asked.reported else None, asked.reported, asked.calls),
        money=cost(both.cost if both.priced else None, both.priced, both.calls),
        seconds=cost(both.seconds if both.timed else None, both.timed, both.calls),
    )
