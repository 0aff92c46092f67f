"""Our special functions against scipy, over the whole range, tails and large shapes included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from guardmark.stats import special_functions as arrays
from guardmark.stats.distributions import (
    beta_quantile,
    binomial_at_least,
    binomial_at_most,
    chi_square_upper_tail,
    incomplete_beta,
)


def close(value: float, *, shape: float) -> object:
    """What counts as equal: twelve digits, fewer where rounding of the shapes forbids it."""
    digits = 1e-12 + 4e-15 * math.sqrt(shape)
    return pytest.approx(value, rel=digits, abs=1e-300)


shapes = st.floats(-3, 6).map(lambda power: 10.0**power)
shares = st.one_of(
    st.floats(1e-12, 1.0, exclude_max=True),
    st.floats(-300, -1).map(lambda power: 10.0**power),
)


@given(x=shares, a=shapes, b=shapes)
def test_incomplete_beta_is_that_of_scipy(x: float, a: float, b: float) -> None:
    """Alone and in an array."""
    theirs = float(special.betainc(a, b, x))
    if theirs < 1e-290:
        assert incomplete_beta(x, a, b) < 1e-280
        return
    assert incomplete_beta(x, a, b) == close(theirs, shape=100 * (a + b))
    ours = float(arrays.incomplete_beta([x], a, b)[0])
    assert ours == pytest.approx(theirs, rel=1e-11 + 1e-14 * (a + b))


@given(probability=st.floats(1e-12, 1 - 1e-12), a=shapes, b=shapes)
def test_beta_quantiles_have_their_probability(probability: float, a: float, b: float) -> None:
    """By scipy's distribution function, which tells better than scipy's own quantile."""
    x = beta_quantile(probability, a, b)
    if not 1e-290 < x < 1 - 1e-9:
        return
    slope = abs(special.betainc(a, b, x * (1 + 1e-12)) - special.betainc(a, b, x))
    reached = float(special.betainc(a, b, x))
    assert reached == pytest.approx(probability, rel=1e-9, abs=10 * slope)


@given(
    pair=st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    tail=st.sampled_from([0.025, 0.005, 0.1, 1e-6]),
)
def test_limits_of_clopper_and_pearson_are_those_of_scipy(
    pair: tuple[int, int], tail: float
) -> None:
    """The quantiles that reports print."""
    k, n = pair
    if k:
        assert beta_quantile(tail, k, n - k + 1) == pytest.approx(
            float(special.betaincinv(k, n - k + 1, tail)), rel=1e-10
        )
    if k < n:
        assert beta_quantile(1 - tail, k + 1, n - k) == pytest.approx(
            float(special.betaincinv(k + 1, n - k, 1 - tail)), rel=1e-10
        )


@given(
    trials=st.integers(0, 20_000), share=st.floats(0, 1), rate=st.floats(1e-6, 1, exclude_max=True)
)
def test_binomial_tails_are_those_of_scipy(trials: int, share: float, rate: float) -> None:
    """Both tails keep their digits."""
    k = round(share * trials)
    assert binomial_at_most(k, trials, rate) == pytest.approx(
        float(special.bdtr(k, trials, rate)), rel=1e-9, abs=1e-280
    )
    assert binomial_at_least(k, trials, rate) == pytest.approx(
        float(special.bdtrc(k - 1, trials, rate)) if k else 1.0, rel=1e-9, abs=1e-280
    )


@given(statistic=st.floats(0, 1400), freedom=st.integers(1, 300))
def test_chi_square_tails_are_those_of_scipy(statistic: float, freedom: int) -> None:
    """From 1 down to where a float ends."""
    assert chi_square_upper_tail(statistic, freedom) == pytest.approx(
        float(special.chdtrc(freedom, statistic)), rel=1e-11, abs=1e-300
    )


@given(st.lists(st.floats(-6, 12).map(lambda power: 10.0**power), min_size=1, max_size=30))
def test_log_gamma_is_that_of_scipy(values: list[float]) -> None:
    """From near the pole to huge arguments; near 1 and 2, where it is 0, by absolute error."""
    assert arrays.log_gamma(values) == pytest.approx(special.gammaln(values), rel=1e-14, abs=4e-14)


@given(a=shapes, b=shapes)
def test_log_beta_is_that_of_scipy(a: float, b: float) -> None:
    """As far as scipy's own differences of large logarithms keep digits."""
    assert float(arrays.log_beta([a], b)[0]) == pytest.approx(
        float(special.betaln(a, b)), rel=1e-11, abs=1e-11 + 1e-14 * (a + b)
    )


def test_the_logistic_function_does_not_overflow() -> None:
    """At both ends and in the middle."""
    at = np.array([-800.0, -1.0, 0.0, 1.0, 800.0])
    assert arrays.logistic(at) == pytest.approx(special.expit(at), rel=1e-14)


def test_the_ends_of_the_incomplete_beta_function() -> None:
    """Nothing lies below 0, and everything below 1."""
    assert (incomplete_beta(0.0, 2, 3), incomplete_beta(1.0, 2, 3)) == (0.0, 1.0)
    assert arrays.incomplete_beta([0.0, 0.5, 1.0], 2.0, 2.0) == pytest.approx([0.0, 0.5, 1.0])
    assert (beta_quantile(0.0, 2, 3), beta_quantile(1.0, 2, 3)) == (0.0, 1.0)
