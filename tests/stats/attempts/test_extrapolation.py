"""What more blind tries would reach, labelled as a guess."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import betabinom

from guardmark.stats.attempts.extrapolation import (
    Extrapolation,
    FittedModel,
    extrapolate_success,
)
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.figures import Ratio

FEW = DrawPlan(seed=1, replicates=60)


def drawn(a: float, b: float, *, samples: int = 400, tries: int = 10) -> np.ndarray:
    """Successes of samples whose chances follow a Beta distribution."""
    rng = np.random.default_rng(12)
    return rng.binomial(tries, rng.beta(a, b, samples))


def fit(tries: object, successes: object) -> FittedModel:
    """The Beta model of a guess at one try."""
    return extrapolate_success(tries, successes, k=1, drawing=FEW).beta  # type: ignore[arg-type]


def reached(tries: object, successes: object, k: int) -> Ratio:
    """What the Beta model reaches."""
    return extrapolate_success(tries, successes, k=k, drawing=FEW).beta.rate  # type: ignore[arg-type]


def test_the_spread_of_chances_is_found_again() -> None:
    """Ten tries of four hundred samples show a and b."""
    found = fit([10] * 400, drawn(0.5, 3.0))
    assert found.a == pytest.approx(0.5, rel=0.3)
    assert found.b == pytest.approx(3.0, rel=0.3)


def test_hard_samples_stay_hard() -> None:
    """A pooled chance would promise .96 where the truth is about .60."""
    successes = drawn(0.3, 3.0)
    found = reached([10] * 400, successes, 50)
    pooled = 1 - (1 - successes.sum() / 4000) ** 50
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.6 < found.high
    assert pooled > 0.95 > found.high
    assert found.method.startswith("extrapolated")


def test_samples_that_are_all_alike_are_a_plain_binomial() -> None:
    """Without spread the model falls back to independent tries."""
    assert reached([10] * 4, [3, 3, 3, 3], 5).value == pytest.approx(1 - 0.7**5, abs=1e-3)


def immune(share: float, a: float, b: float, *, tries: int = 16) -> Extrapolation:
    """A guess at four times the tries, of 300 samples of which some cannot be broken."""
    rng = np.random.default_rng(5)
    chances = rng.beta(a, b, 300) * (rng.random(300) >= share)
    wins = rng.binomial(tries, chances)
    return extrapolate_success([tries] * 300, wins, k=4 * tries, drawing=FEW)


def test_samples_that_cannot_be_broken_leave_no_single_guess() -> None:
    """Half are immune, so 64 tries reach .49: a Beta distribution alone promises .6 and more."""
    told = immune(0.5, 2.0, 6.0)
    one, two = told.beta.rate, told.immune.rate
    assert one.value is not None
    assert two.value is not None
    assert one.value > two.value + 0.05
    assert told.guess is None
    assert [rate for _, rate in told.shown] == [one, two]
    assert two.low is not None
    assert two.high is not None
    assert two.low < 0.49 < two.high
    assert told.immune.breakable == pytest.approx(0.5, abs=0.08)
    assert told.immune.fits


def test_models_that_agree_make_one_guess_with_the_limits_of_both() -> None:
    """Where nearly all fell, both say so."""
    told = immune(0.0, 3.0, 10.0)
    assert told.guess is not None
    assert [rate for _, rate in told.shown] == [told.guess]
    for model in (told.beta.rate, told.immune.rate):
        assert model.low is not None
        assert model.high is not None
        assert told.guess.low is not None
        assert told.guess.high is not None
        assert told.guess.low <= model.low <= model.high <= told.guess.high


def test_a_common_guess_claims_no_limits_that_one_model_lacks() -> None:
    """The limits of the other model alone would be too narrow for both."""
    told = immune(0.0, 3.0, 10.0)
    (one, two), none = (told.beta, told.immune), {"low": None, "high": None, "reason": "too few"}
    wanted = replace(one.rate, low=None, high=None, reason="too few")
    assert one.rate.low is not None
    assert replace(told, beta=replace(one, rate=replace(one.rate, **none))).guess == wanted
    assert replace(told, immune=replace(two, rate=replace(two.rate, **none))).guess == wanted


def test_a_curve_that_misses_what_was_seen_does_not_fit() -> None:
    """Two kinds of samples, a third of them sure to fall: no Beta distribution has that shape."""
    wins = [16] * 60 + [1, 0, 1, 2, 0, 1] * 40
    told = extrapolate_success([16] * 300, wins, k=32, drawing=FEW)
    assert told.beta.fits is False
    assert told.guess is None


def test_copies_of_a_sample_are_no_evidence_against_a_curve() -> None:
    """Twelve copies each: taken one by one they refute it, as twenty groups they cannot."""
    wins = np.repeat([0] * 7 + [1] * 3 + [13, 14, 14, 14, 15, 15, 15, 15, 16, 16], 12)
    tries, groups = np.full(len(wins), 16), np.repeat(np.arange(20), 12)
    assert extrapolate_success(tries, wins, k=32, drawing=FEW).beta.fits is False
    assert extrapolate_success(tries, wins, k=32, groups=groups, drawing=FEW).beta.fits is True


def test_samples_that_always_or_never_fall_gain_nothing_from_more_tries() -> None:
    """Half fall at the first try and the rest never."""
    assert reached([10] * 4, [10, 0, 10, 0], 1).value == pytest.approx(0.5, abs=0.01)
    assert reached([10] * 4, [10, 0, 10, 0], 100).value == pytest.approx(0.5, abs=0.02)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=3, max_size=20))
def test_more_tries_never_reach_less(successes: list[int]) -> None:
    """The modelled curve only rises, inside 0 to 1."""
    told = [
        extrapolate_success([6] * len(successes), successes, k=k, drawing=FEW) for k in (1, 6, 60)
    ]
    for curve in ([each.beta.rate for each in told], [each.immune.rate for each in told]):
        values = [each.value for each in curve if each.value is not None]
        assert len(values) in {0, 3}
        assert values == sorted(values)
        assert all(0 <= value <= 1 for value in values)


@pytest.mark.parametrize(
    ("tries", "successes", "said"),
    [
        ([], [], "no tries"),
        ([0, 0], [0, 0], "no tries"),
        ([1, 1], [1, 0], "tried twice"),
        ([5, 5], [0, 0], "no try got through"),
        ([5, 5], [5, 5], "every try"),
    ],
)
def test_what_cannot_be_fitted_is_undefined(
    tries: list[int], successes: list[int], said: str
) -> None:
    """No guess without something to go on."""
    found = extrapolate_success(tries, successes, k=3)
    for model in (found.beta, found.immune):
        assert (model.a, model.b, model.fits) == (None, None, None)
        assert (model.rate.value, model.rate.low) == (None, None)
        assert said in model.rate.reason
    assert found.guess is None


def test_nothing_is_guessed_past_ten_times_the_data() -> None:
    """Ten tries carry a guess to a hundred, not to a thousand."""
    far = extrapolate_success([10] * 6, [1, 0, 2, 0, 0, 1], k=101, drawing=FEW).beta.rate
    assert (far.value, far.low) == (None, None)
    assert "past 10 times" in far.reason
    near = extrapolate_success([10] * 6, [1, 0, 2, 0, 0, 1], k=100, drawing=FEW).beta.rate
    assert near.value is not None


def test_the_band_draws_whole_groups_and_the_same_ones_again() -> None:
    """Draws without a bypass say 0, draws of bypasses alone say 1."""
    found = extrapolate_success([2, 2], [0, 2], k=4, groups=["a", "b"], drawing=FEW).beta.rate
    assert (found.low, found.high, found.groups) == (0.0, 1.0, 2)
    again = extrapolate_success([2, 2], [0, 2], k=4, groups=["a", "b"], drawing=FEW).beta.rate
    assert found == again


def test_where_nearly_every_try_got_through_the_limit_is_that_of_the_samples() -> None:
    """Twenty samples that all fell bear a lower limit of 84 %, Wilson's, whatever is modelled."""
    found = extrapolate_success([8] * 20, [8] * 19 + [7], k=32, drawing=FEW).beta.rate
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.value > 0.999
    assert found.low == pytest.approx(20 / (20 + 1.96**2), abs=0.001)
    assert found.low <= found.value <= found.high


