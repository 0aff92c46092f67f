"""Intervals and tests that hold however often one looks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.stats.rates.proportion import wilson
from guardmark.stats.sequential import (
    beta_mixture_sequence,
    betting_e_value,
    betting_sequence,
    mcnemar_e_value,
)

counts = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
means = st.lists(st.floats(0, 1), min_size=1, max_size=60)


@given(counts)
def test_sequence_holds_its_estimate_and_is_wider_than_one_look(pair: tuple[int, int]) -> None:
    """The price of looking always is width."""
    found, once = beta_mixture_sequence(*pair), wilson(*pair)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert once.low is not None
    assert once.high is not None
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high - found.low > (once.high - once.low) * 0.99


@given(counts)
def test_swapping_success_and_failure_mirrors_the_sequence(pair: tuple[int, int]) -> None:
    """Blocked and bypassed are one measurement."""
    one = beta_mixture_sequence(*pair)
    other = beta_mixture_sequence(pair[1] - pair[0], pair[1])
    assert one.low is not None
    assert other.high is not None
    assert one.low == pytest.approx(1 - other.high, abs=1e-12)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_a_peeking_sequence_rarely_loses_the_truth(share: float) -> None:
    """Looked at after every sample, it excludes the truth in at most one run of twenty."""
    rng = np.random.default_rng(4)
    lost = 0
    for _ in range(120):
        hits = np.cumsum(rng.random(300) < share)
        lost += any(
            not (found.low or 0.0) <= share <= (found.high or 1.0)
            for found in (beta_mixture_sequence(int(hits[i]), i + 1) for i in range(0, 300, 4))
        )
    assert lost / 120 <= 0.05 + 3 * (0.05 * 0.95 / 120) ** 0.5


def test_nothing_seen_is_undefined() -> None:
    """Before the first sample there is no estimate."""
    found = beta_mixture_sequence(0, 0)
    assert (found.value, found.low, found.high, found.reason) == (None, None, None, "no trials")
    empty = betting_sequence([])
    assert (empty.value, empty.low, empty.high, empty.reason) == (None, None, None, "no groups")


def test_ends_are_true_zeros_and_ones() -> None:
    """No bypass leaves a lower limit of exactly 0."""
    assert beta_mixture_sequence(0, 50).low == 0.0
    assert beta_mixture_sequence(50, 50).high == 1.0


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((3, 2), {}, "successes"),
        ((1, 2), {"confidence": 1.0}, "confidence"),
        ((1, 2), {"prior_a": 0.0}, "prior_a"),
        ((1, 2), {"prior_b": math.inf}, "prior_b"),
    ],
)
def test_bad_arguments_are_named(
    arguments: tuple[int, int], options: dict[str, float], said: str
) -> None:
    """The message says which argument is out of range."""
    with pytest.raises(ValueError, match=said):
        beta_mixture_sequence(*arguments, **options)


@given(st.integers(0, 200), st.integers(0, 200))
def test_evidence_has_no_side(first: int, second: int) -> None:
    """Which defense stands first does not matter."""
    one, other = mcnemar_e_value(first, second), mcnemar_e_value(second, first)
    assert one.log_e_value == pytest.approx(other.log_e_value, abs=1e-9)
    assert 0 < one.p_value <= 1
    assert one.p_value == pytest.approx(min(1.0, 1 / one.e_value), rel=1e-9)


def test_evidence_is_fair_under_no_difference() -> None:
    """An e-value has mean exactly 1 when the defenses are alike: that is what makes it one."""
    for pairs in (1, 5, 30):
        total = sum(
            math.comb(pairs, b) / 2**pairs * mcnemar_e_value(b, pairs - b).e_value
            for b in range(pairs + 1)
        )
        assert total == pytest.approx(1, abs=1e-9)


def test_no_discordant_pair_is_no_evidence() -> None:
    """Two defenses that never differed have an e-value of 1."""
    found = mcnemar_e_value(0, 0)
    assert (found.e_value, found.p_value) == (1.0, 1.0)
    assert "discordant" in found.reason


def test_overwhelming_evidence_stays_finite() -> None:
    """Neither infinity nor a p of 0."""
    found = mcnemar_e_value(5000, 0)
    assert math.isfinite(found.e_value)
    assert found.p_value > 0
    with pytest.raises(ValueError, match="second_only"):
        mcnemar_e_value(1, -1)


@given(means)
def test_more_observations_never_widen_the_betting_sequence(values: list[float]) -> None:
    """What one look has ruled out stays ruled out."""
    less, more = betting_sequence(values[: len(values) // 2 + 1]), betting_sequence(values)
    assert less.low is not None
    assert less.high is not None
    assert more.low is not None
    assert more.high is not None
    assert 0 <= more.low <= more.high <= 1
    assert more.high - more.low <= less.high - less.low + 1e-9


@given(means)
def test_swapping_bypassed_and_blocked_mirrors_the_betting_sequence(values: list[float]) -> None:
    """Group means of the other outcome give the other end."""
    one, other = betting_sequence(values), betting_sequence([1 - each for each in values])
    assert one.low is not None
    assert other.high is not None
    assert one.low == pytest.approx(1 - other.high, abs=1e-9)


def test_betting_sequence_rarely_loses_the_truth() -> None:
    """Skewed group means with a mean of 0.1, looked at at every group at once."""
    rng = np.random.default_rng(6)
    lost = 0
    for _ in range(300):
        found = betting_sequence(rng.beta(0.2, 1.8, 250))
        lost += not (found.low or 0.0) <= 0.1 <= (found.high or 1.0)
    assert lost / 300 <= 0.05 + 3 * (0.05 * 0.95 / 300) ** 0.5


def test_betting_sequence_learns() -> None:
    """A thousand groups without a bypass bound the rate below 1 %."""
    found = betting_sequence(np.zeros(1000))
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high is not None
    assert found.high < 0.01


@pytest.mark.parametrize("values", [[1.2], [-0.1], [math.nan]])
def test_what_is_no_rate_cannot_be_bet_on(values: list[float]) -> None:
    """Group means lie between 0 and 1."""
    with pytest.raises(ValueError, match="events"):
        betting_sequence(values)


def test_a_row_weighs_the_same_in_whichever_group_it_lies() -> None:
    """Large groups fall and small ones do not: the figure is that of rows, not of groups."""
    events, sizes = [9.0, 0.0, 0.0] * 200, [9.0, 1.0, 2.0] * 200
    found = betting_sequence(events, sizes, largest=10)
    assert found.value == pytest.approx(0.75)
    assert found.low is not None
    assert found.high is not None
    assert 1 / 3 < found.low < 0.75 < found.high
    with pytest.raises(ValueError, match="at most largest"):
        betting_sequence(events, sizes, largest=8)


def test_betting_weighs_which_side_of_one_half_groups_lie_on() -> None:
    """One-sided groups give evidence, balanced ones hardly any, ties none; never a p of 0."""
    strong = betting_e_value([0.9] * 400)
    balanced = betting_e_value([0.0, 1.0] * 200)
    ties = betting_e_value([0.5] * 400)
    assert (strong.first_only, strong.second_only, strong.p_value < 1e-6) == (400, 0, True)
    assert balanced.p_value > 0.05
    assert (ties.e_value, ties.p_value, ties.reason) == (1.0, 1.0, "no discordant pair")
    assert betting_e_value([]).reason
    endless = betting_e_value([1.0] * 200_000)
    assert 0 < endless.p_value < 1e-300
    assert math.isfinite(endless.e_value)


def test_betting_refuses_what_is_no_mean_of_a_group() -> None:
    """An observation is a share."""
    with pytest.raises(ValueError, match="observations must be in"):
        betting_e_value([0.2, 1.2])
