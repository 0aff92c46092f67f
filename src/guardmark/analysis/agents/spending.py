"""What a case takes: calls, tokens and money, of the agent's model and of guards, by arm."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.agents.cases import CasesOfArm
    from guardmark.analysis.agents.counting import CaseCounting
    from guardmark.core.usage import UsageTotals
    from guardmark.stats.figures import Quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSpending:
    """What the cases of an arm take, as if the arm had run alone.

    An answer that several arms share counts in each of them. What a service did not tell, or has no
    price, is in no sum: a case counts where all of its calls told it.

    Attributes:
        arm: Name of the arm.
        agent: Name of the agent.
        of: Whose calls: `agent` or `guards`.
        cases: Cases whose calls were counted.
        calls: Calls in them.
        cases_with_tokens: Cases all of whose calls told what they read and wrote.
        tokens_read: In those cases; None without any.
        tokens_written: In those cases; None without any.
        tokens: Read and written in such a case, median and 95th percentile.
        cases_with_price: Cases all of whose calls have a price.
        cost: Of those cases, in the user's currency; None without any.
        money: Of such a case, median and 95th percentile.
    """

    arm: str
    agent: str
    of: str
    cases: int
    calls: int
    cases_with_tokens: int
    tokens_read: int | None
    tokens_written: int | None
    tokens: tuple[Quantile, ...] = field(metadata={"json": False})
    cases_with_price: int
    cost: float | None
    money: tuple[Quantile, ...] = field(metadata={"json": False})


def measure_spending(
    arms: Sequence[CasesOfArm], counting: CaseCounting
) -> tuple[CaseSpending, ...]:
    """Count what the cases of each arm take; arms whose calls were not counted are left out."""
    return tuple(_spending(arms, counting))


def _spending(arms: Sequence[CasesOfArm], counting: CaseCounting) -> Iterator[CaseSpending]:
    for arm in arms:
        sides = {
            "agent": [row.result.usage.agent for row in arm.rows],
            "guards": [row.result.usage.guards for row in arm.rows],
        }
        for of, totals in sides.items():
            counted = [each for each in totals if each is not None]
            if counted:
                yield _of_cases(arm, of, counted, counting)


def _of_cases(
    arm: CasesOfArm, of: str, counted: Sequence[UsageTotals], counting: CaseCounting
) -> CaseSpending:
    calls = read = written = 0
    tokens: list[float] = []
    costs: list[float] = []
    for totals in counted:
        calls += totals.calls
        if totals.reported == totals.calls:
            read += totals.tokens_read
            written += totals.tokens_written
            tokens.append(float(totals.tokens))
        if totals.priced == totals.calls and totals.cost is not None:
            costs.append(totals.cost)
    return CaseSpending(
        arm=arm.arm,
        agent=arm.agent,
        of=of,
        cases=len(counted),
        calls=calls,
        cases_with_tokens=len(tokens),
        tokens_read=read if tokens else None,
        tokens_written=written if tokens else None,
        tokens=counting.quantiles(tokens),
        cases_with_price=len(costs),
        cost=sum(costs) if costs else None,
        money=counting.quantiles(costs),
    )
