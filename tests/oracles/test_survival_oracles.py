"""Survival, quantiles, sequences and fits against lifelines and scipy."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats
from tests.oracles.alternatives import harrell_davis

from guardmark.stats.attempts.extrapolation import extrapolate_success
from guardmark.stats.attempts.survival import attack_success_at, kaplan_meier, restricted_mean
from guardmark.stats.quantiles import estimate_quantile, quantile_ranks
from guardmark.stats.sequential import beta_mixture_sequence, mcnemar_e_value

histories = st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=2, max_size=40)


@settings(max_examples=30, deadline=None)
@given(histories)
def test_the_curve_agrees_with_lifelines(rows: list[tuple[int, bool]]) -> None:
    """Survival, log-log limits and the restricted mean."""
    with warnings.catch_warnings():
        # Only the imports and fits of the other library may warn; ours stay errors.
        warnings.simplefilter("ignore")
        from lifelines import KaplanMeierFitter
        from lifelines.utils import restricted_mean_survival_time

        times, broken = zip(*rows, strict=True)
        theirs = KaplanMeierFitter().fit(times, broken)
        limits = theirs.confidence_interval_survival_function_
        mean = float(restricted_mean_survival_time(theirs, t=max(times)))
        median = float(theirs.median_survival_time_)
    curve = kaplan_meier(times, broken)
    for point in curve.points:
        assert point.survival == pytest.approx(
            float(theirs.survival_function_.loc[point.time].iloc[0]), abs=1e-9
        )
        if point.low is not None and point.high is not None:
            low, high = (float(each) for each in limits.loc[point.time])
            assert (point.low, point.high) == pytest.approx((low, high), abs=1e-7)
    assert restricted_mean(times, broken, horizon=max(times)).value == pytest.approx(mean, abs=1e-9)
    if all(abs(point.survival - 0.5) > 1e-9 for point in curve.points):
        # A curve that touches one half: theirs may end a hair above it and go on.
        assert (math.inf if curve.median is None else curve.median) == median


@given(
    st.integers(1, 600),
    st.floats(0.01, 0.99),
    st.sampled_from([0.8, 0.9, 0.95, 0.99]),
)
def test_ranks_are_binomial_quantiles(trials: int, quantile: float, confidence: float) -> None:
    """The ranks are those of scipy's binomial, and null where they run off the data."""
    tail = (1 - confidence) / 2
    lower = int(stats.binom.ppf(tail, trials, quantile))
    upper = int(stats.binom.ppf(1 - tail, trials, quantile)) + 1
    ranks = quantile_ranks(trials, quantile, confidence=confidence)
    assert ranks.lower == (lower or None)
    assert ranks.upper == (upper if upper <= trials else None)


@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=40), st.sampled_from([0.1, 0.5, 0.9]))
def test_point_estimates_agree_with_scipy(values: list[float], quantile: float) -> None:
    """Type 7 with numpy, Harrell-Davis with scipy's marginal quantiles."""
    theirs = float(stats.mstats.hdquantiles(values, prob=[quantile])[0])
    assert harrell_davis(values, quantile) == pytest.approx(theirs, abs=1e-6)
    found = estimate_quantile(values, quantile).value
    if found is not None:
        assert found == pytest.approx(float(np.quantile(values, quantile)), abs=1e-9)


@pytest.mark.parametrize(("successes", "trials"), [(0, 7), (3, 10), (40, 1000), (99, 100)])
def test_sequence_ends_solve_the_likelihood_equation(successes: int, trials: int) -> None:
    """At each inner end the mixture likelihood ratio is exactly 20."""
    found = beta_mixture_sequence(successes, trials)
    mixture = special.betaln(0.5 + successes, 0.5 + trials - successes) - special.betaln(0.5, 0.5)
    for end in (found.low, found.high):
        if end not in {0.0, 1.0}:
            likelihood = special.xlogy(successes, end) + special.xlog1py(trials - successes, -end)
            assert mixture - likelihood == pytest.approx(math.log(20), abs=1e-9)


@given(st.integers(0, 60), st.integers(0, 60))
def test_evidence_is_the_integral_of_likelihood_ratios(first: int, second: int) -> None:
    """The closed form is the beta function."""
    log_e = special.betaln(0.5 + first, 0.5 + second) - special.betaln(0.5, 0.5)
    log_e += (first + second) * math.log(2)
    assert mcnemar_e_value(first, second).log_e_value == pytest.approx(log_e, abs=1e-9)


@given(st.integers(1, 2000), st.data())
def test_asr_at_k_agrees_with_binomial_coefficients(tries: int, data: st.DataObject) -> None:
    """Also where the coefficients overflow any float."""
    successes, k = data.draw(st.integers(0, tries)), data.draw(st.integers(1, tries))
    exact = 1 - math.comb(tries - successes, k) / math.comb(tries, k)
    assert attack_success_at([tries], [successes], k=k).value == pytest.approx(exact, abs=1e-10)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 10), min_size=5, max_size=30))
def test_no_other_parameters_fit_better(successes: list[int]) -> None:
    """A general optimiser from several starts finds no higher likelihood."""
    found = extrapolate_success([10] * len(successes), successes, k=1).beta
    if found.a is None or found.b is None:
        return

    def loss(logs: np.ndarray) -> float:
        a, b = np.exp(np.clip(logs, -12, 14))
        return -float(stats.betabinom.logpmf(successes, 10, a, b).sum())

    ours = loss(np.log([found.a, found.b]))
    for start in ([0.0, 0.0], [-2.0, 0.0], [3.0, 3.0]):
        theirs = optimize.minimize(loss, start, method="Nelder-Mead")
        # Ours stops where samples are always or never broken but for one in a thousand tries.
        assert ours <= theirs.fun + 0.02
