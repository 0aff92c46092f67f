"""What calls use together: a count that nobody told is unknown, never zero."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.usage import Usage, UsageTotals, price_of

COUNTS = st.none() | st.integers(0, 10_000)
CALLS = st.lists(
    st.tuples(
        st.none()
        | st.builds(
            Usage,
            prompt_tokens=COUNTS,
            completion_tokens=COUNTS,
            cost=st.none() | st.integers(0, 8).map(float),
        ),
        st.none() | st.integers(0, 9).map(lambda n: n * 10**9),
        st.booleans(),
    ),
    max_size=12,
)


@dataclass(frozen=True)
class Rates:
    """A price."""

    input_per_1k: float = 0.0
    output_per_1k: float = 0.0
    per_call: float = 0.0


def totals_of(calls: list[tuple[Usage | None, int | None, bool]]) -> UsageTotals:
    """Add up calls one by one."""
    totals = UsageTotals()
    for usage, latency, failed in calls:
        totals = totals.plus(usage, latency_ns=latency, failed=failed)
    return totals


@pytest.mark.parametrize(
    ("read", "written", "together"),
    [(3, 4, 7), (3, None, None), (None, 4, None), (None, None, None), (0, 0, 0)],
)
def test_tokens_together_are_known_only_when_both_are(
    read: int | None, written: int | None, together: int | None
) -> None:
    """A call that told one of them is counted, and in no sum of both."""
    usage = Usage(prompt_tokens=read, completion_tokens=written)
    assert usage.tokens == together
    totals = UsageTotals().plus(usage)
    assert (totals.calls, totals.reported) == (1, together is not None)
    assert (totals.tokens_read, totals.tokens_written) == (read or 0, written or 0)
    assert totals.tokens == (together or 0)


def test_money_is_unknown_until_a_call_has_a_price() -> None:
    """And zero when that is its price."""
    totals = UsageTotals().plus(Usage(prompt_tokens=1)).plus(None, failed=True)
    assert (totals.cost, totals.priced, totals.failed) == (None, 0, 1)
    assert (totals.plus(Usage(cost=0.0)).cost, totals.plus(Usage(cost=2.5)).cost) == (0.0, 2.5)


@given(CALLS, CALLS)
def test_parts_add_up_to_the_whole(
    first: list[tuple[Usage | None, int | None, bool]],
    second: list[tuple[Usage | None, int | None, bool]],
) -> None:
    """However calls are divided."""
    assert totals_of(first) + totals_of(second) == totals_of(first + second)


@pytest.mark.parametrize(
    ("rates", "read", "written", "cost"),
    [
        (Rates(per_call=0.5), None, None, 0.5),
        (Rates(input_per_1k=2.0), 500, None, 1.0),
        (Rates(input_per_1k=2.0), None, 500, None),
        (Rates(output_per_1k=2.0), 500, None, None),
        (Rates(input_per_1k=1.0, output_per_1k=2.0, per_call=0.5), 500, 250, 1.5),
        (Rates(), None, None, 0.0),
    ],
)
def test_a_price_is_known_when_all_counts_that_cost_something_are(
    rates: Rates, read: int | None, written: int | None, cost: float | None
) -> None:
    """What costs nothing need not be counted."""
    assert price_of(rates, read=read, written=written) == cost


def test_what_two_calls_used_is_added_up() -> None:
    """What only one of them reported stands alone; what none reported stays unknown."""
    both = Usage(prompt_tokens=3, completion_tokens=2, cost=0.5) + Usage(prompt_tokens=4, cost=0.0)
    assert both == Usage(prompt_tokens=7, completion_tokens=2, cost=0.5)
    assert Usage() + Usage(cost=0.0) == Usage(cost=0.0)
    assert Usage() + Usage() == Usage()
