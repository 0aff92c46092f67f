"""Sample sizes: the figures users will quote."""

from __future__ import annotations

import math

import pytest

from guardmark.stats.planning import (
    best_rows_per_group,
    design_effect,
    groups_for,
    trials_for_half_width,
    trials_for_zero_events,
    wilson_half_width,
)


@pytest.mark.parametrize(
    ("half_width", "rate", "trials"),
    [(0.05, 0.5, 381), (0.05, 0.1, 141), (0.05, 0.05, 83), (0.03, 0.5, 1064), (0.01, 0.02, 792)],
)
def test_trials_for_a_margin(half_width: float, rate: float, trials: int) -> None:
    """The least number whose interval is narrow enough; one fewer is not."""
    assert trials_for_half_width(half_width, rate=rate) == trials
    assert wilson_half_width(rate, trials) <= half_width < wilson_half_width(rate, trials - 1)


def test_a_hundred_samples_do_not_give_five_points() -> None:
    """The common rule is off by a factor of two in the worst case."""
    assert wilson_half_width(0.5, 100) == pytest.approx(0.096, abs=5e-4)


def test_the_worst_case_is_the_default() -> None:
    """Nothing is assumed about the rate unless it is said."""
    assert trials_for_half_width(0.05) == 381


@pytest.mark.parametrize(("upper", "trials"), [(0.01, 299), (0.05, 59), (0.5, 5)])
def test_trials_for_a_claim_without_events(upper: float, trials: int) -> None:
    """The least number with which nothing seen bounds the rate."""
    assert trials_for_zero_events(upper) == trials
    assert (1 - upper) ** trials <= 0.05 < (1 - upper) ** (trials - 1)


def test_a_whole_answer_is_not_rounded_up() -> None:
    """0.5^3 is exactly 0.125: three trials, not four."""
    assert trials_for_zero_events(0.5, confidence=0.875) == 3


def test_five_variants_a_seed_cost_three_times_the_rows() -> None:
    """At an intra-group correlation of one half."""
    plan = groups_for(381, rows_per_group=5, icc=0.5)
    assert (plan.design_effect, plan.groups, plan.rows) == (3.0, 229, 1145)


def test_without_variants_the_design_effect_is_one() -> None:
    """And so it is when variants are independent."""
    assert groups_for(381, rows_per_group=1, icc=0.5).groups == 381
    assert design_effect(5, 0.0) == 1.0


def test_more_alike_variants_are_worth_fewer_of_them() -> None:
    """The cheaper a new seed, the fewer variants of each."""
    sizes = [best_rows_per_group(icc, group_cost=10, row_cost=1) for icc in (0.05, 0.3, 0.9, 1.0)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    assert best_rows_per_group(0.3, group_cost=0, row_cost=1) == 1


def test_the_best_size_is_the_best_of_all() -> None:
    """No other whole number costs less for each independent trial."""
    best = best_rows_per_group(0.2, group_cost=7, row_cost=0.5)
    costs = {m: (7 + m * 0.5) * (1 + (m - 1) * 0.2) / m for m in range(1, 60)}
    assert costs[best] == min(costs.values())


@pytest.mark.parametrize(
    "question",
    [
        lambda: wilson_half_width(0.5, 0),
        lambda: wilson_half_width(math.nan, 10),
        lambda: trials_for_half_width(0.5),
        lambda: trials_for_half_width(0.0),
        lambda: trials_for_zero_events(0.0),
        lambda: design_effect(0.5, 0.1),
        lambda: design_effect(5, 1.5),
        lambda: groups_for(0, rows_per_group=5, icc=0.5),
        lambda: best_rows_per_group(0.0, group_cost=1, row_cost=1),
        lambda: best_rows_per_group(0.5, group_cost=1, row_cost=0),
    ],
)
def test_questions_without_an_answer_are_refused(question: object) -> None:
    """A margin of 0 needs endless samples."""
    assert callable(question)
    with pytest.raises(ValueError, match="must be"):
        question()
