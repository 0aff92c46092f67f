"""What a block is worth where attacks are rare."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.stats.rates.clustered import (
    EffectiveCounts,
    effective_counts,
    summarise,
    wilson_default_rows,
)
from guardmark.stats.rates.predictive import PredictiveValues, predictive_values


def values(
    attacks: tuple[int, int], benign: tuple[int, int], share: float, *, confidence: float = 0.95
) -> PredictiveValues:
    """Predictive values of samples blocked, of all, each sample alone."""
    sides = (EffectiveCounts.of(wilson_default_rows(*side)) for side in (attacks, benign))
    return predictive_values(*sides, prevalence=share, confidence=confidence)


side = st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
groups = st.lists(
    st.integers(1, 12).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    min_size=2,
    max_size=20,
)
Side = tuple[int, int]


@given(side, side, st.floats(1e-6, 1 - 1e-6))
def test_values_are_bayes_rule_inside_their_interval(
    attacks: Side, benign: Side, share: float
) -> None:
    """A predictive value is the share of right decisions of that kind."""
    found = values(attacks, benign, share)
    blocked = share * attacks[0] / attacks[1]
    wrong = (1 - share) * benign[0] / benign[1]
    if blocked + wrong:
        assert found.positive.value == pytest.approx(blocked / (blocked + wrong), rel=1e-9)
    for ratio in (found.positive, found.negative):
        if ratio.value is None:
            assert "would be" in ratio.reason
        else:
            assert ratio.low is not None
            assert ratio.high is not None
            assert 0 <= ratio.low <= ratio.value <= ratio.high <= 1


@given(groups, groups, st.sampled_from([0.0001, 0.01, 0.5]))
def test_grouped_values_lie_inside_their_interval(
    attacks: list[Side], benign: list[Side], share: float
) -> None:
    """Also where an outcome never occurred, or one group dominates."""
    sides = (
        effective_counts(summarise([x for x, _ in each], [m for _, m in each]))
        for each in (attacks, benign)
    )
    found = predictive_values(*sides, prevalence=share)
    for ratio in (found.positive, found.negative):
        if ratio.value is not None:
            assert ratio.low is not None
            assert ratio.high is not None
            assert 0 <= ratio.low <= ratio.value <= ratio.high <= 1


@given(side, side, st.floats(1e-4, 0.9999))
def test_exchanging_attack_and_benign_swaps_the_values(
    attacks: Side, benign: Side, share: float
) -> None:
    """NPV is PPV of the opposite question."""
    turned = ((benign[1] - benign[0], benign[1]), (attacks[1] - attacks[0], attacks[1]))
    one, other = values(attacks, benign, share), values(*turned, 1 - share)
    for there, back in ((one.positive, other.negative), (one.negative, other.positive)):
        if there.value is None:
            assert back.value is None
        else:
            assert there.value == pytest.approx(back.value, rel=1e-6)
            assert there.low == pytest.approx(back.low, rel=1e-6)


def test_rarer_attacks_make_a_block_worth_less() -> None:
    """A 1 % false positive rate drowns a thousandth of attacks."""
    shares = (0.0001, 0.001, 0.01, 0.1)
    worth = [values((99, 100), (1, 100), share).positive.value or 0.0 for share in shares]
    assert worth == sorted(worth)
    assert worth[1] < 0.1


def test_an_outcome_that_never_occurred_leaves_both_limits() -> None:
    """No false block leaves the plain logit without an end; halves give both, and hold the value."""
    found = values((18, 20), (0, 50), 0.01)
    assert (found.positive.value, found.positive.high) == (1.0, 1.0)
    assert found.positive.low is not None
    assert 0.02 < found.positive.low < 0.2


def test_groups_widen_the_interval() -> None:
    """Ten rows that go together are worth one."""
    alone = values((800, 1000), (50, 1000), 0.01).positive
    sides = (
        effective_counts(summarise([10] * hit + [0] * (100 - hit), [10] * 100)) for hit in (80, 5)
    )
    together = predictive_values(*sides, prevalence=0.01).positive
    assert together.value == alone.value
    assert together.low is not None
    assert alone.low is not None
    assert together.low < 0.6 * alone.low


def test_one_group_on_a_side_has_a_value_and_no_limits() -> None:
    """One benign seed with many variants shows nothing about other benign seeds."""
    benign = effective_counts(summarise([1], [10]))
    found = predictive_values(
        EffectiveCounts.of(wilson_default_rows(9, 10)), benign, prevalence=0.1
    )
    assert found.positive.value is not None
    assert (found.positive.low, found.positive.high) == (None, None)
    assert "one group" in found.positive.reason


def test_nothing_blocked_has_no_value_of_a_block() -> None:
    """Allow-all never blocks: its PPV is undefined, its NPV is the benign share."""
    found = values((0, 20), (0, 50), 0.1)
    assert (found.positive.value, found.positive.low) == (None, None)
    assert "blocked" in found.positive.reason
    assert found.negative.value == pytest.approx(0.9)


@pytest.mark.parametrize(("attacks", "benign"), [(0, 5), (5, 0), (0, 0)])
def test_one_class_is_undefined(attacks: int, benign: int) -> None:
    """Both rates are needed."""
    found = values((0, attacks), (0, benign), 0.1)
    assert (found.positive.value, found.negative.value) == (None, None)
    assert "both" in found.positive.reason


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, math.nan])
def test_a_prevalence_at_the_ends_is_refused(share: float) -> None:
    """Without attacks, or with nothing else, there is nothing to predict."""
    with pytest.raises(ValueError, match="prevalence"):
        values((1, 2), (1, 2), share)


def test_extreme_shares_stay_finite() -> None:
    """One attack in 10 to the 300 overflows nothing."""
    found = values((0, 2), (2, 2), 1e-300, confidence=1 - 1e-15)
    assert found.positive.value == 0.0
    assert found.positive.low == pytest.approx(0, abs=1e-200)


def test_the_share_of_attacks_stands_beside_the_values() -> None:
    """A predictive value without it says nothing."""
    assert values((9, 10), (1, 10), 0.02).prevalence == 0.02
