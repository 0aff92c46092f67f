"""Means over groups, seeds and repeats."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import t

from guardmark.stats.distributions import two_sided_z
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.rates.clustered import wilson_default
from guardmark.stats.rates.means import (
    decompose_repeats,
    drawn_mean,
    figure_over_seeds,
    gap_limits,
    mean_half_width,
    mean_over_seeds,
    share_limits,
    share_over_seeds,
)
from guardmark.stats.rates.proportion import wilson_limits

marks = st.integers(0, 2**32 - 1).map(
    lambda seed: (np.random.default_rng(seed).random((24, 5)) < 0.4).astype(float)
)
GROUPS = np.repeat(np.arange(12), 2)


@given(marks)
def test_the_mean_lies_between_the_seeds_and_within_its_limits(table: NDArray[np.float64]) -> None:
    """Every seed stands beside the mean, with least, most and the spread between them."""
    found = share_over_seeds(table, GROUPS)
    assert found.value == pytest.approx(table.mean())
    assert found.by_seed == pytest.approx(table.mean(axis=0))
    assert found.spread == pytest.approx(table.mean(axis=0).std(ddof=1))
    assert found.low <= found.value <= found.high
    assert found.least <= found.value <= found.most
    assert (found.trials, found.groups, found.seeds) == (24, 12, 5)


@given(marks)
def test_neither_the_order_of_rows_nor_of_seeds_matters(table: NDArray[np.float64]) -> None:
    """Rows and seeds are sets."""
    found = share_over_seeds(table, GROUPS)
    turned = share_over_seeds(table[::-1, ::-1], GROUPS[::-1])
    assert (turned.value, turned.low, turned.high) == pytest.approx(
        (found.value, found.low, found.high)
    )


@given(marks)
def test_exchanging_held_and_fallen_mirrors_the_interval(table: NDArray[np.float64]) -> None:
    """The same measurement read from two ends."""
    found, other = share_over_seeds(table, GROUPS), share_over_seeds(1 - table, GROUPS)
    assert (1 - other.high, 1 - other.low) == pytest.approx((found.low, found.high))


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("size", [1, 2])
def test_where_all_agree_seeds_are_no_further_evidence(share: float, size: int) -> None:
    """Nothing fell at five seeds is no surer than at one: the limits are those of one seed."""
    rows, groups = 40, np.repeat(np.arange(40 // size), size)
    found = share_over_seeds(np.full((rows, 5), share), groups)
    sizes = np.full(40 // size, size)
    one = wilson_default((sizes * share).astype(int), sizes)
    assert (found.low, found.high) == pytest.approx((one.low, one.high))


def test_seeds_that_agree_leave_the_variance_of_groups() -> None:
    """The same outcomes at every seed are worth one seed."""
    column = (np.random.default_rng(5).random(400) < 0.3).astype(float)
    found = share_over_seeds(np.tile(column[:, None], 5))
    one = wilson_default(column.astype(int), np.ones(400, dtype=int))
    assert found.spread == pytest.approx(0, abs=1e-15)
    assert found.high - found.low == pytest.approx(one.high - one.low, rel=0.01)


def test_one_group_with_hits_tells_little_of_how_groups_differ() -> None:
    """So the limits are near those of groups that are alike inside, not those of single rows."""
    table = np.zeros((60, 3))
    table[0] = 1.0
    found = share_over_seeds(table, np.repeat(np.arange(20), 3))
    halved = wilson_limits(1 / 60, 60 / 2, z=two_sided_z(0.95))
    assert found.high is not None
    assert found.high > halved.high


def test_seeds_that_differ_widen_the_interval() -> None:
    """Luck shared by all rows of a seed is in the limits, at few degrees of freedom."""
    draw = np.random.default_rng(5)
    calm = (draw.random((300, 5)) < 0.5).astype(float)
    moved = (draw.random((300, 5)) < np.array([0.3, 0.4, 0.5, 0.6, 0.7])).astype(float)
    one, other = share_over_seeds(calm), share_over_seeds(moved)
    assert other.high - other.low > 2 * (one.high - one.low)


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_give_no_limits(seeds: int) -> None:
    """A single difference tells too little of how seeds differ; the figures are there."""
    found = share_over_seeds(np.eye(4)[:, :seeds])
    assert (found.value, found.low, found.high) == (0.25, None, None)
    assert "three seeds" in found.reason or "3 seeds" in found.reason


def test_no_rows_are_undefined_and_one_group_has_no_limits() -> None:
    """Undefined is not zero."""
    assert share_over_seeds(np.zeros((0, 5))).value is None
    assert share_over_seeds(np.zeros((0, 5))).by_seed == ()
    alone = share_over_seeds(np.eye(5), np.zeros(5, dtype=int))
    assert (alone.value, alone.low) == (0.2, None)
    assert "two groups" in alone.reason


def test_differences_without_variance_have_no_limits() -> None:
    """A null arm that gains exactly nothing is exactly 0, without an interval made up."""
    found = mean_over_seeds(np.zeros((20, 5)), least=-1, most=1)
    assert (found.value, found.low, found.high) == (0, None, None)
    assert "variance" in found.reason


def test_the_jackknife_of_a_mean_is_the_mean() -> None:
    """Pseudo-values of a mean of rows are its rows."""
    table = np.random.default_rng(2).random((30, 5))
    without = (table.sum(axis=0) - table) / 29
    found = figure_over_seeds(table.mean(axis=0), without, trials=30, most=1.0)
    direct = mean_over_seeds(table, least=0, most=1)
    assert (found.value, found.low, found.high) == pytest.approx(
        (direct.value, direct.low, direct.high)
    )


def test_a_figure_needs_a_row_for_each_group_with_every_seed() -> None:
    """Turned round, groups and seeds would be counted as each other."""
    with pytest.raises(ValueError, match=r"shape \(groups, 3\), got \(3, 2\)"):
        figure_over_seeds([1.0, 2.0, 3.0], [[1, 2], [1, 2], [1, 2]], trials=9, most=5)


def test_a_figure_undefined_without_a_group_has_no_limits() -> None:
    """It says why; the figure itself stands."""
    found = figure_over_seeds([1.0, 2.0, 3.0], [[1, 2, 3], [1, np.nan, 3]], trials=9, most=5)
    assert (found.value, found.low) == (2, None)
    assert "without one of the groups" in found.reason


@pytest.mark.parametrize(
    "table", [np.zeros(4), np.zeros((4, 0)), np.full((2, 3), 1.5), np.full((2, 3), -0.5)]
)
def test_bad_tables_are_refused(table: NDArray[np.float64]) -> None:
    """Wrong shapes, and figures that are no shares."""
    with pytest.raises(ValueError, match="values"):
        share_over_seeds(table)


def covered(groups: int, size: int, seeds: int, *, of_groups: float, of_seeds: float) -> float:
    """Return how often limits hold the truth, where groups and seeds each have their luck."""
    draw, codes = np.random.default_rng(1), np.repeat(np.arange(groups), size)
    level = NormalDist().inv_cdf(0.2) * np.sqrt(1 + of_groups**2 + of_seeds**2)
    hits, runs = 0, 400
    for _ in range(runs):
        luck = of_groups * draw.normal(size=groups)[codes][:, None]
        luck = luck + of_seeds * draw.normal(size=seeds)
        table = (level + luck + draw.normal(size=(groups * size, seeds)) > 0).astype(float)
        found = share_over_seeds(table, codes)
        hits += found.low <= 0.2 <= found.high
    return hits / runs


@pytest.mark.parametrize("of_seeds", [0.0, 0.1, 0.3, 0.6])
@pytest.mark.parametrize(("groups", "size"), [(20, 3), (60, 2), (200, 1)])
def test_limits_at_five_seeds_hold_the_truth_as_often_as_they_say(
    groups: int, size: int, of_seeds: float
) -> None:
    """At least 92.5 of 100 times at 95 % (400 draws), be seeds alike or worlds apart."""
    assert covered(groups, size, 5, of_groups=0.7, of_seeds=of_seeds) >= 0.925


answers = st.integers(2, 6).flatmap(
    lambda r: st.tuples(st.lists(st.integers(0, r), min_size=2, max_size=30), st.just(r))
)


@given(answers)
def test_the_standard_error_covers_both_parts(pair: tuple[list[int], int]) -> None:
    """Between plus within over repeats is what the means of the samples show."""
    found = decompose_repeats(pair[0], repeats=pair[1])
    assert found.between is not None
    assert found.within is not None
    assert found.standard_error is not None
    total = found.between + found.within / pair[1]
    if found.between > 0:
        assert found.standard_error**2 * len(pair[0]) == pytest.approx(total, abs=1e-12)
    assert found.within >= 0


def test_answers_that_never_flip_vary_between_samples_alone() -> None:
    """A deterministic defense has no variance within."""
    found = decompose_repeats([0, 3, 3, 0], repeats=3)
    assert (found.within, found.flip_rate, found.disagreement, found.icc) == (0.0, 0.0, 0.0, 1.0)


def test_coins_vary_within_alone() -> None:
    """Samples that are all alike have no variance between."""
    found = decompose_repeats([2, 2, 2], repeats=4)
    assert (found.between, found.icc, found.flip_rate) == (0.0, 0.0, 1.0)


def test_nothing_varies_has_no_icc() -> None:
    """A share of nothing is undefined."""
    assert decompose_repeats([0, 0], repeats=3).icc is None


def test_disagreement_is_the_chance_that_two_answers_differ() -> None:
    """Of the six pairs among four answers with one bypass, three differ."""
    assert decompose_repeats([1], repeats=4).disagreement == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("successes", "repeats", "said"),
    [([], 3, "no samples"), ([1, 0], 1, "one answer"), ([1], 3, "one sample")],
)
def test_too_little_is_undefined_with_a_reason(
    successes: list[int], repeats: int, said: str
) -> None:
    """What cannot be seen is None, what can is given."""
    found = decompose_repeats(successes, repeats=repeats)
    assert found.between is None
    assert said in found.reason
    assert (found.mean is None) == (not successes)


def test_parts_are_found_again_in_drawn_data() -> None:
    """Beta chances with known variance, five answers each."""
    rng = np.random.default_rng(9)
    chances = rng.beta(1, 3, 20_000)
    found = decompose_repeats(rng.binomial(5, chances), repeats=5)
    assert found.between == pytest.approx(3 / 16 / 5, rel=0.05)
    assert found.within == pytest.approx(3 / 16 * 4 / 5, rel=0.05)


@pytest.mark.parametrize(("successes", "repeats"), [([4], 3), ([-1], 3), ([1], 0), ([0.5], 3)])
def test_counts_that_do_not_fit_are_refused(successes: list[float], repeats: int) -> None:
    """More successes than answers is a mistake of the caller."""
    with pytest.raises(ValueError, match=r"successes|repeats"):
        decompose_repeats(successes, repeats=repeats)


def test_marks_have_the_interval_of_a_rate() -> None:
    """A mean of zeros and ones over groups of one size is a grouped rate."""
    hits, sizes = [3, 0, 2, 4, 1, 0, 4], [4] * 7
    marks = np.concatenate([np.arange(n) < k for k, n in zip(hits, sizes, strict=True)]).astype(
        float
    )
    found = share_limits(marks, np.repeat(np.arange(7), sizes), confidence=0.9)
    rate = wilson_default(hits, sizes, confidence=0.9)
    assert (found.low, found.high) == (pytest.approx(rate.low), pytest.approx(rate.high))


def test_limits_of_a_mean_difference_are_students_over_groups() -> None:
    """By plain loops; and cut to what a difference can be."""
    gaps, codes = np.array([0.5, -0.25, 0.0, 1.0, 0.25, -0.5]), np.array([0, 0, 1, 1, 2, 2])
    found, mean = gap_limits(gaps, codes, confidence=0.95), gaps.mean()
    sums = [sum(gaps[codes == each] - mean) for each in range(3)]
    half = t.ppf(0.975, 2) * np.sqrt(sum(each**2 for each in sums) / 36 * 3 / 2)
    assert (found.low, found.high) == (pytest.approx(mean - half), pytest.approx(mean + half))
    low = gap_limits(np.array([-1.0, -1.0, -1.0, -0.5]), np.arange(4), confidence=0.95)
    high = gap_limits(np.array([1.0, 1.0, 1.0, 0.5]), np.arange(4), confidence=0.95)
    assert (low.low, high.high) == (-1.0, 1.0)


@given(marks)
def test_limits_over_seeds_are_students_with_satterthwaites_freedom(
    table: NDArray[np.float64],
) -> None:
    """The variance between groups and between seeds, less what both share, by plain loops."""
    found = mean_over_seeds(table, GROUPS, least=0.0, most=1.0)
    rows, seeds, groups = *table.shape, 12
    mean, scale = table.mean(), float(table.size) ** 2
    cells = [[(table[g == GROUPS, s] - mean).sum() for s in range(seeds)] for g in range(groups)]
    of_group = [sum(cell) for cell in cells]
    of_seed = [sum(cell[s] for cell in cells) for s in range(seeds)]
    rest = sum(
        (cells[g][s] - of_group[g] / seeds - 2 / rows * of_seed[s]) ** 2
        for g in range(groups)
        for s in range(seeds)
    )
    between_groups = sum(x**2 for x in of_group) * groups / (groups - 1) / scale
    between_seeds = sum(x**2 for x in of_seed) * seeds / (seeds - 1) / scale
    of_rest = rest * groups * seeds / ((groups - 1) * (seeds - 1)) / scale
    doubt = max(0.0, between_seeds - of_rest)
    variance = between_groups + doubt
    freedom = variance**2 / (between_groups**2 / (groups - 1) + doubt * between_seeds / (seeds - 1))
    half = t.ppf(0.975, freedom) * np.sqrt(variance)
    assert found.low == pytest.approx(max(0.0, mean - half))
    assert found.high == pytest.approx(min(1.0, mean + half))


def test_the_error_of_repeats_by_hand() -> None:
    """Two samples always blocked and two never, each asked twice, around a mean of a half.

    Alone: the variance 1/3 over four samples. In two groups of two: sums of 1 and -1, so
    sqrt(2 * 2 / 1) / 4. Taken for one group nothing is known.
    """
    alone = decompose_repeats([2, 2, 0, 0], repeats=2)
    assert alone.standard_error == pytest.approx((1 / 12) ** 0.5)
    grouped = decompose_repeats([2, 2, 0, 0], repeats=2, groups=[0, 0, 1, 1])
    assert grouped.standard_error == pytest.approx(0.5)
    assert decompose_repeats([2, 2, 0, 0], repeats=2, groups=[0, 0, 0, 0]).standard_error is None


def test_the_half_width_of_a_mean_is_students() -> None:
    """T times the standard error, as scipy has it."""
    values = np.array([0.1, 0.2, 0.4, 0.8])
    half = mean_half_width(float(values.std(ddof=1)), 4)
    _, high = t.interval(0.95, 3, values.mean(), values.std(ddof=1) / 2)
    assert half == pytest.approx(high - values.mean())


def test_one_value_has_no_half_width() -> None:
    """It shows no spread, so there is no interval, not even an endless one."""
    with pytest.raises(ValueError, match="count"):
        mean_half_width(0.0, 1)


def test_a_drawn_mean_has_limits_around_it_from_six_groups_on() -> None:
    """Whole groups are drawn; of fewer than six the mean stands alone, with the reason."""
    gaps = np.random.default_rng(3).normal(5.0, 2.0, 60)
    drawing = DrawPlan(seed=1, replicates=500)
    mean = drawn_mean(gaps, np.repeat(np.arange(12), 5), drawing=drawing)
    assert mean.low is not None
    assert mean.high is not None
    assert mean.low < gaps.mean() < mean.high
    assert (mean.pairs, mean.groups, mean.reason) == (60, 12, "")
    few = drawn_mean(gaps, np.repeat(np.arange(5), 12), drawing=drawing)
    assert (few.value, few.low, few.high) == (pytest.approx(gaps.mean()), None, None)
    assert few.reason == "an interval for a mean needs 6 groups, got 5"


def test_a_mean_of_equal_gaps_has_no_width() -> None:
    """Without any spread every draw has the same mean."""
    drawing = DrawPlan(seed=1, replicates=200)
    mean = drawn_mean(np.full(20, 3.0), np.arange(20), drawing=drawing)
    assert (mean.value, mean.low, mean.high) == (3.0, 3.0, 3.0)
