"""A weight says how many such groups there are: figures are those of groups listed one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.estimate import Estimate
from guardmark.stats.figures import Ratio
from guardmark.stats.rates.clustered import any_per_group, wilson_default_slices
from guardmark.stats.rates.means import share_mean
from guardmark.stats.rates.ratios import correlate

Group = tuple[int, int, int, int]


@st.composite
def weighted_groups(draw: st.DrawFn) -> list[Group]:
    """Successes, rows, slice and weight of some groups."""
    groups = []
    for _ in range(draw(st.integers(1, 12))):
        rows = draw(st.integers(0, 6))
        slice_ = draw(st.integers(0, 2))
        groups.append((draw(st.integers(0, rows)), rows, slice_, draw(st.integers(1, 9))))
    return groups


def figures(told: Estimate | Ratio) -> list[float | None]:
    """What a reader sees of an estimate."""
    return [told.value, told.low, told.high, told.trials, told.groups]


def near(one: Estimate | Ratio, two: Estimate | Ratio) -> bool:
    """Equal but for the last digits of sums."""
    pairs = zip(figures(one), figures(two), strict=True)
    return all(a == b or (a is not None and a == pytest.approx(b, rel=1e-9)) for a, b in pairs)


@given(weighted_groups())
def test_rates_of_slices_weigh_groups(groups: list[Group]) -> None:
    """Counts, limits and effective rows of every slice; a group without rows counts nowhere."""
    successes, rows, slices, weights = (np.array(column) for column in zip(*groups, strict=True))
    told = wilson_default_slices(
        successes, rows, slices=slices, slice_count=3, weights=weights, confidence=0.9
    )
    each = [np.repeat(column, weights) for column in (successes, rows, slices)]
    listed = wilson_default_slices(each[0], each[1], slices=each[2], slice_count=3, confidence=0.9)
    assert all(map(near, told, listed))


@given(weighted_groups())
def test_shares_and_means_of_groups_weigh_them(groups: list[Group]) -> None:
    """How many groups show anything, and the mean of their own rates."""
    used = [group for group in groups if group[1]] or [(1, 2, 0, 1)]
    successes, rows, _, weights = (np.array(column) for column in zip(*used, strict=True))
    one, all_ = np.repeat(successes, weights), np.repeat(rows, weights)
    assert near(any_per_group(successes, rows, weights=weights), any_per_group(one, all_))
    counted = share_mean(
        successes / rows, np.arange(len(rows))[::-1], name="m", confidence=0.95, counts=weights
    )
    listed = share_mean(one / all_, np.arange(len(all_)), name="m", confidence=0.95)
    assert near(counted, listed)


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 4, st.integers(1, 9)), min_size=1, max_size=9))
def test_the_correlation_of_two_rates_weighs_groups(rows: list[tuple[int, ...]]) -> None:
    """As groups that hold attacks and benign samples move both rates together."""
    table, weights = np.array([row[:4] for row in rows]), np.array([row[4] for row in rows])
    listed = correlate(np.repeat(table, weights, axis=0))
    assert correlate(table, weights=weights) == pytest.approx(listed, abs=1e-9)
