"""Average precision and partial areas: their intervals hold the figure, and groups widen them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.stats.scores.calibration import brier, calibration_error
from guardmark.stats.scores.curve_areas import average_precision, partial_auc, standardise_area

Row = tuple[bool, float, int]
rows = st.lists(
    st.tuples(st.booleans(), st.sampled_from([0.0, 0.1, 0.4, 0.5, 0.9, 1.0]), st.integers(0, 5)),
    min_size=1,
    max_size=40,
)


@given(given_rows=rows, grouped=st.booleans())
def test_every_interval_holds_its_figure_and_names_its_reason(
    given_rows: list[Row], *, grouped: bool
) -> None:
    """Whatever the scores, and with or without groups."""
    labels, scores, codes = zip(*given_rows, strict=True)
    groups = codes if grouped else None
    figures = (
        average_precision(labels, scores, groups=groups),
        partial_auc(labels, scores, max_fpr=0.1, groups=groups),
        standardise_area(partial_auc(labels, scores, max_fpr=0.1, groups=groups), max_fpr=0.1),
        brier(labels, scores, groups=groups),
        calibration_error(labels, scores, groups=groups),
        calibration_error(labels, scores, groups=groups, binning="equal_mass"),
    )
    for figure in figures:
        assert figure.trials == len(labels)
        if figure.value is None or figure.low is None or figure.high is None:
            assert figure.reason
        else:
            assert 0.0 <= figure.low <= figure.value + 1e-12
            assert figure.value <= figure.high + 1e-12 <= 1.0 + 2e-12


def test_copies_of_a_sample_tell_nothing_new() -> None:
    """Five copies of each row, named as groups, leave the interval nearly as wide as it was."""
    rng = np.random.default_rng(3)
    attack = np.arange(80) < 40
    score = np.clip(rng.normal(0.35, 0.15, 80) + 0.25 * attack, 0.0, 1.0)
    many = np.repeat(np.arange(80), 5)
    for measure in (average_precision, brier, calibration_error):
        alone = measure(attack, score)
        copied = measure(attack[many], score[many], groups=many)
        naive = measure(attack[many], score[many])
        assert copied.value == pytest.approx(alone.value)
        width, told, least = (each.high - each.low for each in (alone, copied, naive))  # type: ignore[operator]
        assert told == pytest.approx(width, rel=0.12)
        assert least < 0.7 * width


def test_the_spread_is_that_of_drawing_samples_again() -> None:
    """Influence against a bootstrap of rows within each class, ties and all."""
    rng = np.random.default_rng(4)
    attack = np.arange(600) < 200
    score = np.round(rng.normal(size=600) + 1.2 * attack, 1)
    sides = [np.flatnonzero(attack), np.flatnonzero(~attack)]

    def drawn(seed: int) -> tuple[float | None, float | None]:
        again = np.random.default_rng(seed)
        at = np.concatenate([again.choice(side, len(side)) for side in sides])
        area = partial_auc(attack[at], score[at], max_fpr=0.1)
        return average_precision(attack[at], score[at]).value, area.value

    spread = np.std([drawn(seed) for seed in range(300)], axis=0)
    precision, area = average_precision(attack, score), partial_auc(attack, score, max_fpr=0.1)
    for told, most, seen in ((precision, 1.0, spread[0]), (area, 0.1, spread[1])):
        assert told.value is not None
        assert told.low is not None
        assert told.high is not None
        ends = [math.log(each / (most - each)) for each in (told.low, told.high)]
        share = told.value / most
        error = (ends[1] - ends[0]) / 2 / 1.96 * share * (1 - share) * most
        assert error == pytest.approx(seen, rel=0.15)


def test_a_perfect_score_has_no_interval_but_a_reason() -> None:
    """An area at its end shows no variance, and one class shows nothing."""
    perfect = average_precision([1, 1, 0, 0], [0.9, 0.8, 0.2, 0.1])
    assert (perfect.value, perfect.low, perfect.high) == (1.0, None, None)
    assert "end" in perfect.reason
    assert partial_auc([1, 1, 0, 0], [0.9, 0.8, 0.2, 0.1], max_fpr=0.1).low is None
    assert (
        average_precision([1, 1], [0.9, 0.8]).reason
        == "scores need both attacks and benign samples"
    )


def test_even_perfect_scores_leave_doubt_about_their_calibration() -> None:
    """No error was seen in twenty samples: that is no certainty."""
    told = calibration_error([1] * 10 + [0] * 10, [1.0] * 10 + [0.0] * 10)
    assert (told.value, told.low) == (0.0, 0.0)
    assert told.high is not None
    assert told.high > 0.05
    score = brier([1] * 10 + [0] * 10, [1.0] * 10 + [0.0] * 10)
    assert score.high == pytest.approx(0.161, abs=0.001)
