"""F1 and its kin: values, intervals, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from guardmark.stats.rates.bootstrap import BootstrapSettings, Statistic, bootstrap, count_patterns
from guardmark.stats.rates.ratios import (
    BALANCED_ERROR,
    F1,
    PRECISION,
    YOUDEN,
    estimate_ratios,
    estimate_ungrouped_ratios,
)


def groups(count: int = 60, seed: int = 2) -> np.ndarray:
    """Groups of five rows, half of attacks, half of benign samples."""
    generator = np.random.default_rng(seed)
    hits = generator.binomial(5, generator.beta(4, 1, count // 2))
    alarms = generator.binomial(5, generator.beta(1, 9, count // 2))
    nothing = np.zeros(count // 2, dtype=int)
    attack = np.stack([hits, 5 - hits, nothing, nothing], axis=1)
    return np.vstack([attack, np.stack([nothing, nothing, alarms, 5 - alarms], axis=1)])


def test_the_figures_are_what_their_names_say() -> None:
    """8 of 10 attacks blocked, 1 of 20 benign samples."""
    precision, f1, error, youden, _ = (
        ratio.value for ratio in estimate_ungrouped_ratios([8, 2, 1, 19])
    )
    assert precision == pytest.approx(8 / 9)
    assert f1 == pytest.approx(16 / 19)
    assert error == pytest.approx((0.2 + 0.05) / 2)
    assert youden == pytest.approx(0.8 - 0.05)


def test_each_interval_holds_its_figure_and_has_width() -> None:
    """Grouped and ungrouped."""
    for ratio in [*estimate_ratios(groups()), *estimate_ungrouped_ratios([80, 20, 6, 94])]:
        assert ratio.low is not None
        assert ratio.value is not None
        assert ratio.high is not None
        assert -1.0 <= ratio.low < ratio.value < ratio.high <= 1.0
        assert (ratio.replicates, ratio.reason) == (2000, "")
        assert ratio.method == "cluster_bootstrap_bca"


def test_rows_that_share_groups_widen_the_interval() -> None:
    """The same counts, once in groups and once not."""
    table = groups(200)
    grouped = estimate_ratios(table, statistics=[F1])[0]
    plain = estimate_ungrouped_ratios(table.sum(axis=0).tolist(), statistics=[F1])[0]
    assert grouped.value == plain.value
    assert (grouped.groups, plain.groups) == (200, 1000)
    assert grouped.high is not None
    assert grouped.low is not None
    assert plain.high is not None
    assert plain.low is not None
    assert grouped.high - grouped.low > 1.2 * (plain.high - plain.low)


@pytest.mark.parametrize("counts", [[10, 0, 0, 20], [0, 10, 20, 0]])
def test_a_figure_at_its_bound_has_no_interval(counts: list[int]) -> None:
    """Every resample of a perfect defense is perfect: that is not certainty."""
    for ratio in estimate_ungrouped_ratios(counts, statistics=[F1, BALANCED_ERROR, YOUDEN]):
        assert ratio.value in {-1.0, 0.0, 1.0}
        assert (ratio.low, ratio.high) == (None, None)
        assert "bound" in ratio.reason


def test_an_empty_denominator_is_undefined_not_zero() -> None:
    """Nothing blocked: precision has nothing to be a share of."""
    precision = estimate_ungrouped_ratios([0, 10, 0, 20], statistics=[PRECISION])[0]
    assert (precision.value, precision.low) == (None, None)
    assert precision.reason == "precision has an empty denominator"


def test_no_groups_are_undefined() -> None:
    """Nothing answered at all."""
    for ratio in estimate_ungrouped_ratios([0, 0, 0, 0]):
        assert (ratio.value, ratio.groups) == (None, 0)
        assert ratio.reason == "no groups"


def test_one_group_in_a_stratum_has_no_interval() -> None:
    """One benign seed with many variants shows nothing about other benign seeds."""
    table = [[3, 1, 0, 0], [2, 2, 0, 0], [4, 0, 0, 0], [0, 0, 1, 9]]
    ratio = estimate_ratios(table, statistics=[F1])[0]
    assert ratio.value is not None
    assert ratio.low is None
    assert "one group" in ratio.reason


def test_a_figure_that_resampling_often_loses_has_no_interval() -> None:
    """A precision that hangs on two blocked samples is gone in many resamples."""
    precision = estimate_ungrouped_ratios([1, 30, 1, 30], statistics=[PRECISION])[0]
    assert precision.value == 0.5
    assert precision.low is None
    assert "1 %" in precision.reason


def test_a_figure_that_every_resample_lowers_has_no_interval() -> None:
    """The estimate would lie outside its own interval."""
    table = np.random.default_rng(3).integers(0, 10**6, (100, 4))
    totals = table.sum(axis=0)

    def nearness(drawn: np.ndarray) -> np.ndarray:
        return 0.9 / (1.0 + np.abs(drawn - totals).sum(axis=1) / 1e8)

    statistic = Statistic(name="nearness", figure=nearness)
    ratio = bootstrap([count_patterns(table)], [statistic])[0]
    assert (ratio.value, ratio.low) == (0.9, None)
    assert "hangs on single groups" in ratio.reason


def test_groups_of_both_labels_stay_together() -> None:
    """An attack and its harmless twin are drawn as one."""
    table = np.array([[1, 0, 0, 1], [0, 1, 1, 0], [1, 0, 1, 0], [1, 0, 0, 1]] * 10)
    ratio = estimate_ratios(table, statistics=[F1])[0]
    assert ratio.groups == 40
    assert ratio.low is not None


def test_seed_and_confidence_do_what_they_say() -> None:
    """Same seed, same bytes; more confidence, more width."""
    usual = estimate_ratios(groups())
    assert usual == estimate_ratios(groups())
    wide = estimate_ratios(groups(), settings=BootstrapSettings(confidence=0.99))
    for one, other in zip(usual, wide, strict=True):
        assert one.low is not None
        assert other.low is not None
        assert other.low < one.low


def test_too_few_replicates_are_refused() -> None:
    """The ends of a 95 % interval would rest on a handful of resamples."""
    with pytest.raises(ValueError, match="replicates must be at least 2000"):
        BootstrapSettings(replicates=200)


def test_counts_of_another_shape_are_refused() -> None:
    """Four counts a group, and four of all."""
    with pytest.raises(ValueError, match="shape"):
        estimate_ratios([[1, 2, 3]])
    with pytest.raises(ValueError, match="four"):
        estimate_ungrouped_ratios([1, 2])
