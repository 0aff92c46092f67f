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
from tests.oracles.alternatives import jeffreys, wilson_cc

from guardmark.stats.distributions import chi_square_upper_tail, t_quantile, t_upper_tail
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.rates.clustered import EffectiveCounts, summarise, wilson_default_rows
from guardmark.stats.rates.proportion import clopper_pearson, wilson
from guardmark.stats.rates.ratios import (
    BALANCED_ERROR,
    CORRELATION,
    F1,
    PRECISION,
    YOUDEN,
    estimate_ratios,
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
    hits, missed, alarms, passed = four
    attacks = EffectiveCounts.of(wilson_default_rows(hits, hits + missed))
    benign = EffectiveCounts.of(wilson_default_rows(alarms, alarms + passed))
    got = [ratio.value for ratio in estimate_ratios(attacks, benign, statistics=wanted)]
    assert got == pytest.approx(expected, abs=1e-12)


def test_scipys_beta_draws_give_the_same_limits() -> None:
    """Quantiles of F1 over many draws of both rates, each from its Jeffreys distribution."""
    ours = estimate_ratios(
        EffectiveCounts.of(wilson_default_rows(72, 90)),
        EffectiveCounts.of(wilson_default_rows(6, 40)),
        statistics=[F1],
        drawing=DrawPlan(replicates=40_000),
    )[0]
    draw = np.random.default_rng(3)
    hits = 90 * stats.beta(72.5, 18.5).rvs(100_000, random_state=draw)
    alarms = 40 * stats.beta(6.5, 34.5).rvs(100_000, random_state=draw)
    theirs = np.quantile(2 * hits / (hits + 90 + alarms), [0.025, 0.975])
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs), abs=0.002)
