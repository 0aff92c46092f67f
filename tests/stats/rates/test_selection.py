"""The highest of many rates, allowing for the choice."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import betainc, betaln

from guardmark.stats.rates.clustered import (
    EffectiveCounts,
    effective_counts,
    summarise,
    wilson_default_rows,
)
from guardmark.stats.rates.proportion import wilson, wilson_limits
from guardmark.stats.rates.selection import rate_of_chosen


def rows(*pairs: tuple[int, int]) -> list[EffectiveCounts]:
    """Slices of ungrouped rows."""
    return [EffectiveCounts.of(wilson_default_rows(hits, trials)) for hits, trials in pairs]


def test_slices_that_differ_by_chance_are_drawn_together() -> None:
    """The highest of twenty slices of one rate keeps little of its lead."""
    hits = np.random.default_rng(3).binomial(40, 0.2, 20)
    chosen = rate_of_chosen(rows(*((int(each), 40) for each in hits)))
    assert chosen is not None
    assert chosen.at == int(hits.argmax())
    assert chosen.rate.value is not None
    assert chosen.rate.low is not None
    assert chosen.rate.high is not None
    assert chosen.rate.value < (hits.max() / 40 + 0.2) / 2
    assert chosen.rate.low < 0.2 < chosen.rate.high


def test_a_slice_that_differs_for_sure_keeps_its_rate() -> None:
    """Much data needs no help from its neighbours."""
    chosen = rate_of_chosen(rows((90, 900), (110, 900), (95, 900), (450, 900)))
    assert chosen is not None
    assert chosen.at == 3
    assert chosen.rate.value == pytest.approx(0.5, abs=0.01)
    assert chosen.rate.low is not None
    assert chosen.rate.low > 0.45


def test_a_small_slice_does_not_outrank_a_large_one_by_chance() -> None:
    """Three of four says less than sixty of a hundred."""
    chosen = rate_of_chosen(rows((60, 100), (3, 4), (20, 100), (25, 100), (22, 100)))
    assert chosen is not None
    assert chosen.at == 0


def test_groups_make_a_slice_worth_less() -> None:
    """Rows of few families pull less than as many rows by themselves."""
    others = rows((20, 100), (22, 100), (18, 100), (21, 100))
    families = effective_counts(summarise([10, 10, 10, 10, 0, 0, 0, 0, 0, 0], [10] * 10))
    alone = rate_of_chosen([*others, *rows((40, 100))])
    grouped = rate_of_chosen([*others, families])
    assert alone is not None
    assert grouped is not None
    assert grouped.rate.groups == 10
    assert (grouped.rate.value or 1.0) < (alone.rate.value or 0.0)


def test_limits_hold_the_value_at_the_ends() -> None:
    """No event at all, and events alone."""
    for hits in (0, 50):
        chosen = rate_of_chosen(rows((hits, 50), (hits, 50), (hits, 50)))
        assert chosen is not None
        low, value, high = chosen.rate.low, chosen.rate.value, chosen.rate.high
        assert low is not None
        assert value is not None
        assert high is not None
        assert 0 <= low <= value <= high <= 1


def test_one_slice_is_no_choice() -> None:
    """Nor are slices whose rows nobody can weigh."""
    one_group = effective_counts(summarise([3], [9]))
    assert rate_of_chosen(rows((3, 9))) is None
    assert rate_of_chosen([*rows((3, 9)), one_group]) is None
    assert rate_of_chosen([]) is None
    with pytest.raises(ValueError, match="confidence"):
        rate_of_chosen(rows((1, 2), (2, 3)), confidence=1.0)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_limits_are_those_of_the_posterior_on_a_dense_grid(confidence: float) -> None:
    """The same model summed plainly: 3,600 pairs of mean and spread, no grid that closes in."""
    pairs = [(8, 20), (10, 30), (3, 25), (14, 40)]
    chosen = rate_of_chosen(rows(*pairs), confidence=confidence)
    assert chosen is not None
    mean, root = np.meshgrid((np.arange(60) + 0.5) / 60, (np.arange(60) + 0.5) / 60)
    size = 1.0 / root.ravel() ** 2 - 1.0
    a, b = mean.ravel() * size, (1.0 - mean.ravel()) * size
    logs = sum(betaln(hits + a, trials - hits + b) - betaln(a, b) for hits, trials in pairs)
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    hits, trials = pairs[chosen.at]

    def share_below(rate: float) -> float:
        return float(betainc(hits + a, trials - hits + b, rate) @ weight)

    tail = (1.0 - confidence) / 2.0
    means = [float((h + a) / (n + a + b) @ weight) for h, n in pairs]
    assert chosen.at == int(np.argmax(means))
    assert chosen.rate.confidence == confidence
    assert chosen.rate.trials == trials
    assert chosen.rate.value == pytest.approx(max(means), abs=5e-4)
    assert chosen.rate.low == pytest.approx(brentq(lambda r: share_below(r) - tail, 0, 1), abs=1e-3)
    own = effective_counts(summarise([1] * hits + [0] * (trials - hits), [1] * trials))
    upper = wilson_limits(hits / trials, own.n_eff, z=own.quantile(confidence)).high
    assert chosen.rate.high == pytest.approx(
        max(upper, brentq(lambda r: share_below(r) - 1.0 + tail, 0, 1)), abs=1e-3
    )


def test_two_slices_are_a_choice() -> None:
    """The least there is to choose from."""
    chosen = rate_of_chosen(rows((3, 30), (9, 30)))
    assert chosen is not None
    assert chosen.at == 1


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_a_confidence_outside_its_range_is_named(confidence: float) -> None:
    """Ninety-five is not a probability."""
    with pytest.raises(ValueError, match=r"^confidence"):
        rate_of_chosen(rows((3, 30), (9, 30)), confidence=confidence)


def test_the_lowest_of_alike_slices_is_drawn_back_to_them() -> None:
    """A figure that is printed since it is the smallest is flattered; its limits allow for that."""
    hits = np.random.default_rng(5).binomial(400, 0.2, 10)
    counts = rows(*((int(each), 400) for each in hits))
    chosen = rate_of_chosen(counts, at=int(hits.argmin()), is_lowest=True, shares_samples=True)
    assert chosen is not None
    found = chosen.rate
    assert found.value is not None
    assert found.high is not None
    assert found.value > hits.min() / 400 + 0.01
    assert found.high > 0.2


def test_what_cannot_be_weighed_has_no_rate_after_a_choice() -> None:
    """One slice is no choice, and one group shows nothing of how groups differ."""
    one_group = effective_counts(summarise([3], [9]))
    assert rate_of_chosen(rows((3, 9)), at=0, shares_samples=True) is None
    assert rate_of_chosen([*rows((3, 9), (2, 9)), one_group], at=2, shares_samples=True) is None


@pytest.mark.parametrize("shares_samples", [False, True])
def test_the_lowest_is_the_highest_of_what_did_not_happen(*, shares_samples: bool) -> None:
    """Both ends are one computation."""
    hits = (12, 5, 9, 20)
    low = rate_of_chosen(
        rows(*((each, 60) for each in hits)), is_lowest=True, shares_samples=shares_samples
    )
    high = rate_of_chosen(rows(*((60 - each, 60) for each in hits)), shares_samples=shares_samples)
    assert low is not None
    assert high is not None
    assert low.at == high.at == 1
    assert low.rate.method.startswith("lowest of 4")
    limits = (high.rate.low, high.rate.value, high.rate.high)
    assert (low.rate.high, low.rate.value, low.rate.low) == pytest.approx(
        tuple(1.0 - (each or 0.0) for each in limits)
    )


def test_candidates_of_the_same_samples_are_held_to_the_error_of_one_of_so_many() -> None:
    """5 of 100 as the lowest of ten alike: Wilson's upper limit at 99.5 %, its own lower one."""
    counts = rows(*((each, 100) for each in (5, 10, 10, 10, 10, 10, 10, 10, 10, 10)))
    chosen = rate_of_chosen(counts, is_lowest=True, shares_samples=True)
    assert chosen is not None
    assert chosen.at == 0
    assert chosen.rate.low == pytest.approx(wilson(5, 100).low)
    assert chosen.rate.high == pytest.approx(wilson(5, 100, confidence=0.995).high)
