"""Differences of amounts, by values worked out by hand and by what must hold of all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from guardmark.stats.distributions import two_sided_t
from guardmark.stats.paired.amounts import amounts_over_these, crossed_amounts


def test_ten_tasks_by_hand() -> None:
    """One of ten tasks takes 10 more: variance 1, third moment 1.0 by 100/72, and 9 degrees."""
    gap = amounts_over_these([10.0] + [0.0] * 9, [0.0] * 10, groups=range(10))
    assert (gap.value, gap.first, gap.second) == (1.0, 1.0, 0.0)
    assert (gap.pairs, gap.groups, gap.reason) == (10, 10, "")
    quantile = two_sided_t(0.95, 9)
    # Residuals are 9 and nine times -1: sum of squares 90, of cubes 720, over 10 and 10 squared.
    error = math.sqrt(90 / 100 * 10 / 9)
    skewness = 720 / 1000 * 100 / 72 / error**3
    reach = 4 * (2 * quantile**2 + 1) / 6 * skewness
    unseen = 4 * 1.0 / 10
    assert gap.low == pytest.approx(1.0 - math.hypot(quantile * error, unseen))
    assert gap.high == pytest.approx(1.0 + math.hypot((quantile + reach) * error, unseen))


def test_arms_that_spend_alike_are_not_known_to_be_alike() -> None:
    """Twenty tasks of 3 calls in both arms: four unseen ones would move the mean by 4/20 of 3."""
    gap = amounts_over_these([3.0] * 20, [3.0] * 20, groups=range(20))
    assert gap.value == 0.0
    assert (gap.low, gap.high) == pytest.approx((-0.6, 0.6))
    first, second = np.nonzero(np.ones((20, 10)))
    crossed = crossed_amounts([3.0] * 200, [3.0] * 200, first=first, second=second)
    assert (crossed.low, crossed.high) == pytest.approx((-1.2, 1.2))  # of the ten injections


def test_few_groups_carry_no_limits_and_say_so() -> None:
    """A mean of nine tasks may miss the one that takes most; the value stands."""
    few = amounts_over_these(range(9), [0] * 9, groups=range(9))
    assert (few.value, few.low, few.high) == (4.0, None, None)
    assert few.reason == "limits of amounts need 10 groups, and these are 9"
    first, second = np.nonzero(np.ones((9, 5)))
    crossed = crossed_amounts(first, second, first=first, second=second)
    assert (crossed.low, crossed.high) == (None, None)
    assert crossed.reason == few.reason


def test_one_injection_says_nothing_of_others() -> None:
    """There are no limits over injections like one; those over this one stand."""
    amounts = list(range(20))
    one = crossed_amounts(amounts, [0] * 20, first=range(20), second=[0] * 20)
    assert (one.value, one.low) == (9.5, None)
    assert "two levels" in one.reason
    assert amounts_over_these(amounts, [0] * 20, groups=range(20)).low is not None


def test_few_injections_make_wide_limits() -> None:
    """Two injections leave open four more: twice of what the dearer arm spends, to each side."""
    first, second = np.nonzero(np.ones((20, 2)))
    gap = crossed_amounts([3.0] * 40, [2.0] * 40, first=first, second=second)
    assert (gap.low, gap.high) == pytest.approx((1.0 - 6.0, 1.0 + 6.0))


def test_nothing_is_undefined_and_not_zero() -> None:
    """Without pairs there is no mean."""
    for gap in (
        amounts_over_these([], [], groups=[]),
        crossed_amounts([], [], first=[], second=[]),
    ):
        assert (gap.value, gap.first, gap.second, gap.low, gap.high) == (None,) * 5
        assert gap.pairs == 0
        assert gap.reason


def _drawn(seed: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    first, second = np.nonzero(np.ones((16, 12)))
    ours = np.exp(rng.standard_normal(len(first)) + rng.standard_normal(16)[first])
    theirs = np.exp(rng.standard_normal(len(first)))
    return {"ours": ours, "theirs": theirs, "first": first, "second": second}


def test_exchanging_the_arms_mirrors_the_limits() -> None:
    """More in one is less in the other."""
    drawn = _drawn()
    levels = {"first": drawn["first"], "second": drawn["second"]}
    one = crossed_amounts(drawn["ours"], drawn["theirs"], **levels)
    other = crossed_amounts(drawn["theirs"], drawn["ours"], **levels)
    assert one.low is not None
    assert one.high is not None
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low))
    assert (one.first, one.second) == (other.second, other.first)


def test_the_unit_does_not_matter() -> None:
    """A thousand tokens or one thousand: limits grow as amounts do."""
    drawn = _drawn()
    one = amounts_over_these(drawn["ours"], drawn["theirs"], groups=drawn["first"])
    more = amounts_over_these(1e3 * drawn["ours"], 1e3 * drawn["theirs"], groups=drawn["first"])
    assert one.low is not None
    assert one.high is not None
    assert (more.low, more.high) == pytest.approx((1e3 * one.low, 1e3 * one.high))


def test_injections_like_these_are_asked_more_than_these() -> None:
    """Where injections differ, the question that both factors answer has the wider limits."""
    drawn = _drawn()
    ours = drawn["ours"] + drawn["second"]
    here = amounts_over_these(ours, drawn["theirs"], groups=drawn["first"])
    all_like = crossed_amounts(ours, drawn["theirs"], first=drawn["first"], second=drawn["second"])
    assert all_like.value == here.value
    assert all_like.low is not None
    assert all_like.high is not None
    assert here.low is not None
    assert here.high is not None
    assert all_like.low < here.low
    assert all_like.high > here.high


def test_two_alike_suites_are_worth_twice_one() -> None:
    """Strata share no level: half the variance, half of what is unseen."""
    drawn = _drawn()
    first, second = drawn["first"], drawn["second"]
    one = crossed_amounts(drawn["ours"], drawn["theirs"], first=first, second=second)
    two = crossed_amounts(
        np.tile(drawn["ours"], 2),
        np.tile(drawn["theirs"], 2),
        first=np.tile(first, 2),
        second=np.tile(second, 2),
        strata=np.repeat([0, 1], len(first)),
    )
    assert two.groups == 2 * one.groups
    assert one.low is not None
    assert one.high is not None
    assert two.low is not None
    assert two.high is not None
    assert 0.5 < (two.high - two.low) / (one.high - one.low) < 0.75


def test_rows_that_hang_together_are_worth_fewer() -> None:
    """Times of slow spells: four rows that tell as much as one double what rows alone leave."""
    rng = np.random.default_rng(3)
    times = 5 + rng.random(400)
    one = amounts_over_these(times, times * 0, groups=range(400))
    spells = amounts_over_these(times, times * 0, groups=range(400), autocorrelation=4.0)
    assert one.low is not None
    assert spells.low is not None
    assert spells.low < one.low


def test_amounts_below_nothing_are_refused() -> None:
    """Nobody spends less than nothing, and what is not finite is no amount."""
    with pytest.raises(ValueError, match="below 0"):
        amounts_over_these([-1.0], [0.0], groups=[0])
    with pytest.raises(ValueError, match="finite"):
        amounts_over_these([float("nan")], [0.0], groups=[0])
    with pytest.raises(ValueError, match="confidence"):
        amounts_over_these([1.0], [0.0], groups=[0], confidence=1.0)
