"""Comparisons against scipy and statsmodels, where these are right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import cochrans_q as statsmodels_cochrans_q
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep
from tests.oracles.alternatives import (
    benjamini_hochberg,
    benjamini_yekutieli,
    bonferroni,
    hochberg,
    newcombe,
)

from guardmark.stats.arguments import Counts
from guardmark.stats.multiplicity import cochran_q, holm
from guardmark.stats.paired.significance import mcnemar, sign_flip


@given(first=st.integers(0, 300), second=st.integers(0, 300))
def test_statsmodels_gives_the_same_exact_mcnemar(first: int, second: int) -> None:
    """The exact form is right there, with its p cut at 1."""
    theirs = statsmodels_mcnemar([[5, first], [second, 5]], exact=True).pvalue
    assert mcnemar(first, second).p_exact == pytest.approx(theirs, rel=1e-9)


@given(first=st.integers(0, 200), second=st.integers(0, 200))
def test_statsmodels_gives_the_same_chi_square(first: int, second: int) -> None:
    """Uncorrected, where any pair is discordant."""
    if first + second:
        theirs = statsmodels_mcnemar([[5, first], [second, 5]], exact=False, correction=False)
        assert mcnemar(first, second).p_chi2 == pytest.approx(theirs.pvalue, rel=1e-9)


@settings(max_examples=30)
@given(st.lists(st.integers(-5, 5).filter(bool), min_size=2, max_size=9))
def test_scipys_permutation_test_gives_the_same_sign_flip(gaps: list[int]) -> None:
    """All sign assignments, enumerated."""
    theirs = stats.permutation_test(
        (np.array(gaps, dtype=float),),
        lambda x, axis=-1: np.abs(x.sum(axis=axis)),
        permutation_type="samples",
        alternative="greater",
        vectorized=True,
    )
    ours = sign_flip([max(gap, 0) for gap in gaps], [max(-gap, 0) for gap in gaps])
    assert ours.p_exact == pytest.approx(theirs.pvalue, rel=1e-9)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=25))
def test_statsmodels_gives_the_same_adjustments(family: list[float]) -> None:
    """All five."""
    ours = {
        "bonferroni": bonferroni,
        "holm": holm,
        "simes-hochberg": hochberg,
        "fdr_bh": benjamini_hochberg,
        "fdr_by": benjamini_yekutieli,
    }
    for name, adjust in ours.items():
        theirs = multipletests(family, method=name)[1]
        # statsmodels computes Holm by 1 - (1 - p), which costs it the last digits.
        assert adjust(family) == pytest.approx(theirs.tolist(), abs=1e-9)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=25))
def test_scipy_gives_the_same_false_discovery_control(family: list[float]) -> None:
    """Both of its methods."""
    ours = {"bh": benjamini_hochberg, "by": benjamini_yekutieli}
    for name, adjust in ours.items():
        theirs = stats.false_discovery_control(family, method=name)
        assert adjust(family) == pytest.approx(theirs.tolist(), abs=1e-12)


@given(st.integers(0, 10_000), st.integers(2, 5))
def test_statsmodels_gives_the_same_cochran_q(seed: int, defenses: int) -> None:
    """Where any row varies."""
    outcomes = (np.random.default_rng(seed).random((30, defenses)) < 0.5).astype(int)
    ours = cochran_q(outcomes)
    theirs = statsmodels_cochrans_q(outcomes)
    assert ours.q == pytest.approx(theirs.statistic)
    assert ours.p_value == pytest.approx(theirs.pvalue)


@given(st.integers(1, 90), st.integers(1, 90), st.integers(0, 90), st.integers(0, 90))
def test_statsmodels_gives_the_same_newcombe(n1: int, n2: int, x1: int, x2: int) -> None:
    """The hybrid score interval is right there; its score interval is not."""
    x1, x2 = min(x1, n1), min(x2, n2)
    theirs = confint_proportions_2indep(x1, n1, x2, n2, method="newcomb", compare="diff")
    ours = newcombe(Counts(x1, n1), Counts(x2, n2))
    assert (ours.low, ours.high) == pytest.approx(theirs, abs=1e-9)
