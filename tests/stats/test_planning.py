"""Sample sizes and power."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.oracles.alternatives import mcnemar_power, mcnemar_power_normal

from guardmark.core.estimate import Estimate
from guardmark.stats.paired.intervals import PairedTable, bonett_price, clustered_bonett_price
from guardmark.stats.paired.noninferiority import noninferiority_tango
from guardmark.stats.paired.significance import mcnemar
from guardmark.stats.planning import (
    ALONE,
    Layout,
    layout_like,
    pairs_to_decide,
    pairs_to_tell_apart,
    plan_decision,
    plan_difference,
    plan_margin,
    plan_noninferiority,
    plan_regression,
    plan_zero_events,
    rows_for_margin,
    rows_to_decide,
    smallest_detectable,
)
from guardmark.stats.rates.clustered import wilson_default
from guardmark.stats.rates.proportion import trials_for_half_width, wilson, wilson_half_width

FIVE = Layout(rows_per_group=5, icc=0.5)


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


def test_a_margin_away_from_one_half_allows_for_the_rate_seen() -> None:
    """The least number for the rate itself misses the margin in about half of all runs."""
    plan = plan_margin(0.05, rate=0.1)
    assert plan.groups > trials_for_half_width(0.05, rate=0.1)
    narrow = [
        wilson_half_width(x / plan.groups, plan.groups) <= 0.05 for x in range(plan.groups + 1)
    ]
    x = range(plan.groups + 1)
    chance = sum(
        math.comb(plan.groups, at) * 0.1**at * 0.9 ** (plan.groups - at) * narrow[at] for at in x
    )
    assert plan.chance == pytest.approx(chance, abs=1e-9)
    assert chance >= 0.95
    assert plan_margin(0.05).groups == 381


def test_variants_of_a_seed_cost_more_groups_than_their_design_effect() -> None:
    """How much groups differ must be estimated too; the chance comes with its error and runs."""
    plan = plan_margin(0.1, rate=0.3, layout=FIVE)
    independent = plan_margin(0.1, rate=0.3)
    assert plan.groups > independent.groups * 3 / 5 * 0.9
    assert plan.rows == 5 * plan.groups
    assert plan.chance is not None
    assert plan.chance >= 0.95
    assert 0 < plan.error < 0.02
    assert (plan.runs, independent.runs, independent.error) == (1000, 0, 0.0)


@pytest.mark.parametrize("layout", [ALONE, FIVE])
def test_no_event_is_planned_for_the_interval_of_a_run(layout: Layout) -> None:
    """The least groups whose default interval at 0 keeps the claim; one fewer does not."""
    groups = plan_zero_events(0.05, layout=layout).groups
    sizes = [layout.rows_per_group] * groups
    high = wilson_default([0] * groups, sizes).high
    short = wilson_default([0] * (groups - 1), sizes[1:]).high
    assert high is not None
    assert short is not None
    assert high <= 0.05 < short


def test_the_chance_of_no_event_is_that_of_every_group() -> None:
    """Told only for a stated rate; groups of copies are as good as single samples."""
    assert plan_zero_events(0.05).chance is None
    alone = plan_zero_events(0.05, rate=0.01)
    assert alone.chance == pytest.approx(0.99**alone.groups, rel=1e-6)
    copies = plan_zero_events(0.05, rate=0.01, layout=Layout(rows_per_group=5, icc=1.0))
    assert copies.chance == pytest.approx(0.99**copies.groups, rel=1e-4)
    assert plan_zero_events(0.05, rate=1.0).chance == 0.0


@pytest.mark.parametrize(
    "question",
    [
        lambda: wilson_half_width(0.5, 0),
        lambda: wilson_half_width(math.nan, 10),
        lambda: trials_for_half_width(0.5),
        lambda: trials_for_half_width(0.0),
        lambda: Layout(rows_per_group=0),
        lambda: Layout(icc=1.5),
        lambda: plan_margin(0.05, chance=1.0),
        lambda: plan_zero_events(1.0),
        lambda: plan_zero_events(0.1, rate=-0.1),
    ],
)
def test_questions_without_an_answer_are_refused(question: object) -> None:
    """A margin of 0 needs endless samples."""
    assert callable(question)
    with pytest.raises(ValueError, match="must be"):
        question()


def verdict(first: int, second: int, pairs: int, least_p: float) -> bool:
    """What a report calls found: by the adjusted test and the interval."""
    rest = pairs - first - second
    gap = bonett_price(PairedTable(both=rest, first_only=first, second_only=second, neither=0))
    assert gap.p_value is not None
    assert gap.low is not None
    return gap.p_value < least_p and gap.low > 0


def enumerated(pairs: int, small: float, large: float, least_p: float) -> float:
    """Chance of a verdict, by plain loops over all tables."""
    same = 1 - small - large
    return math.fsum(
        math.comb(pairs, b)
        * math.comb(pairs - b, c)
        * large**b
        * small**c
        * same ** (pairs - b - c)
        for b in range(pairs + 1)
        for c in range(pairs - b + 1)
        if verdict(b, c, pairs, least_p)
    )


@pytest.mark.parametrize("tests", [1, 2])
def test_pairs_for_a_difference(tests: int) -> None:
    """The least number with 80 % chance of a verdict, after Holm; one fewer has less."""
    plan = plan_difference(0.3, 0.4, tests=tests)
    assert plan.chance == pytest.approx(enumerated(plan.groups, 0.05, 0.35, 0.05 / tests), abs=1e-9)
    assert plan.chance is not None
    assert plan.chance >= 0.8 > enumerated(plan.groups - 1, 0.05, 0.35, 0.05 / tests)


@pytest.mark.slow
def test_pairs_that_groups_make_dearer() -> None:
    """Simulated, and analysed as a report does."""
    plan = plan_difference(0.2, 0.25, layout=Layout(rows_per_group=3, icc=0.5), chance=0.6)
    assert plan.groups * 3 > plan_difference(0.2, 0.25, chance=0.6).groups
    assert plan.chance is not None
    assert plan.chance >= 0.6


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
    assert plan_difference(1.0, 1.0).groups == 5
    assert mcnemar_power_normal(0.0, 1.0, pairs=5) == 1.0
    assert mcnemar_power_normal(0.0, 1.0, pairs=3) == 0.0


def test_groups_in_which_one_side_never_errs_alone_can_be_planned() -> None:
    """A share of 0 is drawn as 0, whichever side it is on."""
    assert 5 < plan_difference(0.5, 0.5, layout=FIVE).groups < 20
    assert 5 < plan_noninferiority(0.3, 0.4, difference=-0.4, layout=FIVE).groups < 10


def test_pairs_for_not_worse() -> None:
    """By Tango's test itself: the normal formula asks for 310, of which the power is .67."""
    plan = plan_noninferiority(0.02, 0.02)
    assert 390 <= plan.groups <= 410
    assert plan.chance is not None
    assert plan.chance >= 0.8


