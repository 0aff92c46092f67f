"""What a series is worth whose values hang together in time."""

from __future__ import annotations

import numpy as np
import pytest

from guardmark.stats import time_series
from guardmark.stats.quantiles import estimate_quantiles, median_difference
from guardmark.stats.time_series import CallSeries, autocorrelation_time


def correlated(
    count: int, rho: float, seed: int = 1
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Draw an autoregressive series of unit variance."""
    noise = np.random.default_rng(seed).standard_normal(count)
    series = np.empty(count)
    series[0] = noise[0]
    for at in range(1, count):
        series[at] = rho * series[at - 1] + np.sqrt(1 - rho**2) * noise[at]
    return series


def test_independent_values_are_worth_themselves() -> None:
    """What chance shows is not taken for a dependence."""
    assert autocorrelation_time(correlated(2_000, 0.0)) == 1.0


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_a_long_series_has_the_time_of_its_process(rho: float) -> None:
    """An autoregression of first order has (1 + rho) / (1 - rho)."""
    found = autocorrelation_time(correlated(40_000, rho))
    assert found == pytest.approx((1 + rho) / (1 - rho), rel=0.1)


def test_the_pairs_by_fourier_transform_are_those_by_hand() -> None:
    """A slow wave needs more lags than are computed one by one."""
    wave = np.repeat(np.random.default_rng(2).standard_normal(40), 100)
    assert autocorrelation_time(wave) > 80


@pytest.mark.parametrize("series", [[], [1.0], [2.0, 2.0, 2.0, 2.0, 2.0], [1.0, 2.0, 3.0]])
def test_a_series_that_tells_nothing_is_taken_as_it_is(series: list[float]) -> None:
    """Too short, or without variation."""
    assert autocorrelation_time(series) == 1.0


def test_alternating_values_are_never_worth_more_than_they_are() -> None:
    """A negative correlation would make limits narrower; it is not used."""
    assert autocorrelation_time([0.0, 1.0] * 100) == 1.0


def test_the_limits_of_times_that_hang_together_are_wider() -> None:
    """A fixed series: ranks 469 and 532 of 1,000 where calls stood alone, fewer where they do not."""
    series = correlated(1_000, 0.6, seed=5)
    alone, ordered = (
        estimate_quantiles(series, [0.5], is_in_time_order=each)[0] for each in (False, True)
    )
    assert alone.value == ordered.value
    assert None not in (alone.low, alone.high, ordered.low, ordered.high)
    assert (ordered.high or 0) - (ordered.low or 0) > 1.3 * ((alone.high or 0) - (alone.low or 0))


def test_a_series_of_few_spells_has_no_limits_and_says_what_it_is_worth() -> None:
    """Half of the calls were slow, in one go: that is one observation, not five hundred."""
    series = np.concatenate([np.full(500, 10.0), np.full(500, 50.0)])
    series += 0.1 * np.random.default_rng(3).standard_normal(1_000)
    found = estimate_quantiles(series, [0.5], is_in_time_order=True)[0]
    assert (found.low, found.high) == (None, None)
    assert found.reason.startswith("calls hang together in time: 1,000 are worth about ")


def test_a_high_quantile_of_few_groups_that_are_alike_within_has_no_limits() -> None:
    """Of 60 samples asked five times each, p95 would rest on three of them."""
    codes = np.repeat(np.arange(60), 5)
    times = np.random.default_rng(4).lognormal(size=60)[codes]
    found = estimate_quantiles(times, [0.95], groups=codes)[0]
    assert found.low is None
    assert "needs 72 groups, got 60" in found.reason


def with_spells(
    count: int, starts: tuple[int, ...]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Log times of which twenty from each start on are five times as long."""
    times = 0.3 * np.random.default_rng(5).standard_normal(count)
    for start in starts:
        times[start : start + 20] += np.log(5)
    return times


def test_rare_spells_show_at_the_high_levels_and_count_at_the_median_too() -> None:
    """Three spells in 800 calls: one call in fourteen at p95, one in three and a half at p50."""
    series = CallSeries(with_spells(800, (100, 400, 650)))
    assert (series.longest, series.stretch) == (pytest.approx(14.63, abs=0.01), 37)
    at_p50, at_p95 = series.time_at(400), series.time_at(760)
    assert (at_p50, at_p95) == (pytest.approx(3.44, abs=0.01), pytest.approx(13.99, abs=0.01))


def test_limits_around_rare_spells_reach_to_either_side_of_them() -> None:
    """Taken one by one the sixty slow calls would be known to be the slowest 7.5 %."""
    times = with_spells(800, (100, 400, 650))
    alone, ordered = (
        estimate_quantiles(times, [0.95], is_in_time_order=each)[0] for each in (False, True)
    )
    assert (alone.low, alone.high) == pytest.approx((1.353, 1.665), abs=1e-3)
    assert (ordered.low, ordered.high) == pytest.approx((0.522, 1.889), abs=1e-3)


def test_differences_hang_together_in_the_order_of_either_side() -> None:
    """The value stays; limits are wider in one order, and wider still where each has its own."""
    first, second = correlated(600, 0.8, seed=1), correlated(600, 0.8, seed=2)
    own = np.random.default_rng(3).permutation(600)
    shuffled = np.empty(600)
    shuffled[np.argsort(own)] = second
    unordered = median_difference(first, second)
    together = median_difference(first, second, orders=[np.arange(600)])
    apart = median_difference(first, shuffled, orders=[np.arange(600), own])
    assert together.value == unordered.value
    assert (unordered.low, unordered.high) == pytest.approx((-0.138, 0.099), abs=1e-3)
    assert (together.low, together.high) == pytest.approx((-0.239, 0.346), abs=1e-3)
    assert (apart.low, apart.high) == pytest.approx((-0.387, 0.393), abs=1e-3)


def test_a_difference_whose_calls_are_worth_too_few_keeps_its_value() -> None:
    """One side became slower for good in the middle: that happened once."""
    first = np.repeat([1.0, 3.0], 200) + 0.01 * correlated(400, 0.0)
    found = median_difference(first, np.ones(400), orders=[np.arange(400)])
    assert found.value is not None
    assert (found.low, found.high) == (None, None)
    assert found.reason.startswith("calls hang together in time: 400 are worth about ")


@pytest.mark.parametrize("rho", [0.1, 0.8, 0.97, 0.995])
def test_a_series_read_in_eights_says_what_one_read_whole_says(
    rho: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 65,536 values on, neighbours that are alike anyway are taken together."""
    times = correlated(100_000, rho, seed=11)
    ranks = (50_000, 95_000, 99_900)
    in_eights = CallSeries(times)
    worth = [in_eights.time_at(rank) for rank in ranks]
    monkeypatch.setattr(time_series, "_LONG", len(times) + 1)
    whole = CallSeries(times)
    assert in_eights.longest == pytest.approx(whole.longest, rel=0.05)
    assert worth == pytest.approx([whole.time_at(rank) for rank in ranks], rel=0.1)


def test_a_long_series_of_calls_that_stand_alone_stays_alone() -> None:
    """Reading in eights finds no dependence where there is none."""
    times = np.random.default_rng(8).exponential(size=200_001)
    assert CallSeries(times).longest == 1.0