def test_samples_that_are_all_alike_do_not_make_a_guess_certain() -> None:
    """Every draw has the same fit and the band is a point; the groups are only four."""
    found = extrapolate_success([10] * 8, [3] * 8, k=5, groups=[0, 0, 1, 1, 2, 2, 3, 3]).beta.rate
    assert found.value == pytest.approx(1 - 0.7**5, abs=1e-3)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.5
    assert found.value < found.high < 1


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=3, max_size=20), st.integers(1, 60))
def test_an_interval_holds_its_value_and_is_no_surer_than_its_groups(
    successes: list[int], k: int
) -> None:
    """At either end, n groups leave at least what n plain outcomes leave."""
    told = extrapolate_success([6] * len(successes), successes, k=k, drawing=FEW)
    surest = 1.9599**2 / (len(successes) + 1.9599**2)
    for found in (told.beta.rate, told.immune.rate, told.guess):
        if found is None or found.value is None:
            continue
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.value <= found.high
        assert found.low <= 1 - surest + 1e-9
        assert found.high >= surest - 1e-9


def test_one_group_has_a_value_without_a_band() -> None:
    """A bootstrap needs two groups."""
    found = extrapolate_success([5, 5], [1, 3], k=8, groups=["a", "a"], drawing=FEW).beta.rate
    assert found.value is not None
    assert (found.low, "two groups" in found.reason) == (None, True)


