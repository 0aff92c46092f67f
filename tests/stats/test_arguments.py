"""What the estimators refuse, and how they say so."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.stats.arguments import (
    group_column,
    require_count,
    require_counts,
    require_equal_lengths,
    require_fraction,
    require_group_counts,
    require_part,
    require_rate,
)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 95.0, math.nan])
def test_a_confidence_is_strictly_between_0_and_1(value: float) -> None:
    """95 instead of 0.95 is the usual slip; NaN compares false with everything."""
    with pytest.raises(ValueError, match=r"confidence must be in \(0, 1\)"):
        require_fraction("confidence", value)


@pytest.mark.parametrize("value", [-0.01, 1.01, math.nan])
def test_a_rate_is_between_0_and_1(value: float) -> None:
    """Percent belong to renderers."""
    with pytest.raises(ValueError, match=r"rate must be in \[0, 1\]"):
        require_rate("rate", value)


@pytest.mark.parametrize("value", [-1, 0.5, math.nan, math.inf])
def test_a_count_is_whole_and_not_negative(value: float) -> None:
    """A rate handed in as a count must not pass."""
    with pytest.raises(ValueError, match="trials must be a whole number"):
        require_count("trials", value)


def test_more_successes_than_trials_are_refused() -> None:
    """Swapped arguments are the usual cause."""
    with pytest.raises(ValueError, match=r"successes must be in 0..3, got 4"):
        require_part(4, 3)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1, -1], "at least 0"),
        ([1.0, math.nan], "NaN"),
        ([0.5], "fraction"),
        ([[1, 2]], "one-dimensional"),
        (["a"], "numbers"),
    ],
)
def test_bad_columns_of_counts_are_refused_by_name(values: list[object], told: str) -> None:
    """The message says which argument and what is wrong with it."""
    with pytest.raises(ValueError, match=f"sizes must.*{told}"):
        require_counts("sizes", values)  # type: ignore[arg-type]


def test_counts_of_any_numeric_kind_are_read() -> None:
    """Booleans, small and unsigned integers and whole floats all occur in practice."""
    for kind in (bool, np.int8, np.uint32, float):
        assert require_counts("sizes", np.array([0, 1], dtype=kind)).tolist() == [0, 1]
    assert require_counts("sizes", []).dtype == np.int64


def test_an_impossible_group_is_named() -> None:
    """Among thousands of groups the reader needs to know which."""
    with pytest.raises(ValueError, match="group 1 has 3 of 2"):
        require_group_counts([0, 3], [1, 2])


def test_unequal_lengths_are_told_with_both_lengths() -> None:
    """A column one short is found by its length."""
    with pytest.raises(ValueError, match="first 2, second 3"):
        require_equal_lengths(first=2, second=3)


def test_groups_without_rows_are_left_out() -> None:
    """An empty group would count as a group that agrees with everything."""
    counts = require_group_counts([0, 1, 0], [0, 2, 1])
    assert counts.sizes.tolist() == [2, 1]


@given(st.lists(st.one_of(st.integers(0, 20), st.integers(-5, 10**9)), max_size=60))
def test_groups_are_numbered_by_rank_however_far_apart_their_names_lie(names: list[int]) -> None:
    """Names that lie close are marked, others sorted: the numbers are the same."""
    ranks = {name: rank for rank, name in enumerate(sorted(set(names)))}
    assert group_column(names, len(names)).tolist() == [ranks[name] for name in names]
    words = [f"{name:012}" for name in names if name >= 0]
    ordered = {word: rank for rank, word in enumerate(sorted(set(words)))}
    assert group_column(words, len(words)).tolist() == [ordered[word] for word in words]


def test_groups_must_name_every_row() -> None:
    """None stands for a group a row; the order of numbers is that of the rows."""
    assert group_column(None, 3).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"one group per row: 3 rows, got \(2,\)"):
        group_column([1, 2], 3)
