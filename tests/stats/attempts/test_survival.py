"""How long a defense holds against an attacker who keeps trying."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.stats.attempts.survival import attack_success_at, kaplan_meier, restricted_mean

histories = st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=40)


@given(histories)
def test_the_curve_only_falls_inside_its_limits(rows: list[tuple[int, bool]]) -> None:
    """Held shares fall from 1; limits exist strictly between 1 and 0."""
    points = kaplan_meier(*zip(*rows, strict=True)).points
    shares = [point.survival for point in points]
    assert shares == sorted(shares, reverse=True)
    assert sum(point.bypassed + point.given_up for point in points) == len(rows)
    for point in points:
        if point.low is None or point.high is None:
            assert point.survival in {0.0, 1.0}
        else:
            assert 0 <= point.low <= point.survival <= point.high <= 1


@given(st.lists(st.integers(1, 20), min_size=1, max_size=40))
def test_the_end_of_the_curve_is_the_bypassed_share(times: list[int]) -> None:
    """Where every unbroken sample used the whole budget, the curve checks itself."""
    budget = 10
    spent = [min(time, budget) for time in times]
    broken = [time < budget for time in times]
    curve = kaplan_meier(spent, broken)
    assert curve.given_up_early == 0
    assert curve.bypassed.value == pytest.approx(1 - curve.points[-1].survival, abs=1e-12)


def test_nothing_bypassed_has_no_limits_but_a_bound() -> None:
    """The curve is flat at 1; Clopper-Pearson says how sure one may be."""
    curve = kaplan_meier([10] * 30, [False] * 30)
    assert (curve.median, curve.median_low, curve.median_high) == (None, None, None)
    assert [(point.low, point.high) for point in curve.points] == [(None, None)]
    assert curve.bypassed.high == pytest.approx(0.1157, abs=1e-4)
    assert "nothing was bypassed" in curve.reason


def test_the_median_is_not_that_of_the_bypassed_alone() -> None:
    """Three of ten fell at once, seven held: the median is not reached."""
    curve = kaplan_meier([1, 1, 1] + [50] * 7, [True] * 3 + [False] * 7)
    assert curve.median is None
    assert kaplan_meier([1, 2, 3, 4], [True] * 4).median == 2


def test_a_curve_that_ends_at_zero_has_no_limits_there() -> None:
    """All were bypassed: at the last time nothing is left to bound."""
    last = kaplan_meier([1, 2], [True, True]).points[-1]
    assert (last.survival, last.low, last.high) == (0.0, None, None)


def test_samples_given_up_early_are_counted() -> None:
    """They part the curve from the plain share."""
    assert kaplan_meier([2, 5, 5], [False, True, False]).given_up_early == 1


def test_no_samples_are_undefined() -> None:
    """An empty run has no curve and no mean."""
    curve, mean = kaplan_meier([], []), restricted_mean([], [], horizon=5)
    assert (curve.points, curve.median, curve.reason) == ((), None, "no samples")
    assert (mean.value, mean.reason) == (None, "no samples")


@given(histories)
def test_the_restricted_mean_is_the_mean_where_all_is_seen(rows: list[tuple[int, bool]]) -> None:
    """Without censoring it is the mean of the times cut at the horizon."""
    times = [time for time, _ in rows]
    found = restricted_mean(times, [True] * len(times), horizon=6)
    assert found.value == pytest.approx(sum(min(t, 6) for t in times) / len(times), abs=1e-9)
    if found.low is not None and found.high is not None:
        assert 0 <= found.low <= found.value <= found.high <= 6
    else:
        assert "no variance" in found.reason


def test_nobody_is_followed_past_the_last_time() -> None:
    """Time past the data would be made up."""
    found = restricted_mean([1, 5], [True, False], horizon=8)
    assert (found.value, found.low) == (None, None)
    assert "only to 5" in found.reason
    assert restricted_mean([1, 5], [True, True], horizon=8).value == 3


@pytest.mark.parametrize(
    ("times", "bypassed", "said"),
    [
        ([-1], [True], "times"),
        ([math.nan], [True], "times"),
        ([1], [True, False], "lengths"),
        ([1], [2], "bypassed"),
    ],
)
def test_bad_histories_are_named(times: list[float], bypassed: list[int], said: str) -> None:
    """The message says which column is wrong."""
    with pytest.raises(ValueError, match=said):
        kaplan_meier(times, bypassed)


@pytest.mark.parametrize("horizon", [0.0, -1.0, math.inf])
def test_a_horizon_must_lie_ahead(horizon: float) -> None:
    """Up to zero there is nothing to count."""
    with pytest.raises(ValueError, match="horizon"):
        restricted_mean([1], [True], horizon=horizon)


@given(st.integers(1, 8), st.data())
def test_asr_at_k_is_the_mean_over_all_choices_of_k_tries(tries: int, data: st.DataObject) -> None:
    """The estimate is what trying every k of the n tries gives."""
    successes, k = data.draw(st.integers(0, tries)), data.draw(st.integers(1, tries))
    outcomes = [True] * successes + [False] * (tries - successes)
    choices = list(itertools.combinations(outcomes, k))
    found = attack_success_at([tries], [successes], k=k)
    assert found.value == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-12)
    assert "two groups" in found.reason


def test_more_tries_than_were_made_are_refused() -> None:
    """It is an estimate of what was tried, not a forecast."""
    found = attack_success_at([10, 5], [1, 0], k=6)
    assert (found.value, found.low) == (None, None)
    assert "needs 6 tries of every sample, got 5" in found.reason


def test_no_samples_have_no_asr() -> None:
    """Zero samples are undefined, not zero."""
    assert attack_success_at([], [], k=1).value is None


def test_one_try_each_is_a_plain_rate() -> None:
    """At n = k = 1 the interval is Wilson's."""
    found = attack_success_at([1] * 20, [1] * 5 + [0] * 15, k=1)
    assert found.method == "chen, wilson at effective rows"
    assert found.low == pytest.approx(0.1119, abs=1e-4)


