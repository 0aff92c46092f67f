"""Rates of grouped rows: where the default must be careful, and where it must be Wilson."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.alternatives import survey_beta, survey_logit

from guardmark.stats.rates.clustered import (
    any_per_group,
    summarise,
    summarise_slices,
    wilson_default,
    wilson_default_rows,
    wilson_default_slices,
)
from guardmark.stats.rates.proportion import wilson

GROUPED = st.lists(
    st.integers(0, 9).flatmap(lambda size: st.tuples(st.integers(0, size), st.just(size)))
)


def test_one_row_a_group_is_plain_wilson() -> None:
    """Without variants nothing is paid for the possibility of them."""
    grouped, plain = wilson_default([1, 0, 0, 1, 0, 0, 0], [1] * 7), wilson(2, 7)
    assert (grouped.low, grouped.high) == (plain.low, plain.high)
    assert (grouped.method, grouped.design_effect) == ("wilson", 1.0)
    assert not grouped.few_groups


@pytest.mark.parametrize(("successes", "rows"), [(0, 0), (0, 1), (1, 1), (3, 7), (40, 40)])
def test_lone_rows_need_only_their_counts(successes: int, rows: int) -> None:
    """Two counts say of rows without kin what a line of ones and zeros says."""
    line = [1] * successes + [0] * (rows - successes)
    assert wilson_default_rows(successes, rows) == wilson_default(line, [1] * rows)


def test_more_events_than_lone_rows_are_refused() -> None:
    """An impossible count is an error, not a rate above one."""
    with pytest.raises(ValueError, match="successes"):
        wilson_default_rows(3, 2)


def test_no_event_reads_as_no_event_among_the_groups() -> None:
    """0 of 48 in 12 groups of 4 shows no more than 0 of 12 would: nothing varied."""
    estimate = wilson_default([0] * 12, [4] * 12)
    assert estimate.effective_n == pytest.approx(12)
    assert estimate.low == 0.0
    assert estimate.icc is None
    assert wilson(0, 48).high is not None
    assert estimate.high is not None
    assert estimate.high > (wilson(0, 12).high or 1.0)  # t instead of z


def test_every_event_mirrors_no_event() -> None:
    """All bypassed is as uncertain as none."""
    none, every = wilson_default([0] * 12, [4] * 12), wilson_default([4] * 12, [4] * 12)
    assert none.high is not None
    assert every.low == pytest.approx(1 - none.high)
    assert every.high == 1.0


def test_groups_that_agree_within_are_worth_one_row_each() -> None:
    """If all variants share the fate of their seed, only seeds count."""
    estimate = wilson_default([5, 0] * 20, [5] * 40)
    assert estimate.icc == pytest.approx(1.0)
    assert estimate.effective_n == pytest.approx(40, rel=0.03)


def test_groups_more_alike_than_chance_are_not_rewarded() -> None:
    """A negative correlation must not make 100 rows worth more than 100."""
    estimate = wilson_default([1, 1, 1, 1] * 10, [2] * 40)
    assert estimate.icc is not None
    assert estimate.icc < 0
    assert estimate.effective_n is not None
    assert estimate.effective_n <= 80


def test_a_single_group_has_no_interval() -> None:
    """Fifty variants of one seed say nothing about other seeds."""
    lone = wilson_default([20], [50])
    assert (lone.value, lone.low, lone.high) == (0.4, None, None)
    assert "one group" in lone.reason
    assert lone.effective_n is None


def test_fewer_than_ten_groups_are_marked() -> None:
    """The interval is shown greyed with the reason."""
    assert wilson_default([1, 0, 2], [3, 3, 3]).few_groups
    assert not wilson_default([1, 0] * 5, [3] * 10).few_groups


def test_no_rows_are_undefined_not_zero() -> None:
    """Groups all of whose rows failed to be answered leave nothing."""
    empty = wilson_default([0, 0], [0, 0])
    assert (empty.value, empty.low, empty.high, empty.groups) == (None, None, None, 0)
    assert empty.reason == "no trials"


def test_groups_without_rows_lend_no_weight() -> None:
    """An unanswered group is no group of zeros."""
    assert wilson_default([2, 0, 1], [4, 0, 4]) == wilson_default([2, 1], [4, 4])


def test_many_slices_at_once_are_the_slices_one_by_one() -> None:
    """Speed must not change a figure."""
    successes, sizes, slices = [1, 0, 2, 3, 0], [2, 2, 3, 3, 0], [0, 0, 2, 2, 1]
    many = wilson_default_slices(successes, sizes, slices=slices, slice_count=4)
    assert many[0] == wilson_default([1, 0], [2, 2])
    assert many[2] == wilson_default([2, 3], [3, 3])
    assert many[1].value is None
    assert many[3].reason == "no trials"


def test_a_slice_beyond_the_last_is_refused() -> None:
    """An index off by one would silently grow the table."""
    with pytest.raises(ValueError, match="slices must be below 2, got 2"):
        summarise_slices([0], [1], slices=[2], slice_count=2)


def test_rows_and_groups_weigh_differently_and_both_are_told() -> None:
    """A long seed dominates the row-weighted rate."""
    estimate = wilson_default([10, 0], [10, 1])
    assert estimate.value == pytest.approx(10 / 11)
    assert estimate.group_mean == pytest.approx(0.5)


def test_any_variant_per_group_counts_groups() -> None:
    """Does any rewriting get through?"""
    assert any_per_group([3, 0, 1, 0], [5, 5, 5, 0]) == wilson(2, 3)


@pytest.mark.parametrize("interval", [survey_logit, survey_beta])
@pytest.mark.parametrize(
    ("successes", "sizes", "told"),
    [
        ([], [], "no trials"),
        ([1], [3], "one group"),
        ([0, 0], [3, 3], "all rows agree"),
        ([3, 3], [3, 3], "all rows agree"),
        ([1, 1], [2, 2], "same rate"),
    ],
)
def test_the_survey_intervals_say_where_they_are_undefined(
    interval: object, successes: list[int], sizes: list[int], told: str
) -> None:
    """They fail where the variance is invisible, which is why neither is the default."""
    assert callable(interval)
    estimate = interval(successes, sizes)
    assert (estimate.low, estimate.high) == (None, None)
    assert told in estimate.reason


def test_the_summary_keeps_undefined_apart_from_zero() -> None:
    """No variation leaves the correlation undefined, the error a true zero."""
    summary = summarise([0, 0], [3, 3])
    assert (summary.se_cr1, summary.icc, summary.design_effect) == (0.0, None, None)
    alone = summarise([1], [3])
    assert (alone.se_cr1, alone.degrees_of_freedom) == (None, 0)


@given(GROUPED)
def test_one_slice_is_summarised_as_one_of_many(pairs: list[tuple[int, int]]) -> None:
    """The quicker sums of a single slice are the same to the last digit."""
    successes, sizes = [hit for hit, _ in pairs], [size for _, size in pairs]
    slices = [1] * len(pairs)
    many = summarise_slices([*successes, 1], [*sizes, 3], slices=[*slices, 0], slice_count=2)
    assert many[1] == summarise(successes, sizes)
