"""Scores, calibration and agreement against scikit-learn, statsmodels, krippendorff and scipy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from guardmark.stats.agreement import cohen_kappa, krippendorff_alpha
from guardmark.stats.scores.auc import auc
from guardmark.stats.scores.calibration import brier
from guardmark.stats.scores.curve_areas import average_precision, partial_auc, standardise_area
from guardmark.stats.scores.thresholds import count_at_thresholds

Rows = list[tuple[bool, float]]


def scored() -> st.SearchStrategy[Rows]:
    """Samples of both classes with scores that tie often."""
    rows = st.lists(st.tuples(st.booleans(), st.integers(0, 20).map(lambda i: i / 20)), max_size=60)
    return rows.filter(lambda found: len({label for label, _ in found}) == 2)


@given(scored())
def test_areas_agree_with_scikit_learn(rows: Rows) -> None:
    """AUC, average precision, Brier score and McClish's partial area, ties and all."""
    from sklearn import metrics

    labels, scores = zip(*rows, strict=True)
    assert auc(labels, scores).ratio.value == pytest.approx(metrics.roc_auc_score(labels, scores))
    assert average_precision(labels, scores).value == pytest.approx(
        metrics.average_precision_score(labels, scores)
    )
    assert brier(labels, scores).value == pytest.approx(metrics.brier_score_loss(labels, scores))
    assert standardise_area(
        partial_auc(labels, scores, max_fpr=0.2), max_fpr=0.2
    ).value == pytest.approx(metrics.roc_auc_score(labels, scores, max_fpr=0.2))


@given(scored())
def test_counts_at_thresholds_agree_with_scikit_learn(rows: Rows) -> None:
    """The same points of both curves at the same thresholds, but for the one that blocks nothing."""
    from sklearn import metrics

    labels, scores = zip(*rows, strict=True)
    fpr, tpr, thresholds = metrics.roc_curve(labels, scores, drop_intermediate=False)
    counts = count_at_thresholds(labels, scores)
    assert counts.thresholds == pytest.approx(thresholds[1:])
    assert counts.blocked_attacks / counts.attacks == pytest.approx(tpr[1:])
    assert counts.blocked_benign / counts.benign == pytest.approx(fpr[1:])
    precision, recall, _ = metrics.precision_recall_curve(labels, scores)
    blocked = counts.blocked_attacks + counts.blocked_benign
    assert (counts.blocked_attacks / blocked)[::-1] == pytest.approx(precision[:-1])
    assert (counts.blocked_attacks / counts.attacks)[::-1] == pytest.approx(recall[:-1])


@given(hnp.arrays(np.int64, (3, 3), elements=st.integers(0, 30)))
def test_kappa_agrees_with_statsmodels(table: np.ndarray) -> None:
    """Kappa and the standard error of Fleiss, Cohen and Everitt."""
    from statsmodels.stats.inter_rater import cohens_kappa

    ours = cohen_kappa(table)
    if ours.value is None:
        return
    with np.errstate(all="ignore"):  # it divides by its standard error, also where that is 0
        theirs = cohens_kappa(table)
    assert ours.value == pytest.approx(theirs.kappa, abs=1e-9)
    if ours.standard_error:
        assert ours.standard_error == pytest.approx(theirs.std_kappa, abs=1e-7)


@given(
    st.integers(2, 10).flatmap(
        lambda n: st.lists(
            st.lists(st.sampled_from([1.0, 2.0, 3.0, np.nan]), min_size=n, max_size=n),
            min_size=2,
            max_size=4,
        )
    )
)
def test_alpha_agrees_with_krippendorff(ratings: list[list[float]]) -> None:
    """Nominal alpha with gaps, wherever the other library gives a number at all."""
    import krippendorff

    ours = krippendorff_alpha(ratings)
    if ours.value is None:
        return
    theirs = krippendorff.alpha(reliability_data=ratings, level_of_measurement="nominal")
    assert ours.value == pytest.approx(theirs, abs=1e-9)


def test_where_scikit_learn_and_krippendorff_give_up() -> None:
    """Constant ratings: one warns and says NaN, one raises; we say undefined, and why."""
    import krippendorff
    from sklearn.metrics import cohen_kappa_score

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isnan(cohen_kappa_score([1, 1], [1, 1], labels=[0, 1]))
    with pytest.raises(ValueError, match="value"):
        krippendorff.alpha(reliability_data=[[1, 1], [1, 1]], level_of_measurement="nominal")
    assert cohen_kappa([[0, 0], [0, 2]]).reason
    assert krippendorff_alpha([[1, 1], [1, 1]]).reason


def test_scikit_learn_gives_only_the_standardised_partial_area() -> None:
    """`max_fpr` is McClish's form: a coin has 0.5, not 0.02. Ours names which it gives."""
    from sklearn.metrics import roc_auc_score

    labels, scores = [1, 0] * 5, [0.5] * 10
    assert roc_auc_score(labels, scores, max_fpr=0.2) == pytest.approx(0.5)
    assert partial_auc(labels, scores, max_fpr=0.2).value == pytest.approx(0.02)