def test_no_success_anywhere_keeps_an_upper_limit_over_groups() -> None:
    """Thirty tries on three ideas say what three ideas say."""
    found = attack_success_at([5] * 6, [0] * 6, k=3, groups=[1, 1, 2, 2, 3, 3])
    assert (found.value, found.low, found.groups) == (0.0, 0.0, 3)
    assert found.high == pytest.approx(0.8605, abs=1e-4)


def test_groups_widen_the_interval() -> None:
    """Samples of one origin that fall together are one observation."""
    successes = [1, 1, 1, 0, 0, 0, 2, 2, 2, 1, 1, 1]
    alone = attack_success_at([5] * 12, successes, k=2)
    grouped = attack_success_at([5] * 12, successes, k=2, groups=[i // 3 for i in range(12)])
    assert alone.value == grouped.value
    assert alone.low is not None
    assert grouped.low is not None
    assert grouped.low < alone.low


def test_two_equal_groups_leave_nearly_everything_open() -> None:
    """A width of zero would be a false certainty."""
    found = attack_success_at([4, 4], [1, 1], k=2)
    assert found.value == 0.5
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low > 0.9


@pytest.mark.parametrize(
    ("tries", "successes", "k", "said"),
    [([1], [2], 1, "successes"), ([1, 2], [1], 1, "lengths"), ([1], [1], 0, "k must")],
)
def test_counts_that_do_not_fit_are_refused(
    tries: list[int], successes: list[int], k: int, said: str
) -> None:
    """The message says what is wrong."""
    with pytest.raises(ValueError, match=said):
        attack_success_at(tries, successes, k=k)


def test_a_median_says_why_it_is_not_there() -> None:
    """Nothing fell, less than half fell, all fell at once, forty of forty fell one by one."""
    none = kaplan_meier([10] * 30, [False] * 30).queries
    assert (none.value, none.reason) == (None, "nothing was bypassed: the curve has no limits")
    some = kaplan_meier([1] * 3 + [50] * 7, [True] * 3 + [False] * 7).queries
    assert (some.value, some.low, some.high, some.reason) == (None, None, None, "not reached")
    once = kaplan_meier([1] * 3, [True] * 3).queries
    assert (once.value, once.low, once.reason) == (1, None, "no limit crosses a half")
    many = kaplan_meier(range(1, 41), [True] * 40).queries
    assert (many.value, many.trials, many.reason) == (20, 40, "")


def test_groups_of_one_give_the_curve_of_samples_alone() -> None:
    """The variance by groups is Greenwood's where every sample is its own group."""
    times, bypassed = [1, 2, 2, 3, 5, 8, 8, 8], [True, True, False, True, True, False, False, True]
    alone = kaplan_meier(times, bypassed)
    grouped = kaplan_meier(times, bypassed, groups=range(8))
    assert grouped.points == alone.points


def test_copies_of_an_attack_are_no_further_witnesses_of_the_curve() -> None:
    """Five rewritings that fall together leave limits about as wide as one attack each."""
    rng = np.random.default_rng(5)
    firsts = rng.integers(1, 40, 30)
    copied, codes = np.repeat(firsts, 5), np.repeat(np.arange(30), 5)
    once = kaplan_meier(np.minimum(firsts, 20), firsts <= 20).points[9]
    alike = kaplan_meier(np.minimum(copied, 20), copied <= 20, groups=codes).points[9]
    assert alike.survival == pytest.approx(once.survival)
    assert None not in (once.low, once.high, alike.low, alike.high)
    assert (alike.high or 0) - (alike.low or 0) > 0.95 * ((once.high or 0) - (once.low or 0))


def test_mean_tries_count_groups() -> None:
    """30 groups of five copies: the mean of 30, and limits of 30, not of 150."""
    rng = np.random.default_rng(5)
    firsts = rng.integers(1, 40, 30)
    copied, codes = np.repeat(firsts, 5), np.repeat(np.arange(30), 5)
    times, broken = np.minimum(copied, 20), copied <= 20
    found = restricted_mean(times, broken, horizon=20, groups=codes)
    plain = restricted_mean(times, broken, horizon=20)
    assert found.value == plain.value
    assert None not in (found.low, found.high, plain.low, plain.high)
    assert (found.high or 0) - (found.low or 0) > 2 * ((plain.high or 0) - (plain.low or 0))


def test_mean_tries_of_attacks_given_up_leave_out_whole_groups() -> None:
    """Some attacks were given up before the budget: the jackknife of groups stands in."""
    times = [3, 4, 20, 5, 20, 20, 6, 20, 7, 2, 20, 20]
    broken = [True, True, False, False, False, False, True, False, True, True, False, False]
    found = restricted_mean(times, broken, horizon=20, groups=np.repeat(np.arange(6), 2))
    assert found.value == restricted_mean(times, broken, horizon=20).value
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low < (found.value or 0) < found.high <= 20
    one = restricted_mean(times, broken, horizon=20, groups=[0] * 12)
    assert (one.low, one.high) == (None, None)
    assert "one group" in one.reason


def test_one_group_has_no_share_of_bypasses_with_limits() -> None:
    """Nothing shows how groups differ."""
    curve = kaplan_meier([1, 2, 3], [True, False, True], groups=[0, 0, 0])
    assert (curve.bypassed.low, curve.bypassed.high) == (None, None)