def test_not_worse_is_enumerated_over_all_tables() -> None:
    """With few pairs every table can be asked."""
    plan = plan_noninferiority(0.2, 0.1)
    n, shown = plan.groups, 0.0
    for b in range(n + 1):
        for c in range(n + 1 - b):
            ways = math.comb(n, b) * math.comb(n - b, c)
            test = noninferiority_tango(b, c, pairs=n, margin=0.2)
            shown += ways * 0.05 ** (b + c) * 0.9 ** (n - b - c) * test.is_noninferior
    assert plan.chance == pytest.approx(shown, abs=1e-9)


def test_a_truly_worse_rate_needs_more_pairs_to_pass() -> None:
    """Half the margin is used up by a true difference."""
    worse = plan_noninferiority(0.1, 0.1, difference=0.05)
    assert worse.groups > 3 * plan_noninferiority(0.1, 0.1).groups


def test_not_worse_in_pairs_of_pairs_is_simulated() -> None:
    """With the test for groups: where both rows of a group agree, more pairs are needed."""
    layout = Layout(rows_per_group=2, icc=0.5)
    plan = plan_noninferiority(0.5, 0.2, layout=layout)
    assert plan.rows > plan_noninferiority(0.5, 0.2).rows
    assert plan.chance is not None
    assert plan.chance >= 0.8
    assert 0 < plan.error < 0.05


def test_a_number_that_few_simulated_runs_found_is_raised_until_many_keep_it() -> None:
    """A search by few runs ends at 18 groups of two here, of which many runs keep too few."""
    plan = plan_margin(0.2, 0.8, layout=Layout(rows_per_group=2))
    assert plan.chance is not None
    assert plan.chance >= 0.95
    assert plan.groups == 19


@pytest.mark.slow
def test_not_worse_in_groups_costs_more_pairs() -> None:
    """The grouped test is asked of simulated groups."""
    plan = plan_noninferiority(0.1, 0.1, layout=FIVE)
    assert plan.rows > plan_noninferiority(0.1, 0.1).rows
    assert plan.error > 0


