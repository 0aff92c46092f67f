"""Published methods kept for comparison: printed figures and edges."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.alternatives import miettinen_nurminen, newcombe, ppi_mean

from guardmark.stats.arguments import Counts
from guardmark.stats.rates.corrected import JudgeLabels
from guardmark.stats.rates.proportion import mover, wilson

every_interval = pytest.mark.parametrize("interval", [newcombe, miettinen_nurminen])


def test_the_published_examples() -> None:
    """56 of 70 against 48 of 80."""
    first, second = Counts(56, 70), Counts(48, 80)
    hybrid, score = newcombe(first, second), miettinen_nurminen(first, second)
    assert (hybrid.low, hybrid.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert (score.low, score.high) == pytest.approx((0.0528, 0.3382), abs=5e-5)


@every_interval
@pytest.mark.parametrize(
    ("first", "second"),
    [((0, 5), (0, 9)), ((5, 5), (9, 9)), ((5, 5), (0, 9)), ((0, 5), (9, 9)), ((0, 1), (0, 1))],
)
def test_rates_at_their_ends_have_intervals(
    interval: object, first: tuple[int, int], second: tuple[int, int]
) -> None:
    """0 of n is where good defenses live."""
    assert callable(interval)
    estimate = interval(Counts(*first), Counts(*second))
    assert -1.0 <= estimate.low <= estimate.value <= estimate.high <= 1.0
    assert estimate.low < estimate.high
    assert 0.0 < estimate.p_value <= 1.0


@every_interval
def test_a_side_without_trials_is_undefined(interval: object) -> None:
    """The reason says whether one or both are empty."""
    assert callable(interval)
    one, both = interval(Counts(0, 0), Counts(1, 2)), interval(Counts(0, 0), Counts(0, 0))
    assert (one.value, one.low, one.p_value) == (None, None, None)
    assert (one.reason, both.reason) == ("one side has no trials", "neither side has trials")


@every_interval
def test_interval_and_test_agree_about_zero(interval: object) -> None:
    """The score interval excludes 0 when its p is below 0.05; the hybrid one nearly always."""
    assert callable(interval)
    clear, none = interval(Counts(40, 50), Counts(10, 50)), interval(Counts(5, 50), Counts(6, 50))
    assert clear.low > 0.0
    assert clear.p_value < 0.05
    assert none.low < 0.0 < none.high
    assert none.p_value > 0.05


def test_from_two_wilson_intervals_mover_is_newcombe() -> None:
    """The general method gives the known one where both sides stand alone."""
    ours = mover(wilson(56, 70), wilson(48, 80))
    theirs = newcombe(Counts(56, 70), Counts(48, 80))
    assert (ours.value, ours.pairs, ours.method) == (theirs.value, 70, "mover")
    assert ours.low == pytest.approx(theirs.low, abs=1e-12)
    assert ours.high == pytest.approx(theirs.high, abs=1e-12)


def test_two_certain_rates_do_not_differ_for_certain() -> None:
    """Four of four against none of four: the whole difference is not proved by eight samples."""
    found = mover(wilson(4, 4), wilson(0, 4))
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(1 - 2**0.5 * 0.4899, abs=1e-4)


@given(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9), st.integers(1, 9)))
def test_mover_holds_its_value_and_turns_with_its_sides(counts: tuple[int, int, int, int]) -> None:
    """Inside -1 to 1; exchanged sides mirror it."""
    a, b, n, m = counts
    one, two = wilson(min(a, n), n), wilson(min(b, m), m)
    found, turned = mover(one, two), mover(two, one)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert -1 <= found.low <= found.value <= found.high <= 1
    assert turned.low == pytest.approx(-found.high, abs=1e-12)


def test_mover_says_what_is_missing() -> None:
    """Without trials no difference; without an interval on one side, no interval."""
    nothing = mover(wilson(0, 0), wilson(1, 2))
    assert (nothing.value, nothing.reason) == (None, "one side has no trials")
    bare = replace(wilson(1, 2), low=None, high=None)
    half = mover(bare, wilson(1, 2))
    assert (half.value, half.low, half.reason) == (0.0, None, "one side has no interval")
    with pytest.raises(ValueError, match="confidences differ"):
        mover(wilson(1, 2, confidence=0.9), wilson(1, 2))


GOOD = JudgeLabels(caught=90, missed=10, accused=12, cleared=188)


def test_prediction_powered_without_either_side_is_undefined() -> None:
    """Both labelled and unlabelled responses are needed."""
    nothing = JudgeLabels(caught=0, missed=0, accused=0, cleared=0)
    assert "no human labels" in ppi_mean(3, 9, labels=nothing).reason
    assert "no judged" in ppi_mean(0, 0, labels=GOOD).reason


def test_no_variance_gives_no_interval() -> None:
    """A width of zero from few labels would be a false certainty."""
    quiet = JudgeLabels(caught=0, missed=0, accused=0, cleared=12)
    found = ppi_mean(0, 50, labels=quiet)
    assert (found.value, found.standard_error, found.low) == (0.0, 0.0, None)
    assert found.tuning == 0.0
    assert "no variance" in found.reason


def test_limits_outside_of_zero_to_one_are_refused_not_cut() -> None:
    """Labels that are no sample of the run; "0 % [0, 0]" would be a certainty out of nothing."""
    strict = JudgeLabels(caught=20, missed=0, accused=80, cleared=100)
    found = ppi_mean(100, 1000, labels=strict, tuned=False)
    assert (found.value, found.low, found.high) == (None, None, None)
    assert found.raw_high is not None
    assert found.raw_high < 0
    assert "labels cannot correct the rate" in found.reason


def test_tuning_never_widens_what_full_trust_or_no_trust_gives() -> None:
    """A useless judge gets little weight, so the error stays that of the labels."""
    useless = JudgeLabels(caught=20, missed=20, accused=30, cleared=30)
    tuned, full = (
        ppi_mean(400, 1000, labels=useless),
        ppi_mean(400, 1000, labels=useless, tuned=False),
    )
    assert tuned.standard_error is not None
    assert full.standard_error is not None
    assert tuned.tuning == pytest.approx(0, abs=0.01)
    assert tuned.standard_error < full.standard_error
    assert tuned.standard_error == pytest.approx((0.4 * 0.6 / 100) ** 0.5, rel=0.01)
