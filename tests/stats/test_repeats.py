"""How much of the spread comes from asking again."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.stats.repeats import best_repeats, decompose_repeats

answers = st.integers(2, 6).flatmap(
    lambda r: st.tuples(st.lists(st.integers(0, r), min_size=2, max_size=30), st.just(r))
)


@given(answers)
def test_the_standard_error_covers_both_parts(pair: tuple[list[int], int]) -> None:
    """Between plus within over repeats is what the means of the samples show."""
    found = decompose_repeats(pair[0], repeats=pair[1])
    assert found.between is not None
    assert found.within is not None
    assert found.standard_error is not None
    total = found.between + found.within / pair[1]
    if found.between > 0:
        assert found.standard_error**2 * len(pair[0]) == pytest.approx(total, abs=1e-12)
    assert found.within >= 0


def test_answers_that_never_flip_vary_between_samples_alone() -> None:
    """A deterministic defense has no variance within."""
    found = decompose_repeats([0, 3, 3, 0], repeats=3)
    assert (found.within, found.flip_rate, found.disagreement, found.icc) == (0.0, 0.0, 0.0, 1.0)


def test_coins_vary_within_alone() -> None:
    """Samples that are all alike have no variance between."""
    found = decompose_repeats([2, 2, 2], repeats=4)
    assert (found.between, found.icc, found.flip_rate) == (0.0, 0.0, 1.0)
    assert best_repeats(found, sample_cost=2.0) is None


def test_nothing_varies_has_no_icc() -> None:
    """A share of nothing is undefined."""
    assert decompose_repeats([0, 0], repeats=3).icc is None


def test_disagreement_is_the_chance_that_two_answers_differ() -> None:
    """Of the six pairs among four answers with one bypass, three differ."""
    assert decompose_repeats([1], repeats=4).disagreement == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("successes", "repeats", "said"),
    [([], 3, "no samples"), ([1, 0], 1, "one answer"), ([1], 3, "one sample")],
)
def test_too_little_is_undefined_with_a_reason(
    successes: list[int], repeats: int, said: str
) -> None:
    """What cannot be seen is None, what can is given."""
    found = decompose_repeats(successes, repeats=repeats)
    assert found.between is None
    assert said in found.reason
    assert (found.mean is None) == (not successes)
    assert best_repeats(found) is None


def test_parts_are_found_again_in_drawn_data() -> None:
    """Beta chances with known variance, five answers each."""
    rng = np.random.default_rng(9)
    chances = rng.beta(1, 3, 20_000)
    found = decompose_repeats(rng.binomial(5, chances), repeats=5)
    assert found.between == pytest.approx(3 / 16 / 5, rel=0.05)
    assert found.within == pytest.approx(3 / 16 * 4 / 5, rel=0.05)


def test_more_samples_beat_more_repeats_unless_samples_are_dear() -> None:
    """With free samples one answer each is best; with dear ones more."""
    found = decompose_repeats([5, 0, 3, 5, 2, 0, 0, 4], repeats=5)
    assert best_repeats(found) == 1
    assert best_repeats(found, sample_cost=100.0) == 8


@pytest.mark.parametrize(("successes", "repeats"), [([4], 3), ([-1], 3), ([1], 0), ([0.5], 3)])
def test_counts_that_do_not_fit_are_refused(successes: list[float], repeats: int) -> None:
    """More successes than answers is a mistake of the caller."""
    with pytest.raises(ValueError, match=r"successes|repeats"):
        decompose_repeats(successes, repeats=repeats)


@pytest.mark.parametrize("cost", [-1.0, math.nan])
def test_a_cost_below_zero_is_refused(cost: float) -> None:
    """Samples are not given money for."""
    with pytest.raises(ValueError, match="sample_cost"):
        best_repeats(decompose_repeats([1, 2], repeats=3), sample_cost=cost)
