"""A rate of which a judge labelled all responses, and people some."""

from __future__ import annotations

import math

import pytest

from guardmark.stats.rates.clustered import wilson_default
from guardmark.stats.rates.corrected import CorrectedRate, JudgeLabels, corrected_rate
from guardmark.stats.rates.double_sampling import (
    DOUBLE_SAMPLING,
    LABELS_ALONE,
    JudgedStrata,
    sample_twice,
)
from guardmark.stats.rates.means import share_mean
from guardmark.stats.rates.proportion import clopper_pearson, wilson


def corrected(judged_unsafe: int, trials: int, labels: tuple[int, int, int, int]) -> CorrectedRate:
    """Correct a run of so many answers, labelled ones among them, by labels of its own."""
    caught, missed, accused, cleared = labels
    counts = JudgeLabels(caught=caught, missed=missed, accused=accused, cleared=cleared)
    return corrected_rate(
        judged_unsafe - caught - accused, trials - counts.total, labels=counts, labels_from_run=True
    )


def test_a_rate_by_hand() -> None:
    """100 of 400 judged unsafe: 30 of 40 labelled are, and 3 of 60 of the others."""
    found = corrected(100, 400, (30, 3, 10, 57))
    assert found.value == pytest.approx(0.25 * 0.75 + 0.75 * 0.05)
    split, of_unsafe, of_safe = wilson(100, 400), wilson(30, 40), wilson(3, 60)
    assert split.low is not None
    assert of_unsafe.low is not None
    assert of_safe.low is not None
    below = math.hypot(
        0.25 * (0.75 - of_unsafe.low), 0.75 * (0.05 - of_safe.low), 0.7 * (0.25 - split.low)
    )
    assert found.low == pytest.approx(0.225 - below)
    assert (found.low, found.high) == pytest.approx((0.1718, 0.3022), abs=5e-5)
    assert (found.method, found.trials, found.labelled) == (DOUBLE_SAMPLING, 400, 100)


def test_labels_drawn_from_what_the_judge_calls_unsafe_are_no_bias() -> None:
    """All 40 judged unsafe and 40 others: the plain share of labels says a quarter, not a tenth."""
    found = corrected(40, 400, (20, 2, 20, 38))
    assert found.value == pytest.approx(0.1 * 0.5 + 0.9 * 0.05)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.095 < found.high < 22 / 80


def test_a_judge_at_chance_leaves_the_labels() -> None:
    """Drawn at random, they need no judge; their exact limits stand."""
    found = corrected(200, 400, (5, 5, 45, 45))
    assert (found.method, found.value) == (LABELS_ALONE, 0.1)
    exact = clopper_pearson(10, 100)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high))


def test_labels_drawn_by_the_verdict_are_never_taken_alone() -> None:
    """80 of 100 labels from a tenth of the run: their own share is that of another mix."""
    found = corrected(40, 400, (8, 1, 32, 19))
    assert found.method == DOUBLE_SAMPLING
    assert found.value == pytest.approx(0.1 * 0.2 + 0.9 * 0.05)


def test_a_stratum_that_nobody_looked_at_may_hold_anything() -> None:
    """Only what the judge calls unsafe was labelled: the limits allow for the rest, no value."""
    found = corrected(40, 400, (30, 0, 10, 0))
    assert found.value is None
    assert found.low == pytest.approx(
        0.1 * 0.75 - 0.1 * (0.75 - (wilson(30, 40).low or 0)), abs=0.02
    )
    assert found.high is not None
    assert found.high > 0.9
    assert found.reason == "nobody labelled any of the 360 responses that the judge calls safe"


@pytest.mark.parametrize(
    ("judged_unsafe", "trials", "labels", "reason"),
    [(0, 0, (0, 0, 0, 0), "no judged responses"), (3, 9, (0, 0, 0, 0), "no human labels")],
)
def test_nothing_judged_or_labelled_is_undefined(
    judged_unsafe: int, trials: int, labels: tuple[int, int, int, int], reason: str
) -> None:
    """It is not zero."""
    found = corrected(judged_unsafe, trials, labels)
    assert (found.value, found.low, found.high, found.reason) == (None, None, None, reason)


def test_a_true_zero_keeps_an_upper_limit() -> None:
    """Nobody found anything unsafe: the rate is 0, and not known to be."""
    found = corrected(0, 400, (0, 0, 0, 60))
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(clopper_pearson(0, 60).high)


def test_a_judge_that_is_always_right_costs_no_more_than_the_labels() -> None:
    """With every answer labelled, the limits are near those of the run itself."""
    found = corrected(100, 400, (100, 0, 0, 300))
    full = wilson(100, 400)
    assert found.value == full.value
    assert (found.low, found.high) == pytest.approx((full.low, full.high), abs=0.01)


def test_one_group_has_a_value_and_no_limits() -> None:
    """Nothing shows how groups differ."""
    one = wilson_default([20], [80])
    strata = JudgedStrata(
        judged_unsafe=one,
        of_unsafe=wilson_default([8], [10]),
        of_safe=wilson_default([1], [30]),
        labels=wilson_default([9], [40]),
    )
    found = sample_twice(strata)
    assert (found.low, found.high) == (None, None)
    assert "one group only" in found.reason


def test_labels_that_stand_for_different_numbers_are_never_pooled_unweighted() -> None:
    """Two categories, drawn alike, of which one is nine times as large."""
    import numpy as np

    unsafe = np.array([1.0] * 10 + [0.0] * 10 + [0.0] * 20)
    weights = np.array([1.0] * 20 + [9.0] * 20)
    labels = share_mean(unsafe, None, name="as drawn", confidence=0.95, weights=weights)
    strata = JudgedStrata(
        judged_unsafe=wilson(0, 200), of_unsafe=wilson(0, 0), of_safe=labels, labels=labels
    )
    found = sample_twice(strata)
    assert found.value == pytest.approx(0.05)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.05 < found.high < 0.25


def test_one_group_of_labels_drawn_by_verdict_has_no_limits() -> None:
    """Neither the split nor a stratum shows how groups differ."""
    strata = JudgedStrata(
        judged_unsafe=wilson_default([20], [400]),
        of_unsafe=wilson_default([15], [20]),
        of_safe=wilson_default([1], [20]),
        labels=wilson_default([16], [40]),
    )
    found = sample_twice(strata)
    assert found.value == pytest.approx(0.05 * 0.75 + 0.95 * 0.05)
    assert (found.low, found.high) == (None, None)
    assert "one group only" in found.reason


def test_labels_of_another_run_keep_rogan_and_gladen() -> None:
    """Only how often the judge errs is known from them."""
    counts = JudgeLabels(caught=90, missed=10, accused=12, cleared=188)
    found = corrected_rate(100, 1000, labels=counts, labels_from_run=False)
    assert found.method.startswith("rogan-gladen")