@pytest.mark.parametrize(
    "question",
    [
        lambda: plan_difference(0.2, 0.1),
        lambda: plan_difference(0.0, 0.1),
        lambda: plan_difference(0.1, 0.2, tests=0),
        lambda: plan_noninferiority(0.01, 0.02, difference=0.01),
        lambda: plan_noninferiority(0.01, 0.0),
        lambda: plan_zero_events(1e-8),
    ],
)
def test_pairs_without_an_answer_are_refused(question: object) -> None:
    """A difference cannot exceed the disagreement it is made of."""
    assert callable(question)
    with pytest.raises(ValueError, match=r"must|asked"):
        question()


def test_groups_whose_pairs_all_differ_still_need_as_many_pairs() -> None:
    """Where every pair differs nothing varies between groups but the sides, which are alike."""
    alone, grouped = plan_difference(0.5, 1.0), plan_difference(0.5, 1.0, layout=FIVE)
    assert grouped.groups < alone.groups < 5 * grouped.groups
    assert grouped.chance is not None
    assert grouped.chance >= 0.8


def test_a_rate_without_spread_comes_out_as_planned_in_every_run() -> None:
    """All rows succeed, so each simulated run is the same one."""
    assert plan_margin(0.05, 1.0, layout=FIVE).chance == 1.0


def test_a_rate_at_its_limit_is_never_decided() -> None:
    """However many samples there are, half of all runs come out on either side."""
    with pytest.raises(ValueError, match="at its limit"):
        plan_decision(0.1, 0.1)
    assert rows_to_decide(wilson(10, 100), 0.1) is None
    assert rows_to_decide(wilson(0, 0), 0.1) is None


def test_what_nobody_can_ask_has_no_number() -> None:
    """More than two million samples are no advice."""
    assert rows_for_margin(wilson(50, 100), 0.0002) is None
    assert rows_to_decide(wilson(1_003, 10_000), 0.1) is None
    assert rows_for_margin(wilson(0, 0), 0.05) is None


def test_a_watched_run_needs_more_for_the_same_margin() -> None:
    """Limits that hold at any look are wider, with groups as without."""
    usual, watched = (plan_margin(0.05, 0.1, is_watched=each).rows for each in (False, True))
    assert watched > 2 * usual
    grouped = plan_margin(0.1, 0.1, layout=FIVE)
    assert plan_margin(0.1, 0.1, layout=FIVE, is_watched=True).groups > 2 * grouped.groups


def test_a_layout_is_read_off_an_estimate() -> None:
    """Equal groups stay equal, unequal ones are two sizes with their mean; alone is alone."""
    assert layout_like(wilson(5, 50)) == ALONE
    equal = layout_like(wilson_default([5, 0, 5, 0, 5, 0] * 4, [5] * 24))
    assert equal.mean_size == pytest.approx(5, abs=0.5)
    mixed = layout_like(wilson_default([9, 0, 9, 0, 0, 1] * 6, [9, 1, 9, 1, 9, 1] * 6))
    assert mixed.is_mixed
    assert mixed.mean_size == pytest.approx(5, abs=1)


def test_groups_that_differ_in_size_are_worth_less_than_equal_ones() -> None:
    """Five rows a group on average: as all have them, one to nine of them, one or nine."""
    sizes = (FIVE, Layout(sizes=tuple(range(1, 10))), Layout(sizes=(1, 9)))
    plans = [plan_margin(0.1, layout=layout) for layout in sizes]
    assert [plan.groups for plan in plans] == [69, 85, 112]
    assert all(plan.chance is not None and plan.chance >= 0.95 for plan in plans)


def test_sizes_without_rows_are_refused() -> None:
    """The message names the setting."""
    with pytest.raises(ValueError, match="sizes"):
        Layout(sizes=(1, 0))


def test_no_event_at_a_certain_rate_has_no_chance() -> None:
    """At a true rate of 1 every row is an event."""
    assert plan_zero_events(0.5, rate=1.0).chance == 0.0


@pytest.mark.parametrize(
    ("margin", "difference", "discordance", "pairs"),
    [(0.02, 0.0, 0.05, 1005), (0.02, 0.06, 0.1, 246), (0.05, -0.02, 0.1, 166), (0.02, 0, 0, 137)],
)
def test_pairs_that_decide_about_a_regression(
    margin: float, difference: float, discordance: float, pairs: int
) -> None:
    """Held below the margin, broken above it, in at least 8 of 10 runs and as few pairs as that."""
    plan = plan_regression(margin, difference, discordance, tests=2)
    assert plan.groups == pairs
    assert plan.chance is not None
    assert plan.chance >= 0.8


