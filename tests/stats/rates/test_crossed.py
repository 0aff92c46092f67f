"""Rates and differences of crossed rows, by values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.soak.cells import Ints

from guardmark.stats.distributions import two_sided_t
from guardmark.stats.paired.crossed import crossed_difference
from guardmark.stats.rates.clustered import wilson_default
from guardmark.stats.rates.crossed import (
    crossed_rate,
    crossed_variance,
    rate_over_these,
)

THREE_BY_TWO = [1, 0, 1, 0, 0, 0]
"""Injection 0 works on tasks 0 and 1, injection 1 on none."""


def crossing(tasks: int, injections: int) -> tuple[Ints, Ints]:
    """Task and injection of each row, where each task meets each injection once."""
    first, second = np.nonzero(np.ones((tasks, injections)))
    return first, second


def test_three_tasks_and_two_injections_by_hand() -> None:
    """A = 7/162, B = 1/9 and vi = 2/45: B is the largest variance, and 2/9 over it is 2 rows."""
    first, second = crossing(3, 2)
    values = np.array(THREE_BY_TWO, dtype=float)
    worth = crossed_variance(values, values > 0, first=first, second=second)
    assert worth.variance == pytest.approx(1 / 9)
    assert worth.effective_n == pytest.approx(2)
    assert worth.degrees_of_freedom == pytest.approx(75 / 29)
    assert (worth.first_levels, worth.second_levels, worth.fewer_levels) == (3, 2, 2)
    estimate = crossed_rate(THREE_BY_TWO, first=first, second=second)
    assert (estimate.successes, estimate.trials, estimate.groups) == (2, 6, 2)
    assert estimate.low == pytest.approx(0.016731241, abs=1e-9)
    assert estimate.high == pytest.approx(0.936273696, abs=1e-9)
    assert estimate.few_groups


def test_both_factors_add_up_by_hand() -> None:
    """Four by four, each task once and each injection once: 3/16 over 3/64 + 3/64 - 1/80."""
    first, second = crossing(4, 4)
    values = (first == second).astype(float)
    worth = crossed_variance(values, values > 0, first=first, second=second)
    # No level differs from another: va = vb = 0, so A = B = (1/5) (3/16) / 4 = 3/320, vi = 1/80,
    # and the largest is that of independent rows, 3/256.
    assert worth.variance == pytest.approx(max(3 / 320, 3 / 256))
    assert worth.effective_n == pytest.approx(16)
    # ea = eb = 0, so vi stands alone: vi^2 / (vi^2 / 16).
    assert worth.degrees_of_freedom == pytest.approx(16)


def test_nothing_among_twenty_one_tasks_and_five_injections_reads_as_nothing_among_five() -> None:
    """0 of 105 says [0, .61] of injections like these: t of 4 degrees at 5 rows."""
    first, second = crossing(21, 5)
    none = crossed_rate([0] * 105, first=first, second=second)
    square = two_sided_t(0.95, 4) ** 2
    assert none.low == 0.0
    assert none.high == pytest.approx(square / (5 + square))
    assert none.high == pytest.approx(0.6066, abs=1e-4)
    every = crossed_rate([1] * 105, first=first, second=second)
    assert every.low == pytest.approx(1 - 0.6066, abs=1e-4)
    assert every.high == 1.0


def test_the_order_of_the_factors_does_not_matter() -> None:
    """Nothing is said of tasks that is not said of injections."""
    first, second = crossing(18, 50)
    hits = np.random.default_rng(2).random(len(first)) < 0.1
    one = crossed_rate(hits, first=first, second=second)
    other = crossed_rate(hits, first=second, second=first)
    assert (one.low, one.high) == pytest.approx((other.low, other.high))


def test_repeats_of_a_crossing_are_alike() -> None:
    """Each row three times over says no more than once; three draws that differ say more."""
    first, second = crossing(8, 6)
    hits = np.random.default_rng(3).random(len(first)) < 0.3
    once = crossed_rate(hits, first=first, second=second)
    thrice = crossed_rate(np.tile(hits, 3), first=np.tile(first, 3), second=np.tile(second, 3))
    assert once.low is not None
    assert thrice.low is not None
    assert thrice.effective_n == pytest.approx(once.effective_n)
    drawn = np.random.default_rng(3).random(3 * len(first)) < 0.3
    more = crossed_rate(drawn, first=np.tile(first, 3), second=np.tile(second, 3))
    assert more.effective_n is not None
    assert more.effective_n > 1.3 * (once.effective_n or 0.0)


def test_suites_are_strata() -> None:
    """Two equal suites: half the variance of one, so twice its worth."""
    first, second = crossing(3, 2)
    one = crossed_rate(THREE_BY_TWO, first=first, second=second)
    two = crossed_rate(
        THREE_BY_TWO * 2,
        first=np.tile(first, 2),
        second=np.tile(second, 2),
        strata=[0] * 6 + [1] * 6,
    )
    assert two.effective_n == pytest.approx(2 * (one.effective_n or 0.0))
    assert two.degrees_of_freedom == pytest.approx(2 * (one.degrees_of_freedom or 0.0))
    assert two.groups == 4


def test_a_suite_without_a_success_is_not_certain() -> None:
    """Beside one of rate a third, one of 0 is worth as many rows as it has injections."""
    first, second = crossing(3, 2)
    both = crossed_rate(
        [*THREE_BY_TWO, 0, 0, 0, 0, 0, 0],
        first=np.tile(first, 2),
        second=np.tile(second, 2),
        strata=[0] * 6 + [1] * 6,
    )
    spread = 1 / 6 * 5 / 6  # of a row of both
    assert both.effective_n == pytest.approx(spread / ((1 / 9) / 4 + (spread / 2) / 4))


def test_one_injection_says_nothing_of_others() -> None:
    """There is no interval over injections like one; that over this one stands."""
    first, second = crossing(6, 1)
    estimate = crossed_rate([1, 0, 0, 0, 0, 0], first=first, second=second)
    assert (estimate.low, estimate.high) == (None, None)
    assert "two levels" in estimate.reason
    assert rate_over_these([1, 0, 0, 0, 0, 0], groups=first).low is not None


def test_no_rows_are_undefined() -> None:
    """Undefined is not zero."""
    nothing = crossed_rate([], first=[], second=[])
    assert (nothing.value, nothing.low, nothing.reason) == (None, None, "no trials")
    empty = crossed_difference([], [], first=[], second=[])
    assert (empty.value, empty.p_value, empty.reason) == (None, None, "no trials")


def test_over_these_injections_the_groups_are_tasks() -> None:
    """The default of grouped rows; tasks of one number in two suites are two."""
    first, _ = crossing(3, 2)
    same = wilson_default([1, 1, 0], [2, 2, 2])
    assert rate_over_these(THREE_BY_TWO, groups=first) == same
    two = rate_over_these(THREE_BY_TWO * 2, groups=[*first, *first], strata=[0] * 6 + [1] * 6)
    assert two.groups == 6


def test_equal_arms_differ_by_nothing() -> None:
    """Without a pair that differs there is a wide interval around 0, and p is 1."""
    first, second = crossing(20, 7)
    alike = crossed_difference([0] * 140, [0] * 140, first=first, second=second)
    assert (alike.value, alike.p_value) == (0.0, 1.0)
    assert alike.low is not None
    assert alike.low < -0.2


def test_the_test_is_the_interval() -> None:
    """At the confidence of 1 - p the limits touch 0."""
    first, second = crossing(20, 12)
    better = np.random.default_rng(4).random(240) < 0.6
    gap = crossed_difference(better, [0] * 240, first=first, second=second)
    assert gap.p_value is not None
    assert gap.p_value < 0.01
    touching = crossed_difference(
        better, [0] * 240, first=first, second=second, confidence=1 - gap.p_value
    )
    assert touching.low == pytest.approx(0.0, abs=1e-6)
    other = crossed_difference([0] * 240, better, first=first, second=second)
    assert (other.low, other.high) == pytest.approx((-(gap.high or 0), -(gap.low or 0)))


def test_a_pair_of_both_is_refused() -> None:
    """A row cannot be won by each arm alone."""
    with pytest.raises(ValueError, match="one arm only"):
        crossed_difference([1, 0], [1, 0], first=[0, 1], second=[0, 1])
    with pytest.raises(ValueError, match="first"):
        crossed_rate([1, 0], first=[0], second=[0, 1])
