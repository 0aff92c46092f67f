"""Not worse, and equivalent: what has to be shown instead of not found."""

from __future__ import annotations

import pytest

from guardmark.stats.paired.intervals import PairedTable, tango
from guardmark.stats.paired.noninferiority import noninferiority_clustered, noninferiority_tango


def test_no_difference_found_is_not_no_difference() -> None:
    """Twenty samples that agree do not show that the rate did not rise by a point."""
    few = noninferiority_tango(0, 0, pairs=20, margin=0.01)
    many = noninferiority_tango(0, 0, pairs=1000, margin=0.01)
    assert not few.is_noninferior
    assert many.is_noninferior
    assert (many.p_equivalent or 1.0) < 0.05


def test_p_and_bound_decide_alike() -> None:
    """The upper bound lies below the margin exactly when p is below alpha."""
    for first in range(0, 25, 3):
        test = noninferiority_tango(first, 8, pairs=500, margin=0.02)
        assert test.high is not None
        assert (test.high < 0.02) == test.is_noninferior


def test_grouped_p_and_bound_decide_alike() -> None:
    """The same for groups."""
    for first in range(12):
        test = noninferiority_clustered(
            [first, 0, 1, 0] * 20, [0, 1, 1, 0] * 20, sizes=[12] * 80, margin=0.05
        )
        assert test.high is not None
        assert (test.high < 0.05) == test.is_noninferior
        assert test.method == "bonett_price_clustered"


def test_better_is_noninferior_but_not_equivalent() -> None:
    """Far better is still within "not worse"."""
    test = noninferiority_tango(0, 100, pairs=500, margin=0.02)
    assert test.is_noninferior
    assert (test.p_equivalent or 0.0) > 0.05


def test_one_pair_a_group_is_tangos_test() -> None:
    """Groups that are none change nothing."""
    grouped = noninferiority_clustered([1, 0, 0, 0], [0, 1, 0, 0], sizes=[1] * 4, margin=0.5)
    assert grouped == noninferiority_tango(1, 1, pairs=4, margin=0.5)


def test_undefined_is_not_shown() -> None:
    """Neither an empty table nor a single group shows anything."""
    empty = noninferiority_tango(0, 0, pairs=0, margin=0.02)
    lone = noninferiority_clustered([0], [0], sizes=[50], margin=0.02)
    for test in (empty, lone):
        assert test.p_noninferior is None
        assert not test.is_noninferior
        assert test.p_equivalent is None
        assert test.reason


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"margin": 0.0}, "margin"),
        ({"margin": 2.0}, "margin"),
        ({"alpha": 0.5}, "alpha"),
        ({"pairs": 3}, "pairs must be at least 4"),
    ],
)
def test_bad_questions_are_refused(changes: dict[str, float], told: str) -> None:
    """A margin of 0 is a test of superiority and needs its own words."""
    arguments = {"pairs": 10, "margin": 0.02, "alpha": 0.05} | changes
    with pytest.raises(ValueError, match=told):
        noninferiority_tango(2, 2, **arguments)  # type: ignore[arg-type]


def test_the_interval_is_tangos_at_twice_the_error() -> None:
    """Both ends of it: equivalence is read off the lower one."""
    test = noninferiority_tango(9, 4, pairs=80, margin=0.1, alpha=0.05)
    bounds = tango(PairedTable(both=0, first_only=9, second_only=4, neither=67), confidence=0.9)
    assert (test.difference, test.low, test.high) == (bounds.value, bounds.low, bounds.high)
