"""Quantiles of times, with timeouts kept in."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.alternatives import harrell_davis

from guardmark.stats.drawing import DrawPlan
from guardmark.stats.quantiles import (
    RisingTimes,
    estimate_quantile,
    estimate_quantiles,
    median_difference,
    quantile_ranks,
)

FEW = DrawPlan(seed=2, replicates=200)


@pytest.mark.parametrize(
    ("quantile", "needed"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368), (0.999, 3688)]
)
def test_two_sided_limits_exist_from_a_number_on(quantile: float, needed: int) -> None:
    """The p99 of a hundred calls has no upper limit, and the table says so."""
    enough, short = quantile_ranks(needed, quantile), quantile_ranks(needed - 1, quantile)
    assert enough.needed == needed
    assert enough.lower is not None
    assert enough.upper is not None
    assert short.upper is None or short.lower is None


@pytest.mark.parametrize(("trials", "quantile"), [(50, 0.5), (200, 0.95), (1000, 0.99)])
def test_ranks_cover_as_often_as_they_say(trials: int, quantile: float) -> None:
    """The chance that the two order statistics hold the quantile, summed exactly."""
    ranks = quantile_ranks(trials, quantile)
    assert ranks.lower is not None
    assert ranks.upper is not None
    held = sum(
        math.comb(trials, k) * quantile**k * (1 - quantile) ** (trials - k)
        for k in range(ranks.lower, ranks.upper)
    )
    assert held >= 0.95


def test_no_measurements_are_undefined() -> None:
    """Nothing measured has no quantile."""
    found = estimate_quantile([], 0.5)
    assert (found.value, found.low, found.high, found.trials) == (None, None, None, 0)
    assert "no measurements" in found.reason
    assert harrell_davis([], 0.5) is None


times = st.lists(st.floats(0, 100), min_size=8, max_size=60)


@given(times, st.sampled_from([0.25, 0.5, 0.75]))
def test_limits_stand_around_the_point(values: list[float], quantile: float) -> None:
    """The interval contains the estimate."""
    found = estimate_quantile(values, quantile)
    if found.value is None:
        assert "not estimable" in found.reason
    else:
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.value <= found.high
        assert found.value == pytest.approx(float(np.quantile(values, quantile)), abs=1e-9)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=400))
def test_several_quantiles_are_those_taken_one_by_one(rows: list[tuple[int, bool]]) -> None:
    """Ordering the times once changes nothing, whatever ties and timeouts they hold."""
    values, late = [time for time, _ in rows], [is_late for _, is_late in rows]
    wanted = [0.99, 0.5, 0.95]
    together = estimate_quantiles(values, wanted, censored=late)
    assert together == [estimate_quantile(values, each, censored=late) for each in wanted]
    ordered = sorted(values)
    for found in together:
        if found.value is not None:
            assert found.value == pytest.approx(float(np.quantile(ordered, found.quantile)))
            ranks = quantile_ranks(len(values), found.quantile)
            assert ranks.lower is not None
            assert found.low == ordered[ranks.lower - 1]


@given(times)
def test_waiting_longer_before_a_timeout_never_lowers_a_figure(values: list[float]) -> None:
    """A timed-out call counts with the time waited: a lower limit, never left out."""
    late = [each >= 50 for each in values]
    cut = [min(each, 50.0) for each in values]
    short, full = estimate_quantile(cut, 0.5, censored=late), estimate_quantile(values, 0.5)
    assert short.censored == sum(late)
    assert short.value is not None
    assert full.value is not None
    assert short.value <= full.value
    if not short.at_least:
        assert short.value == pytest.approx(full.value)
    if short.high is not None:
        assert full.high is not None
        assert short.high == pytest.approx(full.high)


def test_a_percentile_past_the_finished_share_is_a_lower_limit() -> None:
    """Half of the calls timed out after ten seconds: p95 is at least ten seconds."""
    values, late = [1.0] * 50 + [10.0] * 50, [False] * 50 + [True] * 50
    found = estimate_quantile(values, 0.95, censored=late)
    assert (found.value, found.at_least, found.high) == (10.0, True, None)
    assert "timeouts" in found.reason
    median = estimate_quantile(values[:90], 0.25, censored=late[:90])
    assert (median.value, median.at_least) == (1.0, False)


def test_a_measured_time_equal_to_the_limit_comes_before_the_timeouts() -> None:
    """A call that took exactly the limit did finish."""
    found = estimate_quantile([10.0] * 8, 0.5, censored=[False] * 7 + [True])
    assert (found.value, found.at_least) == (10.0, False)


def test_too_few_measurements_are_not_estimable() -> None:
    """A p99 from a hundred calls would be the largest call under another name."""
    found = estimate_quantile(np.arange(100.0), 0.99)
    assert (found.value, found.low, found.high) == (None, 96.0, None)
    assert "needs 368 measurements, got 100" in found.reason


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=30), st.floats(0.01, 0.99))
def test_harrell_davis_stays_among_the_values(values: list[float], quantile: float) -> None:
    """A mean with weights that sum to one."""
    found = harrell_davis(values, quantile)
    assert found is not None
    assert min(values) - 1e-9 <= found <= max(values) + 1e-9


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        ([1.0, math.nan], {"quantile": 0.5}, "values"),
        ([1.0], {"quantile": 1.0}, "quantile"),
        ([1.0], {"quantile": 0.5, "confidence": 0.0}, "confidence"),
        ([1.0], {"quantile": 0.5, "censored": [True, False]}, "lengths"),
    ],
)
def test_bad_input_is_named(values: list[float], options: dict[str, object], said: str) -> None:
    """The message says what is wrong."""
    with pytest.raises(ValueError, match=said):
        estimate_quantile(values, **options)


@given(times)
def test_a_defense_is_as_fast_as_itself(values: list[float]) -> None:
    """No difference, and an interval of nothing around it."""
    found = median_difference(values, values, drawing=FEW)
    assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)


@given(times, st.floats(-10, 10))
def test_a_constant_delay_is_found(values: list[float], delay: float) -> None:
    """A defense that always takes that much longer differs by that much."""
    found = median_difference([each + delay for each in values], values, drawing=FEW)
    assert found.value == pytest.approx(delay, abs=1e-9)
    assert found.low == pytest.approx(delay, abs=1e-9)


def test_medians_of_draws_are_medians() -> None:
    """Drawing every group once gives the median of all, even counts included."""
    rng = np.random.default_rng(1)
    first, second = rng.gamma(2, 1, 40), rng.gamma(2, 1, 40)
    found = median_difference(first, second, drawing=DrawPlan(seed=1))
    assert found.low is not None
    assert found.high is not None
    assert found.value == pytest.approx(float(np.median(first - second)))
    assert found.low < float(np.median(first - second)) < found.high


def test_groups_are_drawn_whole() -> None:
    """Five copies of each pair leave the limits where they were."""
    rng = np.random.default_rng(1)
    first, second = rng.gamma(2, 1, 12), rng.gamma(2, 1, 12)
    single = median_difference(first, second, groups=range(12), drawing=FEW)
    copies = median_difference(
        np.tile(first, 5), np.tile(second, 5), groups=list(range(12)) * 5, drawing=FEW
    )
    assert (copies.low, copies.high, copies.groups) == (single.low, single.high, 12)


def test_too_few_groups_have_no_interval() -> None:
    """The limits of a median of five are its extremes."""
    few = median_difference([1.0] * 5, [0.0] * 5)
    assert (few.value, few.low) == (1.0, None)
    assert "6 pairs" in few.reason
    none = median_difference([], [])
    assert (none.value, none.reason) == (None, "no pairs")


def test_times_that_share_groups_have_the_limits_of_their_groups() -> None:
    """Four equal times a group are worth one: the ranks of 50 groups, brought to 200 times."""
    alone = estimate_quantiles(np.arange(50.0), [0.5])[0]
    grouped = estimate_quantiles(
        np.repeat(np.arange(50.0), 4), [0.5], groups=np.repeat(np.arange(50), 4)
    )[0]
    assert alone.low is not None
    assert grouped.low is not None
    assert grouped.high is not None
    assert grouped.low <= alone.low
    assert grouped.high - grouped.low < 2 * (alone.high or 0) - 2 * alone.low
    assert grouped.trials == 200


def test_groups_of_one_change_nothing() -> None:
    """Then each time stands alone."""
    values = np.arange(60.0)
    assert estimate_quantiles(values, [0.5, 0.95], groups=np.arange(60)) == estimate_quantiles(
        values, [0.5, 0.95]
    )


def test_every_time_needs_a_group() -> None:
    """A group more or less is a mistake of the caller."""
    with pytest.raises(ValueError, match=r"lengths must be equal, got values 3, groups 2"):
        estimate_quantiles([1.0, 2.0, 3.0], [0.5], groups=[0, 1])


def test_counted_times_are_read_by_place() -> None:
    """Two of 1 ms and three of 5 ms are five times; the median is the third of them."""
    times = RisingTimes(np.array([1.0, 5.0]), None, np.array([2, 3]))
    assert (len(times), [times[at] for at in range(5)]) == (5, [1.0, 1.0, 5.0, 5.0, 5.0])
    assert times.point(0.5) == (5.0, 3)
    assert [times.count_below(at) for at in range(3)] == [0, 2, 5]


def test_counted_timeouts_come_after_equal_times() -> None:
    """Three of 2 ms were measured to the end, four timed out then: three are known."""
    late = np.array([False, True])
    times = RisingTimes(np.array([2.0, 2.0]), late, np.array([3, 4]))
    assert (times.censored, times.measured, times.first_late) == (4, 3, 2.0)
