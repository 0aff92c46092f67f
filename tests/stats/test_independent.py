"""Differences on different samples: published figures and edges."""

from __future__ import annotations

import pytest

from guardmark.stats.arguments import Counts
from guardmark.stats.independent import miettinen_nurminen, newcombe

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
