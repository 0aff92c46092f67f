"""The difference of a slice and the rest, one of many that were searched."""

from __future__ import annotations

import math

import numpy as np
import pytest

from guardmark.stats.rates.clustered import EffectiveCounts, effective_counts, summarise
from guardmark.stats.rates.outlying import excess_over_rest, standing_out


def rows(hits: int, trials: int) -> EffectiveCounts:
    """Rows that each stand for themselves."""
    return effective_counts(summarise([1] * hits + [0] * (trials - hits), [1] * trials))


def test_one_event_of_twenty_is_no_finding_among_two_hundred_slices() -> None:
    """By chance a lone event lies in a slice of 20 among 1,020 rows once in fifty times."""
    low = excess_over_rest(rows(1, 20), rows(0, 1_000), searched=200).low
    assert low is not None
    assert low < 0.0


def test_all_against_none_is_told_apart_from_a_few_rows_on() -> None:
    """The chance of it is below any share of the error."""
    found = excess_over_rest(rows(20, 20), rows(0, 20), searched=1_000)
    assert found.value == 1.0
    assert found.low is not None
    assert 0.1 < found.low < 1.0


def test_more_slices_give_wider_limits() -> None:
    """Each is one of so many that hold together."""
    lows = [excess_over_rest(rows(30, 50), rows(20, 100), searched=n).low for n in (1, 10, 1_000)]
    assert lows == sorted(lows, key=lambda low: -(low or 0.0))
    assert len(set(lows)) == 3


def test_one_group_shows_nothing() -> None:
    """Limits are undefined where one group is all there is."""
    alone = effective_counts(summarise([50], [50]))
    found = excess_over_rest(alone, rows(10, 100))
    assert (found.value, found.low, found.high) == (0.9, None, None)
    assert "group" in found.reason


def test_groups_widen_the_limits() -> None:
    """Ten groups of ten that are alike within are ten witnesses."""
    grouped = effective_counts(summarise([10] * 8 + [0] * 2, [10] * 10))
    free = excess_over_rest(rows(80, 100), rows(20, 100))
    told = excess_over_rest(grouped, rows(20, 100))
    assert (told.low or 0.0) < (free.low or 0.0) - 0.1


@pytest.mark.parametrize("searched", [0, -1])
def test_nothing_searched_is_an_error(searched: int) -> None:
    """A family has at least one member."""
    with pytest.raises(ValueError, match="searched"):
        excess_over_rest(rows(1, 2), rows(1, 2), searched=searched)


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan])
def test_a_confidence_that_is_none_is_an_error(confidence: float) -> None:
    """It lies strictly between 0 and 1."""
    with pytest.raises(ValueError, match="confidence"):
        excess_over_rest(rows(1, 2), rows(1, 2), confidence=confidence)


def test_the_screen_passes_everything_that_limits_would_show() -> None:
    """Who is not worth a close look is never shown to lie above the rest."""
    for trials in (20, 50, 200):
        for hits in range(trials + 1):
            for other_hits, others in ((0, 100), (3, 100), (50, 100), (100, 100), (400, 2_000)):
                low = excess_over_rest(rows(hits, trials), rows(other_hits, others)).low
                far = standing_out(
                    np.array([hits]),
                    np.array([trials]),
                    all_hits=hits + other_hits,
                    all_trials=trials + others,
                )
                assert far[0] or (low or 0.0) <= 0.0