@pytest.mark.parametrize(("difference", "margin"), [(0.3, 0.1), (-0.1, 0.2)])
def test_the_chance_of_a_decision_is_that_of_all_tables(difference: float, margin: float) -> None:
    """Counted by plain loops over every table of so few pairs."""
    plan = plan_regression(margin, difference, 0.4, alpha=0.05, tests=2)
    pairs, one, two = plan.groups, (0.4 + difference) / 2, (0.4 - difference) / 2
    chance = 0.0
    for first in range(pairs + 1):
        for second in range(pairs + 1 - first):
            rest = pairs - first - second
            table = PairedTable(both=0, first_only=first, second_only=second, neither=rest)
            found = bonett_price(table)
            assert found.value is not None
            assert found.high is not None
            assert found.low is not None
            assert found.p_value is not None
            decides = found.high <= margin
            if difference > margin:
                decides = found.value > margin and found.p_value < 0.025 and found.low > 0
            mass = math.comb(pairs, first) * math.comb(pairs - first, second)
            chance += decides * mass * one**first * two**second * 0.6**rest
    assert plan.chance == pytest.approx(chance, abs=1e-9)


def test_pairs_in_groups_are_worth_what_the_width_of_their_interval_says() -> None:
    """Twelve groups of five, eleven against two: the interval is that of a third of the pairs."""
    first, second = [3, 0, 1, 2, 0, 0, 4, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    grouped = clustered_bonett_price(first, second, sizes=[5] * 12)
    alone = bonett_price(PairedTable(both=0, first_only=11, second_only=2, neither=47))
    assert pairs_to_tell_apart(grouped, tests=2) == 401
    assert pairs_to_tell_apart(alone, tests=2) == 83
    assert pairs_to_decide(alone, 0.02, tests=2) == 83
    assert pairs_to_decide(alone, 0.15) is None


def test_no_pairs_are_promised_for_what_does_not_differ() -> None:
    """Nor for what more than a hundred thousand pairs would be needed."""
    alike = bonett_price(PairedTable(both=0, first_only=5, second_only=5, neither=90))
    near = bonett_price(PairedTable(both=0, first_only=501, second_only=499, neither=1000))
    assert (pairs_to_tell_apart(alike), pairs_to_tell_apart(near)) == (None, None)


def grouped(rate: float, groups: int) -> Estimate:
    """A rate of groups of one and of three rows, in which rows agree."""
    sizes = np.array([1, 3] * (groups // 2))
    hits = np.zeros(len(sizes), dtype=np.int64)
    hits[: round(rate * len(sizes))] = sizes[: round(rate * len(sizes))]
    return wilson_default(hits, sizes)


def test_a_rate_of_groups_near_its_limit_is_no_work_for_minutes() -> None:
    """Beyond some thousands of groups nothing is simulated: fewer calls than one draft of each."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    estimate = grouped(0.104, 1_000)
    sys.setprofile(count)
    try:
        needed = rows_to_decide(estimate, 0.1)
    finally:
        sys.setprofile(None)
    assert needed is not None
    assert needed > 10_000
    assert calls < 50_000


@pytest.mark.parametrize(("rate", "limit"), [(0.13, 0.1), (0.07, 0.1)])
def test_the_design_effect_says_what_the_simulation_says(rate: float, limit: float) -> None:
    """Where groups are many both ways of counting give the same, to a tenth."""
    layout = Layout(sizes=(1, 3), icc=0.68)
    simulated = plan_decision(rate, limit, layout=layout)
    rough = layout.worth(plan_decision(rate, limit).rows)
    assert 0.9 <= rough / simulated.rows <= 1.05


def test_the_smallest_detectable_difference_is_wider_than_the_interval_by_its_power() -> None:
    """The half width times (z + z of 80 %) / z, 1.43 for 95 %."""
    difference = bonett_price(PairedTable(both=10, first_only=20, second_only=10, neither=60))
    assert difference.low is not None
    assert difference.high is not None
    half = (difference.high - difference.low) / 2
    found = smallest_detectable(difference, largest_group=0.01)
    assert found == pytest.approx(half * (1.959964 + 0.841621) / 1.959964, rel=1e-6)


def test_where_one_group_dominates_nothing_is_said_to_be_detectable() -> None:
    """Whether anything is found then hangs on that group alone."""
    alone = bonett_price(PairedTable(both=10, first_only=20, second_only=10, neither=60))
    grouped = replace(alone, groups=40)
    assert smallest_detectable(grouped, largest_group=0.1) is not None
    assert smallest_detectable(grouped, largest_group=0.9) is None


def test_without_an_interval_nothing_is_said_to_be_detectable() -> None:
    """Undefined, and not zero."""
    nothing = bonett_price(PairedTable(both=0, first_only=0, second_only=0, neither=0))
    assert smallest_detectable(nothing, largest_group=0.0) is None
