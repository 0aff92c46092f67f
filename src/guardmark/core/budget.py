"""What one invocation may spend, and the counter that every call asks before it leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import BudgetReached
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ROUNDING: Final = 1e-9  # of a limit of money: sums of prices are not exact


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one invocation may spend; a continued run gets a fresh one.

    Calls and money are never passed: a request that could pass them is not sent. Tokens may end
    above their limit by what was in flight.

    Attributes:
        calls: Most calls, or None for no limit, as for the rest.
        tokens: Most tokens, read and written.
        cost: Most money, in the currency of the price table.
        seconds: Most time.
    """

    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


class SpendingMeter:
    """Counts calls, tokens and money, and refuses the call that could pass a limit.

    Before a call leaves, the most it can cost is set aside; when it is over, what it did cost is
    counted. A call for which too little is left waits until others on their way have settled.
    """

    __slots__ = (
        "_on_way",
        "_reserved",
        "_waiting",
        "budget",
        "calls",
        "cost",
        "is_limited",
        "note",
    )

    def __init__(self, budget: Budget | None = None) -> None:
        self.calls = 0
        self.cost = 0.0
        self._reserved = 0.0
        self._on_way = 0
        self.note: Callable[[int, float], None] | None = None  # writes down what is spent
        self._waiting: list[asyncio.Future[None]] = []
        self.limit(budget or Budget())

    def limit(self, budget: Budget) -> None:
        """Set what may be spent; what was counted before counts."""
        self.budget = budget
        self.is_limited = budget.calls is not None or budget.cost is not None

    async def admit(self, cost: float = 0.0) -> None:
        """Count a call that may cost so much, or wait until it is known whether it may leave.

        Raises:
            BudgetReached: If it could pass a limit.
        """
        while self.is_limited and (reason := self.refusal(cost)):
            if not self._on_way or self._has_no_call_left():
                raise BudgetReached(reason)
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self.calls += 1
        self._on_way += 1
        self._reserved += cost
        if self.note is not None:
            self.note(self.calls, self.cost + self._reserved)

    def settle(self, reserved: float, cost: float | None) -> None:
        """Count what a call did cost, in place of what was set aside for it."""
        self._on_way -= 1
        self._reserved -= reserved
        self.cost += reserved if cost is None else cost
        if not self._on_way:
            self._reserved = 0.0  # without what rounding left
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)

    def correct(self, difference: float) -> None:
        """Add to what a call cost, once its answer was read."""
        self.cost += difference

    def count(self, calls: int, cost: float = 0.0) -> None:
        """Count calls that were made, and what they cost."""
        self.calls += calls
        self.cost += cost
        if self.note is not None:
            self.note(self.calls, self.cost + self._reserved)

    def reserve(self, cost: float) -> None:
        """Set aside what calls can cost that are dealt out; a negative amount gives it back."""
        self._reserved += cost
        if self.note is not None and cost > 0:
            self.note(self.calls, self.cost + self._reserved)

    def refusal(self, cost: float = 0.0) -> str:
        """Say which limit one more call could pass, or nothing."""
        most = self.budget.cost
        reason = self.used_up()
        if reason or most is None:
            return reason
        if self.cost + self._reserved + cost > most * (1 + _ROUNDING):
            return (
                f"{self.cost:g} of {most:g} cost are used up, and the next call may cost {cost:g}"
            )
        return ""

    def used_up(self) -> str:
        """Say which limit is reached by what is settled, or nothing."""
        calls, most = self.budget.calls, self.budget.cost
        if calls is not None and self.calls >= calls:
            return f"{self.calls:,} of {calls:,} calls are used up"
        if most is not None and self.cost >= most * (1 - _ROUNDING):
            return f"{self.cost:g} of {most:g} cost are used up"
        return ""

    def room(self, wanted: int, cost: float = 0.0) -> int:
        """Return how many of some calls, each of which may cost so much, may leave now."""
        calls, most = self.budget.calls, self.budget.cost
        room = wanted if calls is None else min(wanted, calls - self.calls)
        if most is not None and cost > 0:
            left = most * (1 + _ROUNDING) - self.cost - self._reserved
            room = min(room, int(left / cost))
        return max(0, room)

    def affordable(self, costs: Sequence[float]) -> int:
        """Return how many calls at these costs, in their order, the money left pays for."""
        together = 0.0
        for count, cost in enumerate(costs):
            together += cost
            if not self.room(1, together):
                return count
        return len(costs)

    def _has_no_call_left(self) -> bool:
        return self.budget.calls is not None and self.calls >= self.budget.calls
