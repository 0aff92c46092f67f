"""Families of tests: edges that libraries treat differently."""

from __future__ import annotations

import math

import pytest
from tests.oracles.alternatives import (
    benjamini_hochberg,
    benjamini_yekutieli,
    bonferroni,
    hochberg,
)

from guardmark.stats.multiplicity import cochran_q, holm

METHODS = [bonferroni, holm, hochberg, benjamini_hochberg, benjamini_yekutieli]
every_method = pytest.mark.parametrize("method", METHODS, ids=lambda f: f.__name__)


@every_method
def test_a_family_of_one_needs_no_adjustment(method: object) -> None:
    """Two defenses, one comparison."""
    assert callable(method)
    assert method([0.04]) == [0.04]
    assert method([]) == []


@every_method
def test_an_undefined_test_stays_undefined_and_costs_nothing(method: object) -> None:
    """A category without pairs is no test."""
    assert callable(method)
    with_gap, without = method([0.01, None, 0.03]), method([0.01, 0.03])
    assert with_gap == [without[0], None, without[1]]


@every_method
@pytest.mark.parametrize("bad", [math.nan, -0.1, 1.1])
def test_what_is_no_probability_is_refused_with_its_place(method: object, bad: float) -> None:
    """NaN would sort somewhere and spoil its neighbours."""
    assert callable(method)
    with pytest.raises(ValueError, match="at place 2"):
        method([0.5, None, bad])


def test_cochrans_q_of_two_is_mcnemars_chi_square() -> None:
    """Seven against one."""
    outcomes = [[1, 0]] + [[0, 1]] * 7 + [[0, 0]] * 12 + [[1, 1]]
    test = cochran_q(outcomes)
    assert test.q == pytest.approx((7 - 1) ** 2 / 8)
    assert (test.samples, test.varying) == (21, 8)


@pytest.mark.parametrize("outcomes", [[[1, 1], [0, 0]], [[1, 1, 1]], [[0, 0, 0]] * 4])
def test_rows_that_do_not_vary_give_1_and_say_so(outcomes: list[list[int]]) -> None:
    """Defenses that agree everywhere are not shown to differ, nor undefined."""
    test = cochran_q(outcomes)
    assert (test.q, test.p_value) == (None, 1.0)
    assert test.reason


@pytest.mark.parametrize("outcomes", [[[1], [0]], [1, 0], [[0, 2]], [[0.0, math.nan]]])
def test_what_is_no_table_of_outcomes_is_refused(outcomes: list[object]) -> None:
    """One defense, one row as a list, a count, a gap."""
    with pytest.raises(ValueError, match="outcomes must"):
        cochran_q(outcomes)
