"""Known faults of libraries, pinned: when one of these fails, the library has changed.

Then the text in docs/explanation/statistics.md wants an update, and perhaps a cross-check more.
"""

from __future__ import annotations

import math
import warnings

import pytest
from statsmodels.stats.contingency_tables import cochrans_q, mcnemar
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint
from tests.oracles.alternatives import jeffreys, miettinen_nurminen

from guardmark.stats.arguments import Counts
from guardmark.stats.multiplicity import cochran_q
from guardmark.stats.paired import significance


def test_statsmodels_calls_full_agreement_infinitely_significant() -> None:
    """No discordant pair: p = 0 from the corrected form, NaN from the plain one; it is 1."""
    table = [[90, 0], [0, 10]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        corrected = mcnemar(table, exact=False, correction=True)
        plain = mcnemar(table, exact=False, correction=False)
    assert (corrected.statistic, corrected.pvalue) == (math.inf, 0.0)
    assert math.isnan(plain.pvalue)
    assert significance.mcnemar(0, 0).p_chi2_corrected == 1.0


def test_statsmodels_does_not_stop_the_correction_at_0() -> None:
    """An even split has p = 1, not 0.75."""
    theirs = mcnemar([[50, 5], [5, 40]], exact=False, correction=True)
    assert theirs.pvalue == pytest.approx(0.75, abs=0.005)
    assert significance.mcnemar(5, 5).p_chi2_corrected == 1.0


def test_statsmodels_leaves_the_lower_jeffreys_end_above_0() -> None:
    """At 0 of n the published interval starts at 0."""
    low, _ = proportion_confint(0, 20, method="jeffreys")
    assert 0.0 < low < 1e-4
    assert jeffreys(0, 20).low == 0.0


def test_statsmodels_misses_the_published_score_interval() -> None:
    """56 of 70 against 48 of 80: printed 0.3382."""
    _, high = confint_proportions_2indep(56, 70, 48, 80, method="score", compare="diff")
    assert high == pytest.approx(0.3440, abs=5e-5)
    ours = miettinen_nurminen(Counts(56, 70), Counts(48, 80))
    assert ours.high == pytest.approx(0.3382, abs=5e-5)


@pytest.mark.parametrize("four", [(9, 10, 3, 10), (0, 20, 3, 20)])
def test_statsmodels_has_no_score_interval_for_some_tables(
    four: tuple[int, int, int, int],
) -> None:
    """Rates far apart, and 0 of n."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="sign"):
            confint_proportions_2indep(*four, method="score", compare="diff")
    ours = miettinen_nurminen(Counts(*four[:2]), Counts(*four[2:]))
    assert ours.low is not None


def test_statsmodels_has_no_cochran_q_for_rows_that_agree() -> None:
    """NaN instead of a p of 1."""
    outcomes = [[1, 1, 1], [0, 0, 0]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        theirs = cochrans_q(outcomes)
    assert math.isnan(theirs.pvalue)
    assert cochran_q(outcomes).p_value == 1.0
