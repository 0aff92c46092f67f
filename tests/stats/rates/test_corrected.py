"""Rates behind a judge that errs, and rates that people audited."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.estimate import Estimate
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.figures import Ratio
from guardmark.stats.rates.clustered import wilson_default
from guardmark.stats.rates.corrected import (
    JudgedWorth,
    JudgeLabels,
    audited_rate,
    corrected_rate,
    rogan_gladen,
    times_share,
)
from guardmark.stats.rates.proportion import wilson

GOOD = JudgeLabels(caught=90, missed=10, accused=12, cleared=188)

labels = st.builds(
    JudgeLabels,
    caught=st.integers(0, 60),
    missed=st.integers(0, 60),
    accused=st.integers(0, 60),
    cleared=st.integers(0, 60),
)
judged = st.integers(0, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(judged, labels)
def test_limits_stand_in_order_inside_zero_to_one(
    pair: tuple[int, int], against: JudgeLabels
) -> None:
    """A corrected rate is a rate, or it says why there is none."""
    for found in (
        rogan_gladen(*pair, labels=against),
        corrected_rate(*pair, labels=against, labels_from_run=True),
    ):
        if found.low is None or found.high is None:
            assert found.reason
        else:
            assert 0 <= found.low <= found.high <= 1
            assert found.value is None or found.low <= found.value <= found.high
            assert found.value is not None or found.reason


def test_a_perfect_judge_needs_no_correction() -> None:
    """Where the judge is right on every label the raw rate is the judged rate."""
    perfect = JudgeLabels(caught=100, missed=0, accused=0, cleared=100)
    found = rogan_gladen(30, 200, labels=perfect)
    assert found.raw == pytest.approx(0.15, abs=1e-12)


def test_a_judge_no_better_than_chance_is_refused() -> None:
    """Dividing by next to nothing would print noise as a rate."""
    coin = JudgeLabels(caught=30, missed=25, accused=26, cleared=30)
    found = rogan_gladen(60, 200, labels=coin)
    assert (found.value, found.low, found.high) == (None, None, None)
    assert found.raw is not None
    assert "better than chance" in found.reason
    even = rogan_gladen(5, 10, labels=JudgeLabels(caught=5, missed=5, accused=5, cleared=5))
    assert (even.raw, even.value) == (None, None)
    assert "better than chance" in even.reason


@pytest.mark.parametrize(
    ("judged_unsafe", "trials", "against", "said"),
    [
        (0, 0, GOOD, "no judged responses"),
        (1, 9, JudgeLabels(caught=0, missed=0, accused=1, cleared=5), "both safe and unsafe"),
        (1, 9, JudgeLabels(caught=3, missed=1, accused=0, cleared=0), "both safe and unsafe"),
    ],
)
def test_without_labels_or_responses_it_is_undefined(
    judged_unsafe: int, trials: int, against: JudgeLabels, said: str
) -> None:
    """Nothing is corrected by nothing."""
    found = rogan_gladen(judged_unsafe, trials, labels=against)
    assert (found.value, found.raw, found.low) == (None, None, None)
    assert said in found.reason


def test_lang_reiczigel_covers_where_the_judge_taken_as_truth_does_not() -> None:
    """At a true rate of 5 % and an erring judge the corrected interval holds the truth."""
    rng = np.random.default_rng(17)
    held = 0
    for _ in range(600):
        positive = int(rng.binomial(500, 0.05 * 0.9 + 0.95 * 0.1))
        caught, cleared = int(rng.binomial(80, 0.9)), int(rng.binomial(120, 0.9))
        found = rogan_gladen(
            positive,
            500,
            labels=JudgeLabels(
                caught=caught, missed=80 - caught, accused=120 - cleared, cleared=cleared
            ),
        )
        held += found.low is not None and found.high is not None and found.low <= 0.05 <= found.high
    assert held / 600 >= 0.95 - 3 * (0.95 * 0.05 / 600) ** 0.5


@pytest.mark.parametrize(("judged_unsafe", "trials"), [(3, 2), (-1, 2), (1, -2)])
def test_counts_that_do_not_fit_are_refused(judged_unsafe: int, trials: int) -> None:
    """More unsafe responses than responses is a mistake of the caller."""
    with pytest.raises(ValueError, match=r"judged_unsafe|trials"):
        rogan_gladen(judged_unsafe, trials, labels=GOOD)
    with pytest.raises(ValueError, match=r"judged_unsafe|trials"):
        corrected_rate(judged_unsafe, trials, labels=GOOD, labels_from_run=True)


def test_negative_labels_are_refused() -> None:
    """The message names the count."""
    with pytest.raises(ValueError, match="missed"):
        JudgeLabels(caught=1, missed=-1, accused=0, cleared=0)


DRAWING = DrawPlan(seed=7, replicates=400)


def rate(hits: int, trials: int) -> Estimate:
    """Estimate a rate of trials that are each a group of their own."""
    return wilson_default([1] * hits + [0] * (trials - hits), [1] * trials)


def audited(fell: int, attacks: int, *, judged: int, yes: int, answered: int) -> Ratio:
    """Estimate from plain counts."""
    return audited_rate(
        rate(fell, attacks), rate(judged, fell), rate(yes, answered), drawing=DRAWING
    )


def test_the_value_counts_what_is_proved_whole_and_the_rest_in_part() -> None:
    """50 of 100 fell, 30 of them judged, of which people confirm 15 of 20: 20 + 30 x 0.75."""
    found = audited(50, 100, judged=30, yes=15, answered=20)
    assert found.value == pytest.approx(0.425)
    assert (found.trials, found.replicates) == (100, 400)
    assert found.low is not None
    assert found.high is not None
    assert 0.3 < found.low < 0.425 < found.high < 0.55


def test_an_audit_without_a_no_still_leaves_doubt() -> None:
    """Ten of ten confirmed is not certainty: the lower limit lies below that of the full rate."""
    full = wilson(100, 100)
    found = audited(100, 100, judged=100, yes=10, answered=10)
    assert found.value == found.high == 1.0
    assert found.low is not None
    assert full.low is not None
    assert 0.7 < found.low < 0.9 < full.low


def test_few_attacks_that_all_fell_leave_doubt_too() -> None:
    """Four of four with a large audit: not surer than Jeffreys' limit of four of four."""
    found = audited(4, 4, judged=4, yes=4, answered=4)
    assert found.low is not None
    assert found.low < 0.6


