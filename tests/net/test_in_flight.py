"""How many may be inside, and how the limit finds its level."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.errors import ConfigError
from guardmark.net.in_flight import AdaptiveLimit, Gate
from guardmark.net.service import parse_rate


@given(limit=st.integers(1, 5), visitors=st.lists(st.booleans(), max_size=30))
def test_never_more_inside_than_the_limit_and_all_get_in(limit: int, visitors: list[bool]) -> None:
    """Whoever is cancelled while waiting neither takes a place nor loses one."""

    async def scenario() -> None:
        gate = Gate(limit)
        done = []

        async def visit(number: int) -> None:
            await gate.enter()
            try:
                assert gate.inside <= limit
                await asyncio.sleep(0)
            finally:
                gate.leave()
            done.append(number)

        tasks = [asyncio.create_task(visit(number)) for number in range(len(visitors))]
        await asyncio.sleep(0)
        for task, is_cancelled in zip(tasks, visitors, strict=True):
            if is_cancelled:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        staying = [number for number, is_cancelled in enumerate(visitors) if not is_cancelled]
        assert set(staying) <= set(done)
        assert gate.inside == 0
        await visit(-1)

    asyncio.run(scenario())


async def test_those_who_wait_enter_in_order() -> None:
    """First come, first served."""
    gate = Gate(1)
    await gate.enter()
    order: list[int] = []

    async def visit(number: int) -> None:
        await gate.enter()
        order.append(number)
        gate.leave()

    tasks = [asyncio.create_task(visit(number)) for number in range(5)]
    await asyncio.sleep(0)
    gate.leave()
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4]


def _rounds(gate: Gate, adaptive: AdaptiveLimit, *, latency_ns: int, count: int) -> None:
    for _ in range(count):
        for _ in range(gate.limit):
            adaptive.observe(latency_ns, told_to_slow_down=False)


def test_the_limit_grows_while_latency_holds() -> None:
    """From a gentle start it doubles up to the ceiling, and no further."""
    gate = Gate(50)
    adaptive = AdaptiveLimit(gate, 50)
    assert gate.limit == 4
    _rounds(gate, adaptive, latency_ns=100, count=3)
    assert gate.limit == 32
    _rounds(gate, adaptive, latency_ns=100, count=3)
    assert gate.limit == 50


def test_the_limit_halves_when_told_to_slow_down() -> None:
    """Once for all that was under way, then it grows by one a round."""
    gate = Gate(64)
    adaptive = AdaptiveLimit(gate, 64)
    _rounds(gate, adaptive, latency_ns=100, count=3)
    asyncio.run(_enter(gate, 10))
    for _ in range(11):
        adaptive.observe(100, told_to_slow_down=True)
    assert gate.limit == 16
    _rounds(gate, adaptive, latency_ns=100, count=2)
    assert gate.limit == 18


async def _enter(gate: Gate, count: int) -> None:
    for _ in range(count):
        await gate.enter()


def test_the_limit_steps_back_when_latency_rises() -> None:
    """A queue at the service shows as latency; pressing on would only lengthen it."""
    gate = Gate(64)
    adaptive = AdaptiveLimit(gate, 64)
    _rounds(gate, adaptive, latency_ns=100, count=3)
    _rounds(gate, adaptive, latency_ns=200, count=1)
    assert gate.limit == 28


def test_the_limit_never_falls_below_one() -> None:
    """A service that always refuses is still asked, one at a time."""
    gate = Gate(8)
    adaptive = AdaptiveLimit(gate, 8)
    for _ in range(20):
        adaptive.observe(100, told_to_slow_down=True)
    assert gate.limit == 1


@pytest.mark.parametrize(
    ("text", "per_second"), [("5/s", 5), ("300/min", 5), ("1000/h", 1000 / 3600), ("0.5/s", 0.5)]
)
def test_rates_are_read(text: str, per_second: float) -> None:
    """A number, a slash, a unit."""
    rate = parse_rate(text)
    assert rate.count / rate.period_s == pytest.approx(per_second)


@pytest.mark.parametrize("text", ["", "5", "5/d", "-1/s", "0/s", "fast", "1/s/s"])
def test_a_rate_of_another_form_is_refused(text: str) -> None:
    """And the message shows the form."""
    with pytest.raises(ConfigError, match="300/min"):
        parse_rate(text)
