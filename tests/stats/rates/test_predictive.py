"""What a block is worth where attacks are rare."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.stats.rates.predictive import BlockCounts, predictive_values

counts = st.tuples(st.integers(1, 300), st.integers(1, 300)).flatmap(
    lambda sizes: st.builds(
        BlockCounts,
        blocked_attacks=st.integers(0, sizes[0]),
        attacks=st.just(sizes[0]),
        blocked_benign=st.integers(0, sizes[1]),
        benign=st.just(sizes[1]),
    )
)


@given(counts, st.floats(1e-6, 1 - 1e-6))
def test_values_are_bayes_rule_inside_zero_to_one(table: BlockCounts, share: float) -> None:
    """A predictive value is the share of right decisions of that kind."""
    found = predictive_values(table, share)
    blocked = share * table.blocked_attacks / table.attacks
    wrong = (1 - share) * table.blocked_benign / table.benign
    if blocked + wrong:
        assert found.positive.value == pytest.approx(blocked / (blocked + wrong), rel=1e-9)
    for ratio in (found.positive, found.negative):
        if ratio.value is None:
            assert "would be" in ratio.reason
        else:
            assert ratio.low is not None
            assert ratio.high is not None
            assert 0 <= ratio.low <= ratio.high <= 1


@given(counts, st.floats(1e-4, 0.9999))
def test_exchanging_attack_and_benign_swaps_the_values(table: BlockCounts, share: float) -> None:
    """NPV is PPV of the opposite question."""
    turned = BlockCounts(
        blocked_attacks=table.benign - table.blocked_benign,
        attacks=table.benign,
        blocked_benign=table.attacks - table.blocked_attacks,
        benign=table.attacks,
    )
    one, other = predictive_values(table, share), predictive_values(turned, 1 - share)
    for there, back in ((one.positive, other.negative), (one.negative, other.positive)):
        if there.value is None:
            assert back.value is None
        else:
            assert there.value == pytest.approx(back.value, rel=1e-6)
            assert there.low == pytest.approx(back.low, rel=1e-6)


def test_rarer_attacks_make_a_block_worth_less() -> None:
    """A 1 % false positive rate drowns a thousandth of attacks."""
    table = BlockCounts(blocked_attacks=99, attacks=100, blocked_benign=1, benign=100)
    shares = (0.0001, 0.001, 0.01, 0.1)
    values = [predictive_values(table, share).positive.value or 0.0 for share in shares]
    assert values == sorted(values)
    assert values[1] < 0.1


def test_an_outcome_that_never_occurred_takes_the_adjusted_interval() -> None:
    """No false block leaves the plain logit without an end; the adjusted one has both."""
    table = BlockCounts(blocked_attacks=18, attacks=20, blocked_benign=0, benign=50)
    found = predictive_values(table, 0.01)
    assert found.positive.method == "mercaldo adjusted logit"
    assert found.positive.value == 1.0
    assert found.positive.low is not None
    assert 0.05 < found.positive.low < 0.2
    plain = BlockCounts(blocked_attacks=18, attacks=20, blocked_benign=1, benign=50)
    assert predictive_values(plain, 0.01).positive.method == "mercaldo logit"


def test_nothing_blocked_has_no_value_of_a_block() -> None:
    """Allow-all never blocks: its PPV is undefined, its NPV is the benign share."""
    table = BlockCounts(blocked_attacks=0, attacks=20, blocked_benign=0, benign=50)
    found = predictive_values(table, 0.1)
    assert (found.positive.value, found.positive.low) == (None, None)
    assert "blocked" in found.positive.reason
    assert found.negative.value == pytest.approx(0.9)


@pytest.mark.parametrize(("attacks", "benign"), [(0, 5), (5, 0), (0, 0)])
def test_one_class_is_undefined(attacks: int, benign: int) -> None:
    """Both rates are needed."""
    table = BlockCounts(blocked_attacks=0, attacks=attacks, blocked_benign=0, benign=benign)
    found = predictive_values(table, 0.1)
    assert (found.positive.value, found.negative.value) == (None, None)
    assert "both" in found.positive.reason


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, math.nan])
def test_a_prevalence_at_the_ends_is_refused(share: float) -> None:
    """Without attacks, or with nothing else, there is nothing to predict."""
    table = BlockCounts(blocked_attacks=1, attacks=2, blocked_benign=1, benign=2)
    with pytest.raises(ValueError, match="prevalence"):
        predictive_values(table, share)


def test_extreme_shares_stay_finite() -> None:
    """One attack in 10 to the 300 overflows nothing."""
    table = BlockCounts(blocked_attacks=0, attacks=2, blocked_benign=2, benign=2)
    found = predictive_values(table, 1e-300, confidence=1 - 1e-15)
    assert found.positive.value == 0.0
    assert found.positive.low == pytest.approx(0, abs=1e-200)


@pytest.mark.parametrize(
    ("blocked_attacks", "blocked_benign", "said"),
    [(3, 0, "blocked_attacks"), (0, 3, "blocked_benign"), (-1, 0, "blocked_attacks")],
)
def test_more_blocked_than_there_were_is_refused(
    blocked_attacks: int, blocked_benign: int, said: str
) -> None:
    """The message names the count."""
    with pytest.raises(ValueError, match=said):
        BlockCounts(
            blocked_attacks=blocked_attacks, attacks=2, blocked_benign=blocked_benign, benign=2
        )
