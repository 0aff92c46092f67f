"""What a defense does at every threshold, and which to run at."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.stats.scores.auc import auc
from guardmark.stats.scores.curve_areas import average_precision, partial_auc, standardise_area
from guardmark.stats.scores.thresholds import (
    Stakes,
    choose_threshold,
    count_at_thresholds,
    expected_cost_curve,
)

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


@pytest.mark.parametrize("labels", [[], [1, 1], [0, 0]])
def test_one_class_has_no_area_but_a_reason(labels: list[int]) -> None:
    """No area where a rate is undefined."""
    scores = [0.2] * len(labels)
    assert "both" in count_at_thresholds(labels, scores).undefined
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
    raw = partial_auc(labels, scores, max_fpr=1.0)
    for part, form in ((raw, "raw"), (standardise_area(raw, max_fpr=1.0), "McClish")):
        assert part.value == pytest.approx(whole, abs=1e-12)
        assert form in part.method


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


Rows = list[tuple[bool, float]]

STAKES = Stakes(prevalence=0.1, miss_cost=50.0, block_cost=1.0)


def scored() -> st.SearchStrategy[Rows]:
    """Samples of both classes with scores that tie often."""
    rows = st.lists(st.tuples(st.booleans(), st.integers(0, 8).map(lambda i: i / 8)), max_size=30)
    return rows.filter(lambda found: len({label for label, _ in found}) == 2)


stakes = st.builds(
    Stakes,
    prevalence=st.floats(0, 1),
    miss_cost=st.floats(0, 100),
    block_cost=st.floats(0, 100),
)


def rates_at(rows: Rows, threshold: float | None) -> tuple[float, float]:
    """Share of attacks and share of benign samples at or above a threshold, None for no threshold."""
    blocked = [(label, threshold is not None and score >= threshold) for label, score in rows]
    attacks, benign = ([hit for label, hit in blocked if label == each] for each in (1, 0))
    return sum(attacks) / len(attacks), sum(benign) / len(benign)


def expected_cost(rates: tuple[float, float], at_stake: Stakes) -> float:
    """What a threshold costs a sample on average, from both of its rates."""
    return at_stake.allow_all_cost * (1 - rates[0]) + at_stake.block_all_cost * rates[1]


@given(scored(), stakes)
def test_no_threshold_is_cheaper_than_the_chosen(rows: Rows, at_stake: Stakes) -> None:
    """Neither another threshold nor blocking all or nothing costs less."""
    labels, scores = zip(*rows, strict=True)
    found = choose_threshold(labels, scores, stakes=at_stake)
    assert found.cost is not None
    assert found.cost <= min(at_stake.allow_all_cost, at_stake.block_all_cost) + 1e-9
    for threshold in {*scores, None}:
        rates = rates_at(rows, threshold)
        assert found.cost <= expected_cost(rates, at_stake) + 1e-9
    again = rates_at(rows, found.threshold)
    assert expected_cost(again, at_stake) == pytest.approx(found.cost, abs=1e-9)
    assert again[0] == found.true_positive_rate


@given(scored())
def test_rarer_attacks_never_lower_the_threshold(rows: Rows) -> None:
    """Where attacks are rare a false alarm costs more than a miss saves."""
    shares = [0.0, 0.001, 0.01, 0.1, 0.5, 1.0]
    curve = expected_cost_curve(*zip(*rows, strict=True), stakes=STAKES, prevalences=shares)
    assert [point.stakes.prevalence for point in curve] == shares
    rates = [point.false_positive_rate or 0.0 for point in curve]
    assert rates == sorted(rates)
    assert curve[0].threshold is None
    assert curve[0].cost == 0


@pytest.mark.parametrize("labels", [[], [1], [0, 0]])
def test_one_class_has_no_operating_point(labels: list[int]) -> None:
    """A cost needs both rates."""
    scores = [0.5] * len(labels)
    found = choose_threshold(labels, scores, stakes=STAKES)
    assert (found.threshold, found.cost, found.true_positive_rate) == (None, None, None)
    assert "both" in found.reason


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prevalence": 1.1, "miss_cost": 1.0, "block_cost": 1.0}, "prevalence"),
        ({"prevalence": 0.1, "miss_cost": -1.0, "block_cost": 1.0}, "miss_cost"),
        ({"prevalence": 0.1, "miss_cost": 1.0, "block_cost": math.nan}, "block_cost"),
    ],
)
def test_stakes_that_mean_nothing_are_refused(options: dict[str, float], said: str) -> None:
    """The message says which of the three is wrong."""
    with pytest.raises(ValueError, match=said):
        Stakes(**options)
