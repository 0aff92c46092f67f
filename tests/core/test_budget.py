"""What may be spent: a limit is never passed, and a call that must wait does not wait for ever."""

from __future__ import annotations

import asyncio

import pytest

from guardmark.core.budget import Budget, SpendingMeter
from guardmark.core.errors import BudgetReached


async def _call(meter: SpendingMeter, *, at_most: float, cost: float) -> None:
    await meter.admit(at_most)
    await asyncio.sleep(0)
    meter.settle(at_most, cost)


@pytest.mark.parametrize("limit", [0.01, 0.07, 1.0])
async def test_many_calls_at_once_stop_at_the_last_that_can_be_paid(limit: float) -> None:
    """Prices whose sums are not exact in binary buy as many calls as they do on paper."""
    meter = SpendingMeter(Budget(cost=limit))
    calls = (_call(meter, at_most=0.002, cost=0.002) for _ in range(1000))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(result is None for result in results) == meter.calls == round(limit / 0.002)
    assert all(isinstance(result, BudgetReached) for result in results if result is not None)
    assert meter.cost == pytest.approx(limit)


async def test_a_call_waits_for_what_others_do_not_use_up() -> None:
    """Each may cost 1 and costs 0.1: with a limit of 2 the twentieth is too much, no earlier one."""
    meter = SpendingMeter(Budget(cost=2.0))
    calls = (_call(meter, at_most=1.0, cost=0.1) for _ in range(50))
    results = await asyncio.gather(*calls, return_exceptions=True)
    # After eleven calls 1.1 are spent, and one more could cost 1.
    assert sum(result is None for result in results) == 11
    assert meter.cost == pytest.approx(1.1)


async def test_calls_that_ask_again_do_not_wait_for_each_other() -> None:
    """Each holds what its first request cost; where none is under way, all of them end."""
    meter = SpendingMeter(Budget(cost=1.0))

    async def twice() -> None:
        await _call(meter, at_most=0.3, cost=0.3)
        await _call(meter, at_most=0.3, cost=0.3)

    async with asyncio.timeout(5):
        results = await asyncio.gather(*(twice() for _ in range(3)), return_exceptions=True)
    assert meter.calls == 3
    assert all(isinstance(result, BudgetReached) for result in results)


async def test_a_limit_of_calls_counts_what_came_before() -> None:
    """A meter that goes on to another verb keeps its counts."""
    meter = SpendingMeter()
    await _call(meter, at_most=0.0, cost=0.0)
    meter.limit(Budget(calls=2))
    await _call(meter, at_most=0.0, cost=0.0)
    with pytest.raises(BudgetReached, match="2 of 2 calls are used up"):
        await meter.admit()


def test_calls_in_a_row_are_affordable_until_their_sum_is_too_much() -> None:
    """Each counts with those before it; a cheaper one behind the first that is too much does not."""
    meter = SpendingMeter(Budget(cost=1.0))
    assert meter.affordable([0.5, 0.4, 0.3, 0.1]) == 2
    assert meter.affordable([0.5, 0.5]) == 2
    assert meter.affordable([1.5, 0.1]) == 0
    assert meter.affordable([]) == 0
    meter.reserve(0.5)
    assert meter.affordable([0.5, 0.4, 0.3, 0.1]) == 1