def test_without_anything_judged_the_rate_stays_as_it_is() -> None:
    """Limits of the usual interval, no draws."""
    found = audited(50, 100, judged=0, yes=0, answered=0)
    usual = rate(50, 100)
    assert (found.value, found.low, found.high, found.replicates) == (
        usual.value,
        usual.low,
        usual.high,
        0,
    )


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"fell": 0, "attacks": 0, "judged": 0, "yes": 0, "answered": 0}, "no trials"),
        (
            {"fell": 5, "attacks": 9, "judged": 2, "yes": 0, "answered": 0},
            "nobody labelled any of them yes or no",
        ),
    ],
)
def test_what_is_unknown_is_undefined(counts: dict[str, Any], reason: str) -> None:
    """Neither no attacks nor an unanswered sheet reads as zero."""
    found = audited(**counts)
    assert (found.value, found.low, found.high) == (None, None, None)
    assert reason in found.reason


def test_a_true_zero_stays_zero() -> None:
    """Nothing confirmed, nothing proved: the rate is 0 with an upper limit above it."""
    found = audited(5, 20, judged=5, yes=0, answered=5)
    assert found.value == found.low == 0.0
    assert found.high is not None
    assert 0.02 < found.high < 0.3


def test_one_group_gives_no_interval() -> None:
    """Nothing shows how groups differ, so nothing is drawn."""
    full = wilson_default([3], [5])
    found = audited_rate(full, rate(2, 3), rate(1, 2), drawing=DRAWING)
    assert found.value == pytest.approx(0.6 * (1 - 2 / 3 * 0.5))
    assert found.low is None
    assert "one group only" in found.reason


