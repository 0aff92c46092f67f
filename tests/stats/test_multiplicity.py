"""Families of tests: edges that libraries treat differently."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.alternatives import (
    benjamini_hochberg,
    benjamini_yekutieli,
    bonferroni,
    hochberg,
)

from guardmark.stats.multiplicity import cochran_q, holm, tier_letters

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
    with pytest.raises(ValueError, match="at position 2"):
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


def test_what_is_told_apart_from_nothing_shares_one_letter() -> None:
    """Without a difference all are in one tier, and none are in none."""
    assert tier_letters(3, []) == ["a", "a", "a"]
    assert tier_letters(0, []) == []


def test_not_being_told_apart_does_not_pass_on() -> None:
    """The middle one shares a letter with both ends, which share none with each other."""
    assert tier_letters(3, [(0, 2)]) == ["a", "ab", "b"]
    assert tier_letters(3, [(0, 2), (1, 2), (0, 1)]) == ["a", "b", "c"]


@given(
    st.integers(2, 9).flatmap(
        lambda n: st.tuples(
            st.just(n), st.sets(st.sampled_from([*combinations(range(n), 2)]), max_size=12)
        )
    )
)
def test_two_share_a_letter_unless_they_are_told_apart(
    case: tuple[int, set[tuple[int, int]]],
) -> None:
    """The letters say what the tests of pairs said, no more and no less."""
    count, different = case
    letters = tier_letters(count, different)
    for pair in combinations(range(count), 2):
        shared = set(letters[pair[0]]) & set(letters[pair[1]])
        assert bool(shared) is (pair not in different)


def test_past_z_letters_are_numbers() -> None:
    """More tiers than letters stay told apart."""
    letters = tier_letters(28, combinations(range(28), 2))
    assert letters[25:] == ["z", "(27)", "(28)"]


@pytest.mark.parametrize("pair", [(0, 0), (0, 3), (-1, 2)])
def test_a_pair_of_places_that_are_not_there_is_refused(pair: tuple[int, int]) -> None:
    """A place that is not there is a wrong call."""
    with pytest.raises(ValueError, match=r"two positions in 0\.\.2"):
        tier_letters(3, [pair])
