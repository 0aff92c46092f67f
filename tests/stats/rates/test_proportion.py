"""Intervals for one rate: the edges, the published figures, the refusals."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from tests.oracles.alternatives import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    jeffreys,
    wilson_cc,
)

from guardmark.core.estimate import Estimate
from guardmark.stats.rates.proportion import (
    BoundedRate,
    clopper_pearson,
    mover,
    mover_p_value,
    wilson,
    wilson_limits,
)

INTERVALS = [
    wilson,
    wilson_cc,
    clopper_pearson,
    clopper_pearson_lower,
    clopper_pearson_upper,
    jeffreys,
]
every_interval = pytest.mark.parametrize("interval", INTERVALS, ids=lambda f: f.__name__)
Interval = Callable[..., Estimate]


@every_interval
def test_no_trials_is_undefined_not_zero(interval: Interval) -> None:
    """An empty category must never read as a perfect defense."""
    empty = interval(0, 0)
    assert (empty.value, empty.low, empty.high) == (None, None, None)
    assert empty.reason == "no trials"
    assert empty.effective_n is None


@every_interval
def test_no_success_in_many_trials_is_a_true_zero(interval: Interval) -> None:
    """0 of 100 is a finding: the value is 0.0 and the upper bound is not 0."""
    none = interval(0, 100)
    assert (none.value, none.low) == (0.0, 0.0)
    assert none.high is not None
    assert none.high > 0.0
    assert none.reason == ""


@every_interval
def test_the_method_is_named_as_the_function(interval: Interval) -> None:
    """A number in a report can be traced to what made it."""
    assert interval(1, 2).method == interval.__name__


@every_interval
@pytest.mark.parametrize(("successes", "trials"), [(3, 2), (-1, 2), (math.nan, 2), (1, math.nan)])
def test_impossible_counts_are_refused(interval: Interval, successes: float, trials: float) -> None:
    """Never a number from a table that cannot be."""
    with pytest.raises(ValueError, match=r"successes|trials"):
        interval(successes, trials)


@every_interval
def test_a_confidence_in_percent_is_refused(interval: Interval) -> None:
    """95 is no probability."""
    with pytest.raises(ValueError, match="confidence"):
        interval(1, 2, confidence=95)


@pytest.mark.parametrize(
    ("interval", "trials", "upper"),
    [
        (wilson, 20, 0.1611),
        (clopper_pearson, 20, 0.1684),
        (wilson_cc, 20, 0.2005),
        (wilson, 100, 0.0370),
        (clopper_pearson, 100, 0.0362),
        (clopper_pearson_upper, 100, 0.0295),
    ],
)
def test_upper_bounds_at_zero_events(interval: Interval, trials: int, upper: float) -> None:
    """The published bounds of a defense that let nothing through."""
    assert interval(0, trials).high == pytest.approx(upper, abs=5e-5)


def test_one_percent_is_shown_from_299_trials_only() -> None:
    """The claim "at most 1 %" at 95 % confidence."""
    enough, short = clopper_pearson_upper(0, 299).high, clopper_pearson_upper(0, 298).high
    assert enough is not None
    assert short is not None
    assert enough <= 0.01 < short


def test_a_one_sided_bound_is_the_two_sided_one_at_twice_the_error() -> None:
    """95 % on one side is the end of a 90 % interval."""
    assert clopper_pearson_upper(7, 50).high == clopper_pearson(7, 50, confidence=0.9).high
    low = clopper_pearson(7, 50, confidence=0.9).low
    assert clopper_pearson_lower(7, 50).low == pytest.approx(low)


def test_wilson_takes_effective_trials_that_are_not_whole() -> None:
    """Grouped rows are worth a fractional number of trials."""
    between = wilson_limits(0.25, 10.5, z=1.96)
    assert wilson_limits(0.25, 11, z=1.96).low > between.low > wilson_limits(0.25, 10, z=1.96).low


def bounded(successes: int, trials: int) -> BoundedRate:
    """A rate with the limits of Wilson's interval."""
    rate = wilson(successes, trials)
    if rate.value is None or rate.low is None or rate.high is None:
        raise ValueError("no trials")
    return BoundedRate(rate.value, rate.low, rate.high)


@pytest.mark.parametrize("second", range(20, 81, 5))
def test_the_p_of_mover_is_small_just_where_its_interval_excludes_zero(second: int) -> None:
    """A p and an interval of the same comparison never contradict each other."""
    gap = mover(wilson(50, 100), wilson(second, 100))
    p_value = mover_p_value(bounded(50, 100), bounded(second, 100))
    assert gap.low is not None
    assert gap.high is not None
    assert p_value is not None
    assert (p_value <= 0.05) == (gap.low > 0 or gap.high < 0)
    assert p_value == mover_p_value(bounded(second, 100), bounded(50, 100))


def test_equal_rates_differ_with_a_p_of_one() -> None:
    """No gap is no sign of a difference, however many trials there are."""
    assert mover_p_value(bounded(50, 100), bounded(5_000, 10_000)) == 1.0


def test_rates_without_a_distance_to_zero_have_no_p() -> None:
    """Where the limits that face each other are the values, nothing can be divided by."""
    sure = BoundedRate(0.5, 0.5, 0.5)
    assert mover_p_value(sure, sure) is None
