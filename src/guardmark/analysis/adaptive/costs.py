"""What a bypass costs the attacker: calls, words of a model, money and time, where known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from guardmark.store.tries import TryRecord

ATTACKER_ACCOUNTS: Final = ("baseline", "diagnosis", "battery", "search", "confirm")
"""Accounts of defense calls that the attacker pays."""
MODEL_ACCOUNT: Final = "attacker"
"""Account of the attacker model's calls, which are no calls of the defense."""
CRITIC_ACCOUNT: Final = "critic"
"""Account of the calls of its critic, which the attacker pays as well."""


@dataclass(slots=True)
class Tally:
    """A quantity that some calls report and others do not.

    Attributes:
        total: Of the calls that report it.
        known: How many do.
    """

    total: float = 0.0
    known: int = 0

    def add(self, value: float | None) -> None:
        """Count one call."""
        if value is not None:
            self.total += value
            self.known += 1


@dataclass(slots=True)
class Bill:
    """What calls of one account took.

    Attributes:
        calls: How many.
        tokens: Read and written.
        money: In the currency of the price table.
        seconds: Service time.
    """

    calls: int = 0
    tokens: Tally = field(default_factory=Tally)
    money: Tally = field(default_factory=Tally)
    seconds: Tally = field(default_factory=Tally)

    def take(self, record: TryRecord) -> None:
        """Count one call."""
        self.calls += 1
        self.seconds.add(None if record.latency_ns is None else record.latency_ns / 1e9)
        usage = None if record.evidence is None else record.evidence.usage
        if usage is None:
            return
        counts = [n for n in (usage.prompt_tokens, usage.completion_tokens) if n is not None]
        self.tokens.add(sum(counts) if counts else None)
        self.money.add(usage.cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expense:
    """One kind of cost of an attack on one defense.

    Attributes:
        total: Of the calls that reported it; None where none did.
        known: Calls that reported it.
        calls: Calls that might have.
        bypasses: Attacks that got through, as they are included.
        attacks: Attacks that were answered.
    """

    DERIVED: ClassVar = ("per_bypass", "per_attack")

    total: float | None
    known: int
    calls: int
    bypasses: int = field(metadata={"json": False})
    attacks: int = field(metadata={"json": False})

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
    """What attacking one defense took.

    Attributes:
        calls: Of the defense, on the attacker's accounts.
        model_calls: Of an attacker model and its critic; total None where there is none.
        tokens: Of these models.
        money: Of both, where prices are known.
        seconds: Service time of both. It comes from a clock.
    """

    calls: Expense
    model_calls: Expense
    tokens: Expense
    money: Expense
    seconds: Expense = field(metadata={"json": False})


def read_costs(bills: Mapping[str, Bill], *, bypasses: int, attacks: int) -> CostCard:
    """Add up what an attacker paid."""
    defense = [bills[name] for name in ATTACKER_ACCOUNTS if name in bills]
    model = [bills[name] for name in (MODEL_ACCOUNT, CRITIC_ACCOUNT) if name in bills]

    def counted(asked: list[Bill]) -> Expense:
        calls = sum(bill.calls for bill in asked)
        total = float(calls) if asked else None
        return Expense(total=total, known=calls, calls=calls, bypasses=bypasses, attacks=attacks)

    def expense(asked: list[Bill], tallies: Iterable[Tally]) -> Expense:
        told = list(tallies)
        known = sum(tally.known for tally in told)
        return Expense(
            total=sum(tally.total for tally in told) if known else None,
            known=known,
            calls=sum(bill.calls for bill in asked),
            bypasses=bypasses,
            attacks=attacks,
        )

    both = [*defense, *model]
    return CostCard(
        calls=counted(defense),
        model_calls=counted(model),
        tokens=expense(model, (bill.tokens for bill in model)),
        money=expense(both, (bill.money for bill in both)),
        seconds=expense(both, (bill.seconds for bill in both)),
    )
