"""F1 and its kin: values, intervals, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from guardmark.stats.drawing import DrawPlan
from guardmark.stats.figures import Ratio
from guardmark.stats.rates.clustered import (
    EffectiveCounts,
    effective_counts,
    summarise,
    wilson_default_rows,
)
from guardmark.stats.rates.proportion import wilson
from guardmark.stats.rates.ratios import (
    BALANCED_ERROR,
    CONFUSION_STATISTICS,
    F1,
    PRECISION,
    YOUDEN,
    Statistic,
    confidence_of_each,
    correlate,
    estimate_ratios,
    product_of_shares,
)


def of_counts(
    *counts: int, statistics: tuple[Statistic, ...] = CONFUSION_STATISTICS
) -> list[Ratio]:
    """Figures of attacks blocked and allowed, benign samples blocked and allowed, each alone."""
    hits, missed, alarms, passed = counts
    attacks = EffectiveCounts.of(wilson_default_rows(hits, hits + missed))
    benign = EffectiveCounts.of(wilson_default_rows(alarms, alarms + passed))
    return estimate_ratios(attacks, benign, statistics=statistics)


def of_groups(table: np.ndarray, *, confidence: float = 0.95) -> list[Ratio]:
    """Figures of the same four counts, one row a group."""
    attacks, benign = (
        effective_counts(summarise(table[:, at], table[:, at : at + 2].sum(axis=1)))
        for at in (0, 2)
    )
    return estimate_ratios(attacks, benign, correlation=correlate(table), confidence=confidence)


def groups(count: int = 60, seed: int = 2) -> np.ndarray:
    """Groups of five rows, half of attacks, half of benign samples."""
    generator = np.random.default_rng(seed)
    hits = generator.binomial(5, generator.beta(4, 1, count // 2))
    alarms = generator.binomial(5, generator.beta(1, 9, count // 2))
    nothing = np.zeros(count // 2, dtype=int)
    attack = np.stack([hits, 5 - hits, nothing, nothing], axis=1)
    return np.vstack([attack, np.stack([nothing, nothing, alarms, 5 - alarms], axis=1)])


def width(ratio: Ratio) -> float:
    """Distance of the limits."""
    assert ratio.low is not None
    assert ratio.high is not None
    return ratio.high - ratio.low


def test_the_figures_are_what_their_names_say() -> None:
    """8 of 10 attacks blocked, 1 of 20 benign samples."""
    precision, f1, error, youden, _ = (ratio.value for ratio in of_counts(8, 2, 1, 19))
    assert precision == pytest.approx(8 / 9)
    assert f1 == pytest.approx(16 / 19)
    assert error == pytest.approx((0.2 + 0.05) / 2)
    assert youden == pytest.approx(0.8 - 0.05)


def test_each_interval_holds_its_figure_and_has_width() -> None:
    """Grouped and ungrouped."""
    for ratio in [*of_groups(groups()), *of_counts(80, 20, 6, 94)]:
        assert ratio.low is not None
        assert ratio.value is not None
        assert ratio.high is not None
        assert -1.0 <= ratio.low < ratio.value < ratio.high <= 1.0
        assert (ratio.replicates, ratio.reason) == (2000, "")
        assert ratio.method == "beta draws at effective counts"


def test_rows_that_share_groups_widen_the_interval() -> None:
    """The same counts, once in groups and once not."""
    table = groups(200)
    grouped, plain = of_groups(table)[1], of_counts(*table.sum(axis=0).tolist())[1]
    assert grouped.value == plain.value
    assert (grouped.groups, plain.groups) == (200, 1000)
    assert width(grouped) > 1.2 * width(plain)


@pytest.mark.parametrize("counts", [[10, 0, 0, 20], [0, 10, 20, 0]])
def test_a_figure_at_its_bound_has_an_interval_that_ends_there(counts: list[int]) -> None:
    """A perfect defense is not known to be perfect, and its interval holds what it showed."""
    for ratio in of_counts(*counts, statistics=(F1, BALANCED_ERROR, YOUDEN)):
        assert ratio.value in {-1.0, 0.0, 1.0}
        assert ratio.value in {ratio.low, ratio.high}
        assert width(ratio) > 0.05


def test_an_empty_denominator_is_undefined_not_zero() -> None:
    """Nothing blocked: precision has nothing to be a share of."""
    precision = of_counts(0, 10, 0, 20, statistics=(PRECISION,))[0]
    assert (precision.value, precision.low) == (None, None)
    assert precision.reason == "precision has an empty denominator"


@pytest.mark.parametrize("counts", [[0, 0, 0, 0], [3, 1, 0, 0], [0, 0, 1, 5]])
def test_one_label_is_undefined(counts: list[int]) -> None:
    """Attacks without benign samples, benign samples without attacks, and nothing at all."""
    for ratio in of_counts(*counts):
        assert (ratio.value, ratio.low) == (None, None)
        assert ratio.reason == "both labels are needed"


def test_one_group_on_a_side_has_no_interval() -> None:
    """One benign seed with many variants shows nothing about other benign seeds."""
    table = np.array([[3, 1, 0, 0], [2, 2, 0, 0], [4, 0, 0, 0], [0, 0, 1, 9]])
    ratio = of_groups(table)[1]
    assert ratio.value is not None
    assert ratio.low is None
    assert "one group" in ratio.reason


def test_pairs_of_attack_and_twin_are_drawn_together() -> None:
    """A defense that blocks both or none: J varies less than two sides that know nothing."""
    generator = np.random.default_rng(4)
    blocked = (generator.random(200) < 0.5).astype(int)
    table = np.stack([blocked, 1 - blocked, blocked, 1 - blocked], axis=1)
    assert correlate(table) == pytest.approx(1.0)
    together, apart = of_groups(table)[3], of_counts(*table.sum(axis=0).tolist())[3]
    assert together.value == apart.value == 0.0
    assert width(together) < 0.1 * width(apart)


def test_groups_of_one_label_are_not_correlated() -> None:
    """Nothing links the sides."""
    assert correlate(groups()) == 0.0
    assert correlate([[1, 0, 1, 0]]) == 0.0
    assert correlate([[1, 0, 1, 0], [1, 0, 0, 1]]) == 0.0


def test_seed_and_confidence_do_what_they_say() -> None:
    """Same seed, same bytes; more confidence, more width."""
    usual = of_groups(groups())
    assert usual == of_groups(groups())
    for one, other in zip(usual, of_groups(groups(), confidence=0.99), strict=True):
        assert width(other) > width(one)
    sides = (
        EffectiveCounts.of(wilson_default_rows(8, 10)),
        EffectiveCounts.of(wilson_default_rows(1, 10)),
    )
    first, second = (estimate_ratios(*sides, drawing=DrawPlan(seed=seed)) for seed in (0, 1))
    assert first != second


def test_counts_of_another_shape_are_refused() -> None:
    """Four counts a group."""
    with pytest.raises(ValueError, match="shape"):
        correlate([[1, 2, 3]])


def test_two_intervals_hold_together_with_the_confidence_of_the_product() -> None:
    """Independent intervals each hold with the square root of what both are to hold with."""
    assert confidence_of_each(0.95) ** 2 == pytest.approx(0.95)
    with pytest.raises(ValueError, match="confidence"):
        confidence_of_each(1.0)


def test_a_product_of_shares_lies_in_the_rectangle_of_both_intervals() -> None:
    """Its limits are the products of the limits, its trials those of the first share."""
    each = confidence_of_each(0.95)
    first, second = wilson(30, 100, confidence=each), wilson(8, 10, confidence=each)
    product = product_of_shares(first, second, confidence=0.95)
    assert first.low is not None
    assert second.low is not None
    assert product.value == pytest.approx(0.3 * 0.8)
    assert product.low == pytest.approx(first.low * second.low)
    assert (product.method, product.trials, product.confidence) == ("rectangle", 100, 0.95)


def test_a_first_share_of_nothing_makes_the_product_nothing() -> None:
    """What never happened cannot have been read, however little is known of readers."""
    none, unknown = wilson(0, 50), wilson(0, 0)
    product = product_of_shares(none, unknown, confidence=0.95)
    assert (product.value, product.low, product.high) == (0.0, 0.0, none.high)


def test_an_undefined_share_leaves_the_product_undefined_with_its_reason() -> None:
    """Not zero: the reason says what is not known."""
    product = product_of_shares(wilson(3, 50), wilson(0, 0), confidence=0.95, reason="unread")
    assert (product.value, product.low, product.high) == (None, None, None)
    assert product.reason == "unread"
