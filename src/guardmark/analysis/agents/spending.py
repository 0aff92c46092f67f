"""What a case takes, by arm and against other arms: calls, tokens, money and time of guards."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from guardmark.analysis.agents.cases import CaseRow, CasesOfArm
    from guardmark.analysis.agents.counting import CaseCounting
    from guardmark.core.usage import UsageTotals
    from guardmark.stats.figures import Quantile
    from guardmark.stats.paired.amounts import AmountDifference


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingPair:
    """How much more a case takes in the first of two arms, over cases in which both are known.

    Benign cases and attacks stand apart: an attack may end a case early, or send an agent astray.

    Attributes:
        of: Whose it is: `agent` or `guards`.
        what: `calls`, `tokens`, `money` or `time_ms`.
        benign: In benign cases, over tasks like these.
        attacks: In attacks, over tasks and injections like these.
        attacks_here: In attacks, over tasks like these, and these injections and no others.
    """

    of: str
    what: str
    benign: AmountDifference
    attacks: AmountDifference
    attacks_here: AmountDifference


def compare_spending(
    pairs: Sequence[tuple[CaseRow, CaseRow]], counting: CaseCounting
) -> tuple[SpendingPair, ...]:
    """Say how much more a case takes in the first arm; what nobody counted is left out."""
    return tuple(_compared(pairs, counting))


def _compared(
    pairs: Sequence[tuple[CaseRow, CaseRow]], counting: CaseCounting
) -> Iterator[SpendingPair]:
    for (of, what), amount in _AMOUNTS.items():
        benign: list[CaseRow] = []
        attacks: list[CaseRow] = []
        of_benign: list[tuple[float, float]] = []
        of_attacks: list[tuple[float, float]] = []
        for row, other in pairs:
            ours, theirs = amount(row), amount(other)
            if ours is None or theirs is None:
                continue
            if row.case.is_attack:
                attacks.append(row)
                of_attacks.append((ours, theirs))
            else:
                benign.append(row)
                of_benign.append((ours, theirs))
        if any(ours or theirs for ours, theirs in (*of_benign, *of_attacks)):
            in_time = what == TIME
            yield SpendingPair(
                of=of,
                what=what,
                benign=counting.amounts_by_task(benign, of_benign, in_time=in_time),
                attacks=counting.amounts_crossed(attacks, of_attacks, in_time=in_time),
                attacks_here=counting.amounts_by_task(attacks, of_attacks, in_time=in_time),
            )


TIME: Final = "time_ms"


def _calls_of_agent(row: CaseRow) -> float | None:
    used = row.result.usage.agent
    if used is None:
        return None
    return float(used.calls)


def _calls_of_guards(row: CaseRow) -> float | None:
    return float(len(row.guard_steps))


def _time_of_guards(row: CaseRow) -> float | None:
    """Return the time of all guards; a proxy is timed once for both of its places."""
    steps = row.guard_steps
    if steps and all(step.latency_ns is None for step in steps):
        return None
    return row.guards_ns / 1e6


def _tokens_of_agent(row: CaseRow) -> float | None:
    return _tokens(row.result.usage.agent)


def _tokens_of_guards(row: CaseRow) -> float | None:
    if not row.guard_steps:
        return 0.0
    return _tokens(row.result.usage.guards)


def _money_of_agent(row: CaseRow) -> float | None:
    return _cost(row.result.usage.agent)


def _money_of_guards(row: CaseRow) -> float | None:
    if not row.guard_steps:
        return 0.0
    return _cost(row.result.usage.guards)


def _tokens(totals: UsageTotals | None) -> float | None:
    """Return the tokens of calls all of which told what they read and wrote."""
    if totals is None or totals.reported != totals.calls:
        return None
    return float(totals.tokens)


def _cost(totals: UsageTotals | None) -> float | None:
    """Return the price of calls all of which have one."""
    if totals is None or totals.priced != totals.calls:
        return None
    return totals.cost


_AMOUNTS: Final[dict[tuple[str, str], Callable[[CaseRow], float | None]]] = {
    ("agent", "calls"): _calls_of_agent,
    ("agent", "tokens"): _tokens_of_agent,
    ("agent", "money"): _money_of_agent,
    ("guards", "calls"): _calls_of_guards,
    ("guards", "tokens"): _tokens_of_guards,
    ("guards", "money"): _money_of_guards,
    ("guards", TIME): _time_of_guards,
}


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
        together, cost = _tokens(totals), _cost(totals)
        if together is not None:
            read += totals.tokens_read
            written += totals.tokens_written
            tokens.append(together)
        if cost is not None:
            costs.append(cost)
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
