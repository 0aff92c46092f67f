"""Quantiles and tails, where they are easy to get wrong."""

from __future__ import annotations

import math

import pytest

from guardmark.stats.distributions import (
    as_p_value,
    chi_square_upper_tail,
    normal_quantile,
    normal_upper_tail,
    t_quantile,
    t_upper_tail,
    two_sided_p,
    two_sided_z,
)


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    """Quantiles are computed in each test: those that other tests asked for are kept."""
    t_quantile.cache_clear()
    normal_quantile.cache_clear()


def test_t_with_many_degrees_of_freedom_is_normal() -> None:
    """With a million groups nothing is left of the small-sample correction."""
    assert t_quantile(0.975, 1e6) == pytest.approx(1.959963984540054, abs=1e-5)


@pytest.mark.parametrize("df", [1, 2, 3, 9, 500, 1000, 1001, 5000])
def test_quantile_and_tail_undo_each_other(df: int) -> None:
    """The quantile of 0.975 leaves 0.025 above it, and mirrors at 0.5."""
    t = t_quantile(0.975, df)
    assert t_upper_tail(t, df) == pytest.approx(0.025, abs=1e-13)
    assert t_quantile(0.025, df) == pytest.approx(-t)
    assert t_upper_tail(-t, df) == pytest.approx(0.975)
    assert t_quantile(0.5, df) == 0.0


def test_the_ends_of_the_tail() -> None:
    """An infinite statistic leaves nothing above it; a zero leaves half."""
    assert t_upper_tail(math.inf, 4) == 0.0
    assert t_upper_tail(0.0, 4) == pytest.approx(0.5)


def test_bad_arguments_are_refused() -> None:
    """No degrees of freedom means one group, which the caller has to catch."""
    with pytest.raises(ValueError, match="degrees_of_freedom must be above 0"):
        t_quantile(0.9, 0)
    with pytest.raises(ValueError, match="probability must be in"):
        t_quantile(1.0, 3)


def test_far_tails_keep_their_precision() -> None:
    """1 - cdf would be 0 here."""
    assert normal_upper_tail(10.0) == pytest.approx(7.61985302416e-24, rel=1e-10)
    assert chi_square_upper_tail(5.991464547107979, 2) == pytest.approx(0.05)
    assert chi_square_upper_tail(100.0, 1) == pytest.approx(2 * 7.61985302416e-24, rel=1e-10)


def test_a_p_value_is_neither_0_nor_above_1() -> None:
    """Rounding may carry a sum past 1 and a tail below the least float."""
    assert as_p_value(1.0 + 1e-12) == 1.0
    assert as_p_value(0.0) > 0.0


def test_the_quantile_is_exact_and_not_1_96() -> None:
    """Four rounded digits would move the last printed digit of an interval."""
    assert two_sided_z(0.95) == pytest.approx(1.959963984540054, abs=1e-14)
    with pytest.raises(ValueError, match="confidence"):
        two_sided_z(1.0)


def test_a_p_value_is_never_zero() -> None:
    """The tail underflows; evidence does not become proof."""
    assert two_sided_p(0.0) == 1.0
    assert two_sided_p(-1.959963984540054) == pytest.approx(0.05, abs=1e-14)
    assert 0 < two_sided_p(60.0) < 1e-300
