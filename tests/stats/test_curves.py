"""What a defense would do at every threshold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.stats.curves import (
    average_precision,
    count_at_thresholds,
    partial_auc,
    precision_recall_curve,
    roc_curve,
)
from guardmark.stats.proportion import wilson
from guardmark.stats.scores import auc

Rows = list[tuple[bool, float]]


def scored() -> st.SearchStrategy[Rows]:
    """Samples of both classes with scores that tie often."""
    rows = st.lists(st.tuples(st.booleans(), st.integers(0, 8).map(lambda i: i / 8)), max_size=40)
    return rows.filter(lambda found: len({label for label, _ in found}) == 2)


@given(scored())
def test_counts_are_what_blocking_at_the_threshold_blocks(rows: Rows) -> None:
    """Equal scores are blocked together, and every distinct score is a threshold."""
    counts = count_at_thresholds(*zip(*rows, strict=True))
    assert list(counts.thresholds) == sorted({score for _, score in rows}, reverse=True)
    for i, threshold in enumerate(counts.thresholds):
        blocked = [label for label, score in rows if score >= threshold]
        assert counts.blocked_attacks[i] == sum(blocked)
        assert counts.blocked_benign[i] == len(blocked) - sum(blocked)


@given(scored())
def test_curve_runs_from_nothing_to_everything(rows: Rows) -> None:
    """Both rates only rise as the threshold falls, inside their bands."""
    for simultaneous in (False, True):
        curve = roc_curve(*zip(*rows, strict=True), simultaneous=simultaneous)
        assert curve.thresholds[0] == np.inf
        for band in (curve.true_positive_rate, curve.false_positive_rate):
            assert (band.values[0], band.values[-1]) == (0, 1)
            assert np.all(np.diff(band.values) >= 0)
            assert np.all((band.low >= 0) & (band.low <= band.values + 1e-12))
            assert np.all((band.high <= 1) & (band.high >= band.values - 1e-12))


@given(scored(), st.sampled_from([0.8, 0.95, 0.99]))
def test_band_is_wilson_at_each_point(rows: Rows, confidence: float) -> None:
    """The pointwise band is the interval a report prints for the same counts."""
    labels, scores = zip(*rows, strict=True)
    curve = precision_recall_curve(labels, scores, confidence=confidence)
    counts = count_at_thresholds(labels, scores)
    for i, hits in enumerate(counts.blocked_attacks):
        flagged = int(hits + counts.blocked_benign[i])
        one = wilson(int(hits), flagged, confidence=confidence)
        other = wilson(int(hits), counts.attacks, confidence=confidence)
        assert curve.precision.values[i] == one.value
        assert curve.precision.low[i] == pytest.approx(one.low, abs=1e-12)
        assert curve.precision.high[i] == pytest.approx(one.high, abs=1e-12)
        assert curve.recall.low[i] == pytest.approx(other.low, abs=1e-12)


def test_a_band_for_all_thresholds_is_wider_than_for_one() -> None:
    """A threshold chosen by looking at the curve needs the wider promise."""
    labels, scores = [True, False] * 50, list(range(100))
    one, every = roc_curve(labels, scores), roc_curve(labels, scores, simultaneous=True)
    middle = len(one.thresholds) // 2
    width = one.true_positive_rate.high - one.true_positive_rate.low
    wider = every.true_positive_rate.high - every.true_positive_rate.low
    assert wider[middle] > width[middle]
    assert every.true_positive_rate.method == "simultaneous, dkw"


def test_simultaneous_band_holds_the_whole_curve_as_often_as_it_says() -> None:
    """Over 400 samples of a known curve the band is left at most about one time in twenty."""
    rng = np.random.default_rng(8)
    left = 0
    for _ in range(400):
        benign, attacks = rng.random(40), np.sqrt(rng.random(30))
        curve = roc_curve([0] * 40 + [1] * 30, np.concatenate([benign, attacks]), simultaneous=True)
        t = np.clip(curve.thresholds, 0, 1)
        held = (curve.true_positive_rate.low <= 1 - t**2) & (
            1 - t**2 <= curve.true_positive_rate.high
        )
        held &= (curve.false_positive_rate.low <= 1 - t) & (1 - t <= curve.false_positive_rate.high)
        left += not held.all()
    assert left / 400 <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5


@pytest.mark.parametrize("labels", [[], [1, 1], [0, 0]])
def test_one_class_has_no_curve_but_a_reason(labels: list[int]) -> None:
    """No point is drawn where a rate is undefined."""
    scores = [0.2] * len(labels)
    for simultaneous in (False, True):
        curve = roc_curve(labels, scores, simultaneous=simultaneous)
        assert len(curve.thresholds) == len(curve.true_positive_rate.values) == 0
        assert "both" in curve.reason
    pairs = precision_recall_curve(labels, scores)
    assert len(pairs.thresholds) == 0
    average = average_precision(labels, scores)
    assert (average.value, bool(average.reason)) == (None, True)
    assert average.prevalence == (labels[0] if labels else None)
    area = partial_auc(labels, scores, max_fpr=0.2)
    assert (area.value, "both" in area.reason) == (None, True)


@given(scored())
def test_average_precision_of_a_tie_is_the_prevalence(rows: Rows) -> None:
    """A score that says nothing reaches the share of attacks, and no more."""
    labels = [label for label, _ in rows]
    found = average_precision(labels, [0.5] * len(rows))
    assert found.value == pytest.approx(found.prevalence, abs=1e-12)


@given(scored())
def test_whole_partial_area_is_the_area(rows: Rows) -> None:
    """Up to an FPR of 1 both forms are the AUC itself."""
    labels, scores = zip(*rows, strict=True)
    whole = auc(labels, scores).ratio.value
    for standardised in (False, True):
        part = partial_auc(labels, scores, max_fpr=1.0, standardised=standardised)
        assert part.value == pytest.approx(whole, abs=1e-12)
        assert ("McClish" if standardised else "raw") in part.method


@given(scored(), st.floats(0.01, 0.99))
def test_partial_area_grows_with_its_limit(rows: Rows, limit: float) -> None:
    """More of the curve is never less area, and never more than the width."""
    labels, scores = zip(*rows, strict=True)
    less = partial_auc(labels, scores, max_fpr=limit / 2).value
    more = partial_auc(labels, scores, max_fpr=limit).value
    assert less is not None
    assert more is not None
    assert less <= more + 1e-12
    assert more <= limit + 1e-12


@pytest.mark.parametrize("limit", [0.0, -1.0, 1.5])
def test_a_partial_area_needs_a_width(limit: float) -> None:
    """Up to 0 there is no area."""
    with pytest.raises(ValueError, match="max_fpr"):
        partial_auc([1, 0], [1, 0], max_fpr=limit)