@given(st.data())
def test_the_audited_rate_lies_between_the_proved_and_the_full_one(data: st.DataObject) -> None:
    """And its interval holds it, whatever the counts."""
    attacks = data.draw(st.integers(1, 40))
    fell = data.draw(st.integers(0, attacks))
    judged = data.draw(st.integers(0, fell))
    answered = data.draw(st.integers(1, 20))
    yes = data.draw(st.integers(0, answered))
    found = audited_rate(
        rate(fell, attacks),
        rate(judged, fell),
        rate(yes, answered),
        drawing=DrawPlan(seed=1, replicates=60),
    )
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert (fell - judged) / attacks - 1e-9 <= found.value <= fell / attacks + 1e-9
    assert 0 <= found.low <= found.value <= found.high <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("fall", "judged", "valid"), [(0.5, 0.6, 0.8), (0.9, 0.9, 0.95)])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(
    fall: float, judged: float, valid: float
) -> None:
    """Sixty attacks, twenty audited, five hundred times; at least 92 of 100 for nominal 95."""
    draw, truth, covered = random.Random(3), fall * (1 - judged * (1 - valid)), 0
    for number in range(500):
        fell = sum(draw.random() < fall for _ in range(60))
        by_word = sum(draw.random() < judged for _ in range(fell))
        sure = min(20, by_word)
        yes = sum(draw.random() < valid for _ in range(sure))
        found = audited_rate(
            rate(fell, 60),
            rate(by_word, fell),
            rate(yes, sure),
            drawing=DrawPlan(seed=number, replicates=200),
        )
        if found.low is not None and found.high is not None:
            covered += found.low <= truth <= found.high
    assert covered >= 460


def test_labels_that_are_worth_no_trial_show_nothing_of_a_judge() -> None:
    """Many labels of one group are worth none: the judge may be at chance, and no rate is told."""
    told = rogan_gladen(30, 100, labels=GOOD)
    bare = rogan_gladen(30, 100, labels=GOOD, worth=JudgedWorth(judged=100, unsafe=0, safe=200))
    assert told.value is not None
    assert (bare.value, bare.low, bare.high) == (None, None, None)
    assert bare.raw == told.raw
    assert "chance" in bare.reason


def test_a_share_that_is_certain_only_scales_a_corrected_rate() -> None:
    """Where all was let through for sure, the rate of what was let through is the whole rate."""
    rate = rogan_gladen(30, 200, labels=GOOD)
    everything = Estimate(
        successes=200, trials=200, low=1.0, high=1.0, confidence=0.95, method="wilson"
    )
    whole = times_share(rate, everything)
    assert rate.low is not None
    assert rate.high is not None
    assert (whole.value, whole.raw) == (rate.value, rate.raw)
    assert (whole.low, whole.high) == pytest.approx((rate.low, rate.high))
    assert whole.method == f"{rate.method}, times the share allowed"


def test_the_limits_of_a_product_carry_both_uncertainties() -> None:
    """Squared and added: wider than those of either alone, narrower than their sum."""
    rate, share = rogan_gladen(60, 200, labels=GOOD), wilson(80, 200)
    product = times_share(rate, share)
    assert rate.value is not None
    assert rate.low is not None
    assert share.value is not None
    assert share.low is not None
    assert product.value == pytest.approx(rate.value * share.value)
    by_rate = share.value * (rate.value - rate.low)
    by_share = rate.value * (share.value - share.low)
    below = product.value - product.low
    assert below == pytest.approx(float(np.hypot(by_rate, by_share)))
    assert max(by_rate, by_share) < below < by_rate + by_share


def test_of_a_refused_rate_limits_are_multiplied_with_those_of_the_share() -> None:
    """Nobody knows the rate, but it lies between limits, and so does its product."""
    rate, share = rogan_gladen(60, 200, labels=GOOD), wilson(80, 200)
    refused = times_share(replace(rate, value=None), share)
    assert refused.value is None
    assert refused.low == pytest.approx(rate.low * share.low)
    assert refused.high == pytest.approx(rate.high * share.high)


def test_without_trials_of_the_share_there_is_no_product() -> None:
    """A share of nothing is undefined, and not zero."""
    nothing = times_share(rogan_gladen(30, 200, labels=GOOD), wilson(0, 0))
    assert (nothing.value, nothing.raw, nothing.raw_low, nothing.raw_high) == (None,) * 4
