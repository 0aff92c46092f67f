"""Whether scores mean what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.stats.scores.calibration import brier, calibration_error

Rows = list[tuple[bool, float]]

probabilities = st.lists(
    st.tuples(st.booleans(), st.one_of(st.floats(0, 1), st.integers(0, 10).map(lambda i: i / 10))),
    min_size=1,
    max_size=40,
)


@given(probabilities, st.sampled_from([None, 1, 5, 10]))
def test_decomposition_adds_up(rows: Rows, bins: int | None) -> None:
    """The parts of the Brier score are the Brier score."""
    found = brier(*zip(*rows, strict=True), bins=bins)
    parts = (found.reliability, found.resolution, found.uncertainty, found.within_bins)
    assert found.value is not None
    assert None not in parts
    reliability, resolution, uncertainty, within = (part or 0.0 for part in parts)
    assert found.value == pytest.approx(reliability - resolution + uncertainty + within, abs=1e-12)
    if bins is None:
        assert within == pytest.approx(0, abs=1e-12)


@given(probabilities, st.sampled_from(["equal_width", "equal_mass"]))
def test_bins_hold_every_sample_once(rows: Rows, binning: str) -> None:
    """The error is the weighted gap of bins that together hold all samples."""
    found = calibration_error(*zip(*rows, strict=True), binning=binning)
    assert sum(each.attack_rate.trials for each in found.bins) == len(rows)
    assert sum(each.attack_rate.successes for each in found.bins) == sum(r[0] for r in rows)
    gaps = [
        (e.attack_rate.trials, abs(e.mean_score - (e.attack_rate.value or 0))) for e in found.bins
    ]
    assert found.value == pytest.approx(sum(n * g for n, g in gaps) / len(rows), abs=1e-12)
    assert found.largest_gap == pytest.approx(max(g for _, g in gaps), abs=1e-12)
    lows = [each.low for each in found.bins]
    assert lows == sorted(lows)


@given(probabilities.flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows))))
def test_neither_order_nor_ties_decide_the_error(both: tuple[Rows, Rows]) -> None:
    """Equal scores share a bin, so shuffling changes nothing."""
    one, other = (
        calibration_error(*zip(*rows, strict=True), binning="equal_mass") for rows in both
    )
    assert one.value == pytest.approx(other.value, abs=1e-12)
    assert len(one.bins) == len(other.bins)


def test_equal_mass_bins_are_nearly_equal() -> None:
    """Without ties a hundred samples fill ten bins with ten each."""
    found = calibration_error([0, 1] * 50, np.arange(100) / 1000, binning="equal_mass")
    assert [each.attack_rate.trials for each in found.bins] == [10] * 10


def test_a_score_of_one_falls_into_the_last_bin() -> None:
    """The top of the scale is no bin of its own."""
    found = calibration_error([1, 1], [0.95, 1.0])
    assert [(each.low, each.high) for each in found.bins] == [(0.95, 1.0)]


@pytest.mark.slow
@pytest.mark.parametrize(("samples", "top"), [(4, 1.0), (300, 0.3), (4000, 0.3), (6000, 0.004)])
def test_reference_is_what_perfect_calibration_shows(samples: int, top: float) -> None:
    """The exact expectation agrees with drawing labels from the scores."""
    rng = np.random.default_rng(11)
    scores = rng.uniform(0, top, samples)
    found = calibration_error(np.zeros(samples, bool), scores)
    drawn = [
        calibration_error(rng.random(samples) < scores, scores).value or 0.0 for _ in range(400)
    ]
    error = float(np.std(drawn)) / math.sqrt(400)
    assert found.reference == pytest.approx(float(np.mean(drawn)), abs=4 * error + 0.005 * top)


def test_correction_never_goes_below_zero() -> None:
    """A defense cannot be better calibrated than perfectly."""
    found = calibration_error([0, 1], [0.5, 0.5])
    assert found.value == 0
    assert found.reference is not None
    assert found.reference > 0
    assert found.corrected == 0


@pytest.mark.parametrize(
    ("labels", "scores", "said"),
    [([], [], "no samples"), ([1, 0], [0.2, 1.2], "[0, 1]"), ([1, 0], [-0.1, 1.0], "[0, 1]")],
)
def test_what_is_no_probability_is_undefined(
    labels: list[int], scores: list[float], said: str
) -> None:
    """A logit or a distance has an area but no calibration."""
    one, other = brier(labels, scores), calibration_error(labels, scores)
    assert (one.value, one.resolution, other.value, other.reference) == (None, None, None, None)
    assert said in one.reason
    assert said in other.reason
    assert other.bins == ()


@pytest.mark.parametrize("scores", [[0.1, math.nan], [0.1]])
def test_bad_scores_are_refused(scores: list[float]) -> None:
    """NaN scores and unequal lengths are no measurement."""
    with pytest.raises(ValueError, match=r"finite|lengths"):
        brier([1, 0], scores)


def test_bad_options_are_named() -> None:
    """The message says which option is wrong."""
    with pytest.raises(ValueError, match="bins"):
        brier([1], [0.5], bins=0)
    with pytest.raises(ValueError, match="bins"):
        calibration_error([1], [0.5], bins=0)
    with pytest.raises(ValueError, match="binning"):
        calibration_error([1], [0.5], binning="by_hand")
    with pytest.raises(ValueError, match="confidence"):
        calibration_error([1], [0.5], confidence=1.0)


def test_rows_that_share_their_label_err_by_chance_as_one_row_does() -> None:
    """400 groups of two equal rows show what 400 rows show, not what 800 do."""
    labels, scores = [at % 2 == 0 for at in range(400)], [0.5] * 400
    alone = calibration_error(labels, scores)
    twice = calibration_error(labels * 2, scores * 2, groups=[*range(400), *range(400)])
    assert twice.reference == pytest.approx(alone.reference, rel=1e-12)
    # E|B - 200| of a binomial B of 400 halves is 200 C(400, 200) / 2^400.
    exact = 200 * math.comb(400, 200) / 2**400 / 400
    assert alone.reference == pytest.approx(exact, rel=1e-3)
