"""Rates and ratios against scipy, statsmodels and scikit-learn, where these are right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics
from statsmodels.api import OLS
from statsmodels.stats.proportion import proportion_confint

from guardmark.stats.alternatives import jeffreys, wilson_cc
from guardmark.stats.distributions import chi_square_upper_tail, t_quantile, t_upper_tail
from guardmark.stats.rates.bootstrap import Statistic, bootstrap, count_patterns
from guardmark.stats.rates.clustered import summarise
from guardmark.stats.rates.proportion import clopper_pearson, wilson
from guardmark.stats.rates.ratios import (
    BALANCED_ERROR,
    CORRELATION,
    F1,
    PRECISION,
    YOUDEN,
    estimate_ratios,
    estimate_ungrouped_ratios,
)


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int]:
    """Events among at least one trial."""
    trials = draw(st.integers(1, 3000))
    return draw(st.integers(0, trials)), trials


@given(pair=counts(), confidence=st.floats(0.5, 0.999))
def test_scipy_gives_the_same_intervals(pair: tuple[int, int], confidence: float) -> None:
    """Wilson, its corrected form, and Clopper-Pearson."""
    test = stats.binomtest(*pair)
    ours = {"wilson": wilson, "wilsoncc": wilson_cc, "exact": clopper_pearson}
    for name, interval in ours.items():
        theirs = test.proportion_ci(confidence_level=confidence, method=name)
        mine = interval(*pair, confidence=confidence)
        assert (mine.low, mine.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


@given(pair=counts(), confidence=st.floats(0.5, 0.999))
def test_statsmodels_gives_the_same_intervals(pair: tuple[int, int], confidence: float) -> None:
    """Wilson and Clopper-Pearson; Jeffreys away from its ends."""
    ours = {"wilson": wilson, "beta": clopper_pearson, "jeffreys": jeffreys}
    for name, interval in ours.items():
        if name == "jeffreys" and pair[0] in {0, pair[1]}:
            continue
        theirs = proportion_confint(*pair, alpha=1 - confidence, method=name)
        mine = interval(*pair, confidence=confidence)
        assert (mine.low, mine.high) == pytest.approx(theirs, abs=1e-9)


@given(st.floats(0.5001, 0.9999), st.one_of(st.integers(1, 3000), st.floats(0.6, 500)))
def test_scipy_gives_the_same_t_quantile(probability: float, df: float) -> None:
    """Ours needs no import of scipy."""
    assert t_quantile(probability, df) == pytest.approx(
        stats.t.ppf(probability, df), rel=1e-8, abs=1e-10
    )


@given(st.floats(0, 30), st.integers(1, 3000), st.integers(1, 30))
def test_scipy_gives_the_same_tails(statistic: float, df: int, few: int) -> None:
    """Student's t and chi-square."""
    assert t_upper_tail(statistic, df) == pytest.approx(stats.t.sf(statistic, df), rel=1e-8)
    assert chi_square_upper_tail(statistic, few) == pytest.approx(
        stats.chi2.sf(statistic, few), rel=1e-10
    )


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_statsmodels_gives_the_same_clustered_error(seed: int) -> None:
    """A regression on a constant with clustered covariance, on rows instead of counts."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 8, 20)
    events = generator.binomial(sizes, generator.random(20))
    rows = np.concatenate(
        [np.r_[np.ones(x), np.zeros(m - x)] for x, m in zip(events, sizes, strict=True)]
    )
    groups = np.repeat(np.arange(20), sizes)
    fit = OLS(rows, np.ones(len(rows))).fit(
        cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False}
    )
    summary = summarise(events, sizes)
    assert summary.rate == pytest.approx(fit.params[0])
    assert summary.se_cr0 == pytest.approx(fit.bse[0], rel=1e-8)


@given(st.tuples(*[st.integers(1, 50)] * 4))
def test_scikit_learn_gives_the_same_figures(four: tuple[int, int, int, int]) -> None:
    """On rows instead of counts."""
    truth = np.repeat([1, 1, 0, 0], four)
    answer = np.repeat([1, 0, 1, 0], four)
    wanted = [F1, PRECISION, BALANCED_ERROR, YOUDEN, CORRELATION]
    balanced = metrics.balanced_accuracy_score(truth, answer)
    expected = [
        metrics.f1_score(truth, answer),
        metrics.precision_score(truth, answer),
        1 - balanced,
        2 * balanced - 1,
        metrics.matthews_corrcoef(truth, answer),
    ]
    got = [ratio.value for ratio in estimate_ungrouped_ratios(four, statistics=wanted)]
    assert got == pytest.approx(expected, abs=1e-12)


def test_scipys_bootstrap_gives_the_same_limits() -> None:
    """BCa of one sample of groups, up to the noise of two generators."""
    generator = np.random.default_rng(8)
    events = generator.binomial(5, generator.beta(1, 5, 80))
    rate = Statistic(name="rate", figure=lambda totals: totals[:, 0] / totals.sum(axis=1))
    stratum = count_patterns(np.stack([events, 5 - events], axis=1))
    ours = bootstrap([stratum], [rate])[0]
    theirs = stats.bootstrap(
        (events / 5,), np.mean, n_resamples=4000, method="BCa", rng=np.random.default_rng(3)
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.006)


def test_scipys_bootstrap_of_two_samples_gives_the_same_limits() -> None:
    """Two strata: the acceleration weighs them as it should."""
    generator = np.random.default_rng(9)
    hits, alarms = generator.random(90) < 0.8, generator.random(40) < 0.15
    zeros = np.zeros(90, dtype=int), np.zeros(40, dtype=int)
    columns = np.vstack(
        [
            np.stack([hits, ~hits, zeros[0], zeros[0]], axis=1),
            np.stack([zeros[1], zeros[1], alarms, ~alarms], axis=1),
        ]
    )
    ours = estimate_ratios(columns, statistics=[F1])[0]

    def f1(hit: np.ndarray, alarm: np.ndarray, axis: int = -1) -> np.ndarray:
        true = hit.sum(axis=axis)
        return 2 * true / (true + hit.shape[axis] + alarm.sum(axis=axis))

    theirs = stats.bootstrap(
        (hits.astype(float), alarms.astype(float)),
        f1,
        n_resamples=4000,
        method="BCa",
        rng=np.random.default_rng(3),
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.01)
