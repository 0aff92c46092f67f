"""Sample sizes and power."""

from __future__ import annotations

import math

import pytest

from guardmark.stats.alternatives import mcnemar_power_normal
from guardmark.stats.paired.significance import mcnemar
from guardmark.stats.planning import (
    design_effect,
    groups_for,
    mcnemar_power,
    pairs_for_difference,
    pairs_for_noninferiority,
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
    ],
)
def test_questions_without_an_answer_are_refused(question: object) -> None:
    """A margin of 0 needs endless samples."""
    assert callable(question)
    with pytest.raises(ValueError, match="must be"):
        question()


@pytest.mark.parametrize(
    ("difference", "discordance", "pairs"),
    [(0.05, 0.10, 305), (0.02, 0.06, 1154), (0.02, 0.20, 3920), (0.10, 0.20, 152)],
)
def test_pairs_for_a_difference(difference: float, discordance: float, pairs: int) -> None:
    """The least number with 80 % power by the mid-p; one fewer has less."""
    assert pairs_for_difference(difference, discordance) == pairs
    small, large = (discordance - difference) / 2, (discordance + difference) / 2
    assert mcnemar_power(small, large, pairs=pairs) >= 0.8
    assert mcnemar_power(small, large, pairs=pairs - 1) < 0.8


def test_the_exact_test_needs_more() -> None:
    """Its conservatism is paid for in samples."""
    assert pairs_for_difference(0.05, 0.10, form="exact") > pairs_for_difference(0.05, 0.10)


def test_the_power_is_the_sum_over_all_tables() -> None:
    """Enumerate every table of 12 pairs with the reported test itself."""
    from math import comb

    small, large, n = 0.1, 0.5, 12
    midp = exact = 0.0
    for b in range(n + 1):
        for c in range(n + 1 - b):
            ways = comb(n, b) * comb(n - b, c)
            chance = ways * large**b * small**c * (1 - small - large) ** (n - b - c)
            test = mcnemar(b, c)
            midp += chance * (test.p_midp <= 0.05)
            exact += chance * (test.p_exact <= 0.05)
    assert mcnemar_power(small, large, pairs=n) == pytest.approx(midp, abs=1e-10)
    assert mcnemar_power(small, large, pairs=n, form="exact") == pytest.approx(exact, abs=1e-10)


def test_the_normal_value_is_near_for_many_pairs() -> None:
    """It is only the start of the search."""
    normal = mcnemar_power_normal(0.025, 0.075, pairs=305)
    assert normal == pytest.approx(mcnemar_power(0.025, 0.075, pairs=305), abs=0.02)


def test_pairs_that_all_differ_one_way() -> None:
    """Five out of five is the least the mid-p calls a difference."""
    assert pairs_for_difference(1.0, 1.0) == 5
    assert mcnemar_power_normal(0.0, 1.0, pairs=5) == 1.0
    assert mcnemar_power_normal(0.0, 1.0, pairs=3) == 0.0


def test_where_power_comes_in_teeth_it_stays_reached() -> None:
    """With all pairs discordant one more pair may lower the power: the answer lies past that."""
    pairs = pairs_for_difference(0.5, 1.0)
    for more in range(20):
        assert mcnemar_power(0.25, 0.75, pairs=pairs + more) >= 0.8


@pytest.mark.parametrize(("margin", "pairs"), [(0.01, 1237), (0.02, 310)])
def test_pairs_for_not_worse(margin: float, pairs: int) -> None:
    """At a discordance of 2 %."""
    assert pairs_for_noninferiority(margin, 0.02) == pairs


def test_a_truly_worse_rate_needs_more_pairs_to_pass() -> None:
    """Half the margin is used up by a true difference."""
    assert pairs_for_noninferiority(0.02, 0.05, difference=0.01) > 3 * pairs_for_noninferiority(
        0.02, 0.05
    )


@pytest.mark.parametrize(
    "question",
    [
        lambda: pairs_for_difference(0.2, 0.1),
        lambda: pairs_for_difference(0.0, 0.1),
        lambda: pairs_for_difference(0.0001, 0.5),
        lambda: pairs_for_noninferiority(0.01, 0.02, difference=0.01),
        lambda: pairs_for_noninferiority(0.01, 0.0),
        lambda: mcnemar_power(0.2, 0.1, pairs=10),
        lambda: mcnemar_power(0.0, 0.0, pairs=10),
        lambda: mcnemar_power(0.1, 0.2, pairs=0),
    ],
)
def test_pairs_without_an_answer_are_refused(question: object) -> None:
    """A difference cannot exceed the disagreement it is made of."""
    assert callable(question)
    with pytest.raises(ValueError, match=r"must|needed"):
        question()
