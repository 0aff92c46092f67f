"""Differences of paired rates: worked examples, edges, groups."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.oracles.alternatives import crosscheck_pairs, newcombe10

from guardmark.stats.paired.intervals import (
    PairedTable,
    bonett_price,
    clustered_bonett_price,
    grouped_limits,
    summarise_pairs,
    tango,
)
from guardmark.stats.paired.noninferiority import noninferiority_clustered

INTERVALS = [bonett_price, tango, newcombe10]
every_interval = pytest.mark.parametrize("interval", INTERVALS, ids=lambda f: f.__name__)


def table(both: int, first_only: int, second_only: int, neither: int) -> PairedTable:
    """The four cells in the usual order."""
    return PairedTable(both=both, first_only=first_only, second_only=second_only, neither=neither)


@pytest.mark.parametrize(
    ("interval", "low", "high"),
    [(tango, -0.1240, -0.0054), (newcombe10, -0.1186, -0.0046), (bonett_price, -0.1195, -0.0032)],
)
def test_the_published_example(interval: object, low: float, high: float) -> None:
    """59, 6, 16, 80: all three exclude 0, as does the mid-p reported beside them."""
    assert callable(interval)
    estimate = interval(table(59, 6, 16, 80))
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=5e-5)
    assert estimate.p_value < 0.05
    assert (estimate.first_only, estimate.second_only, estimate.pairs) == (6, 16, 161)


@every_interval
def test_no_pairs_are_undefined(interval: object) -> None:
    """Two runs without a common sample cannot be compared."""
    assert callable(interval)
    empty = interval(table(0, 0, 0, 0))
    assert (empty.value, empty.low, empty.high, empty.p_value) == (None, None, None, None)
    assert empty.reason == "no pairs"


@every_interval
@pytest.mark.parametrize(
    "cells", [(0, 0, 0, 7), (7, 0, 0, 0), (0, 7, 0, 0), (0, 0, 7, 0), (0, 1, 0, 0)]
)
def test_lopsided_tables_stay_within_bounds(
    interval: object, cells: tuple[int, int, int, int]
) -> None:
    """All agree, or all differ one way: the interval exists and holds the difference."""
    assert callable(interval)
    estimate = interval(table(*cells))
    assert -1.0 <= estimate.low <= estimate.value <= estimate.high <= 1.0
    assert estimate.low < estimate.high
    assert 0.0 < estimate.p_value <= 1.0


def test_impossible_tables_are_refused() -> None:
    """The cell is named."""
    with pytest.raises(ValueError, match="neither must be"):
        table(1, 1, 1, -1)


def test_one_pair_a_group_is_the_ungrouped_interval() -> None:
    """Nothing is paid for groups that are none."""
    first, second = [1] * 6 + [0] * 16 + [0] * 139, [0] * 6 + [1] * 16 + [0] * 139
    grouped = clustered_bonett_price(first, second, sizes=[1] * 161)
    plain = bonett_price(table(59, 6, 16, 80))
    assert (grouped.low, grouped.high) == pytest.approx((plain.low, plain.high))
    assert grouped.p_value == pytest.approx(plain.p_value)
    assert grouped.test == plain.test == "mcnemar_midp"


def test_the_same_pairs_in_groups_say_less() -> None:
    """Ten seeds whose five variants all go one way are not fifty findings."""
    grouped = clustered_bonett_price([5] * 8 + [0] * 32, [0] * 38 + [5] * 2, sizes=[5] * 40)
    rows = bonett_price(table(0, 40, 10, 150))
    assert grouped.value == rows.value
    assert grouped.low is not None
    assert rows.low is not None
    assert grouped.low < rows.low
    assert grouped.p_value is not None
    assert rows.p_value is not None
    assert grouped.p_value > 0.05 > rows.p_value
    assert grouped.test == "sign_flip_midp"


def test_one_group_with_half_of_all_pairs_widens_the_interval() -> None:
    """What is known of how groups differ hangs on it: fewer degrees of freedom than groups."""
    first, second = [0, *[2] * 10, *[0] * 10], [0, *[0] * 15, *[2] * 5]
    alike = summarise_pairs(first, second, sizes=[4] * 21)
    giant = summarise_pairs(first, second, sizes=[80, *[4] * 20])
    assert alike.degrees_of_freedom == 20
    assert giant.degrees_of_freedom == pytest.approx(160**2 / (80**2 + 20 * 4**2) - 1)
    wide, narrow = (
        grouped_limits(replace(giant, degrees_of_freedom=free), confidence=0.95)
        for free in (giant.degrees_of_freedom, 20)
    )
    assert wide.low < narrow.low < narrow.high < wide.high
    assert not noninferiority_clustered(
        second, first, sizes=[80, *[4] * 20], margin=0.02
    ).is_noninferior


def test_a_single_group_has_no_interval_and_no_test() -> None:
    """Nothing shows how seeds differ."""
    lone = clustered_bonett_price([3], [1], sizes=[9])
    assert (lone.low, lone.high, lone.p_value) == (None, None, None)
    assert lone.value == pytest.approx(2 / 9)
    assert "one group" in lone.reason
    with pytest.raises(ValueError, match="design effect"):
        grouped_limits(summarise_pairs([3], [1], sizes=[9]), confidence=0.95)


def test_a_single_pair_has_the_ungrouped_interval() -> None:
    """One pair is one independent pair."""
    assert clustered_bonett_price([1], [0], sizes=[1]).low == bonett_price(table(0, 1, 0, 0)).low


def test_no_discordant_pair_in_groups_has_an_honest_width() -> None:
    """Agreement on 10 seeds of 5 is worth 10 agreements."""
    agreed = clustered_bonett_price([0] * 10, [0] * 10, sizes=[5] * 10)
    rows = bonett_price(table(50, 0, 0, 0))
    assert agreed.p_value == 1.0
    assert agreed.high is not None
    assert rows.high is not None
    assert agreed.high > rows.high


def test_groups_without_pairs_are_left_out() -> None:
    """Samples missing on a side are excluded, never taken as agreement."""
    assert clustered_bonett_price([1, 0, 0], [0, 1, 0], sizes=[2, 2, 0]).groups == 2
    assert clustered_bonett_price([], [], sizes=[]).reason == "no pairs"


def test_more_discordant_pairs_than_pairs_are_refused() -> None:
    """The columns were mixed up."""
    with pytest.raises(ValueError, match="at least first_only"):
        summarise_pairs([2], [2], sizes=[3])


def test_the_crosscheck_says_where_it_is_undefined() -> None:
    """No discordant group: the statistics are missing, their p is 1."""
    check = crosscheck_pairs([0, 0], [0, 0], sizes=[3, 3])
    assert (check.obuchowski_chi2, check.obuchowski_p) == (None, 1.0)
    assert check.reason == "no discordant group"
    assert crosscheck_pairs([1], [0], sizes=[3]).reason == "one group only"
    assert crosscheck_pairs([], [], sizes=[]).difference is None


def test_the_crosscheck_agrees_with_the_default_on_a_plain_case() -> None:
    """Obuchowski and the sign-flip test see the same thing where groups are many."""
    first, second = [2, 0, 1, 0] * 15, [0, 1, 0, 0] * 15
    default = clustered_bonett_price(first, second, sizes=[5] * 60)
    check = crosscheck_pairs(first, second, sizes=[5] * 60)
    assert default.p_value is not None
    assert math.isclose(math.log(check.obuchowski_p), math.log(default.p_value), rel_tol=0.15)
