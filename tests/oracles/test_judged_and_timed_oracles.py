"""Double sampling, times that hang together and areas, against other implementations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint
from statsmodels.tsa.stattools import acovf

from guardmark.stats.rates.corrected import JudgeLabels, corrected_rate
from guardmark.stats.scores.auc import newcombe_limits
from guardmark.stats.time_series import autocorrelation_time


@pytest.mark.parametrize(
    ("judged", "labels"),
    [((100, 400), (30, 3, 10, 57)), ((40, 448), (20, 2, 20, 38)), ((9, 300), (9, 1, 0, 40))],
)
def test_double_sampling_puts_the_limits_of_statsmodels_together(
    judged: tuple[int, int], labels: tuple[int, int, int, int]
) -> None:
    """Wilson's limits of both strata and of the split, by square and add."""
    (unsafe, total), (caught, missed, accused, cleared) = judged, labels
    counts = JudgeLabels(caught=caught, missed=missed, accused=accused, cleared=cleared)
    found = corrected_rate(
        unsafe - caught - accused, total - counts.total, labels=counts, labels_from_run=True
    )
    share, first, second = unsafe / total, caught / (caught + accused), missed / (missed + cleared)
    split, one, two = (
        proportion_confint(hits, trials, method="wilson")
        for hits, trials in (
            (unsafe, total),
            (caught, caught + accused),
            (missed, missed + cleared),
        )
    )
    value = share * first + (1 - share) * second
    below = (share * (first - one[0]), (1 - share) * (second - two[0]))
    above = (share * (one[1] - first), (1 - share) * (two[1] - second))
    gap = first - second
    low = value - math.hypot(*below, gap * (share - split[0]))
    high = value + math.hypot(*above, gap * (split[1] - share))
    assert (found.value, found.low, found.high) == pytest.approx((value, max(0.0, low), high))


@pytest.mark.parametrize("rho", [0.4, 0.8])
def test_the_autocorrelation_time_is_that_of_statsmodels_covariances(rho: float) -> None:
    """Geyer's initial monotone sequence of them, with the same correction of the mean."""
    noise = np.random.default_rng(6).standard_normal(1_500)
    series = np.empty(1_500)
    series[0] = noise[0]
    for at in range(1, 1_500):
        series[at] = rho * series[at - 1] + noise[at]
    covariances = acovf(series, fft=False, demean=True)
    pairs, total, last = 0, 0.0, math.inf
    for at in range(0, 1_498, 2):
        pair = covariances[at] + covariances[at + 1]
        if pair <= 0:
            break
        last, pairs = min(last, pair), pairs + 1
        total += last
    lags = 4 * pairs - 1
    plain = (2 * total / covariances[0] - 1) / (1 - lags / 1_500)
    found = autocorrelation_time(series)
    assert found == pytest.approx(plain, rel=1e-9)


def test_newcombes_limits_are_near_those_of_hanley_and_mcneil_in_the_middle() -> None:
    """With alike classes and a middling area both are one normal approximation."""
    area, attacks, benign = 0.75, 200, 200
    first, second = area / (2 - area), 2 * area**2 / (1 + area)
    spread = (attacks - 1) * (first - area**2) + (benign - 1) * (second - area**2)
    error = math.sqrt((area * (1 - area) + spread) / (attacks * benign))
    low, high = newcombe_limits(area, attacks, benign, confidence=0.95)
    assert (low, high) == pytest.approx((area - 1.96 * error, area + 1.96 * error), abs=0.004)