@pytest.mark.parametrize(("successes", "k", "said"), [([6], 1, "exceed"), ([1], 0, "k must")])
def test_counts_that_do_not_fit_are_refused(successes: list[int], k: int, said: str) -> None:
    """The message says what is wrong."""
    with pytest.raises(ValueError, match=said):
        extrapolate_success([5], successes, k=k)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(2, 40), st.integers(0, 40)), min_size=2, max_size=25))
@settings(deadline=None)
def test_no_other_beta_makes_the_tries_likelier(rows: list[tuple[int, int]]) -> None:
    """The fit lies on top of the likelihood that the textbook's mass function gives."""
    tries = np.array([n for n, _ in rows])
    successes = np.array([min(n, c) for n, c in rows])
    found = fit(tries, successes)
    a, b = found.a or 0.0, found.b or 0.0
    assume(1e-3 < a + b < 1e6)  # at its edges, where samples are all alike, the search ends

    def height(a: float, b: float) -> float:
        return float(betabinom.logpmf(successes, tries, a, b).sum())

    others = [height(a * more, b * less) for more in (0.9, 1.1) for less in (0.9, 1.1)]
    assert height(a, b) >= max(others) - 1e-6


def test_draws_that_hold_no_success_reach_nothing() -> None:
    """One sample in forty fell once; where neither of two draws holds it, nothing is fitted."""
    successes = [1] + [0] * 39
    limits = []
    for seed in range(12):
        drawing = DrawPlan(seed=seed, replicates=2)
        rate = extrapolate_success([4] * 40, successes, k=8, drawing=drawing).beta.rate
        assert rate.value == pytest.approx(0.0489, abs=1e-4)
        assert rate.low is not None
        assert rate.high is not None
        limits.append((rate.low, rate.high))
    assert all(0 <= low <= high <= 1 for low, high in limits)
    lows = {low for low, _ in limits}
    assert 0.0 in lows
    assert len(lows) > 2
