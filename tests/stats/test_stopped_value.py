"""The value of a rate at which a rule ended the run."""

from __future__ import annotations

import math

import pytest

from guardmark.stats.stopped_value import LookBounds, median_unbiased

NEVER = LookBounds(trials=20, low=-1, high=21)


def chance_at_most(successes: int, trials: int, rate: float) -> float:
    """Return the binomial chance, the last outcome counted half."""
    terms = [
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(successes + 1)
    ]
    return sum(terms[:-1]) + terms[-1] / 2


def test_one_look_is_the_median_unbiased_value_of_a_binomial_rate() -> None:
    """Without a choice of when to end, only the skewness of counts is left."""
    value = median_unbiased([NEVER], 5, between=(0.01, 0.9))
    assert chance_at_most(5, 20, value) == pytest.approx(0.5, abs=1e-9)
    assert value == pytest.approx(0.25397, abs=1e-5)


def test_two_looks_by_hand() -> None:
    """Ended at the second look with 4 of 20, since 4 of 10 or more had ended it at the first."""
    looks = [LookBounds(trials=10, low=-1, high=4), LookBounds(trials=20, low=-1, high=4)]
    value = median_unbiased(looks, 4, between=(0.01, 0.9))
    higher = sum(math.comb(10, k) * value**k * (1 - value) ** (10 - k) for k in range(4, 11))
    # At the second look: more than 4 of 20 with at most 3 of the first 10, and half of exactly 4.
    for first in range(4):
        here = math.comb(10, first) * value**first * (1 - value) ** (10 - first)
        for second in range(4 - first, 11):
            chance = here * math.comb(10, second) * value**second * (1 - value) ** (10 - second)
            higher += chance / 2 if first + second == 4 else chance
    assert higher == pytest.approx(0.5, abs=1e-6)


def test_a_stop_above_a_limit_is_brought_back_towards_it() -> None:
    """4 of 10 ended the run since it looked bad: it is less bad than it looked."""
    looks = [LookBounds(trials=5, low=-1, high=3), LookBounds(trials=10, low=-1, high=4)]
    assert median_unbiased(looks, 4, between=(0.05, 0.9)) < 0.4


def test_high_and_low_ends_mirror_each_other() -> None:
    """Errors and successes are one measurement, read from two ends."""
    looks = [LookBounds(trials=10, low=1, high=8), LookBounds(trials=20, low=4, high=15)]
    turned = [
        LookBounds(each.trials, each.trials - each.high, each.trials - each.low) for each in looks
    ]
    one = median_unbiased(looks, 4, between=(0.01, 0.99))
    other = median_unbiased(turned, 16, between=(0.01, 0.99))
    assert one == pytest.approx(1 - other, abs=1e-9)


def test_looks_before_another_rule_was_decided_end_nothing() -> None:
    """With all looks but the last closed, it is a fixed number of answers."""
    looks = [LookBounds(trials=10, low=2, high=6), LookBounds(trials=20, low=4, high=12)]
    alone = median_unbiased([LookBounds(trials=20, low=-1, high=21)], 15, between=(0.01, 0.99))
    closed = median_unbiased(looks, 15, between=(0.01, 0.99), first=1)
    assert abs(closed - alone) < 0.02


def test_more_successes_than_trials_are_refused() -> None:
    """The message names the count."""
    with pytest.raises(ValueError, match="successes"):
        median_unbiased([NEVER], 21, between=(0.1, 0.9))
