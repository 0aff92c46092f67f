"""Tests of two defenses on the same samples: conventions and worked examples."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chi2

from guardmark.stats.paired.significance import mcnemar, sign_flip


def test_the_worked_example_of_the_literature() -> None:
    """7 against 1: the exact test keeps the null, the mid-p does not."""
    test = mcnemar(1, 7)
    assert test.p_exact == pytest.approx(0.0703, abs=5e-5)
    assert test.p_midp == pytest.approx(0.0391, abs=5e-5)


def test_no_discordant_pair_gives_1_and_says_so() -> None:
    """Two defenses that agree everywhere: a common library answers p = 0 here."""
    test = mcnemar(0, 0)
    assert {test.p_exact, test.p_midp, test.p_chi2, test.p_chi2_corrected} == {1.0}
    assert test.reason == "no discordant pair"


def test_an_even_split_is_no_evidence() -> None:
    """5 against 5: exact and both asymptotic p are 1, the mid-p just below."""
    test = mcnemar(5, 5)
    assert (test.p_exact, test.p_chi2, test.p_chi2_corrected) == (1.0, 1.0, 1.0)
    assert test.p_midp == pytest.approx(0.876953125)


def test_overwhelming_evidence_is_not_a_p_of_0() -> None:
    """A p value is a probability of something possible."""
    assert mcnemar(100_000, 0).p_midp > 0.0
    assert sign_flip([1] * 5000, [0] * 5000).p_midp > 0.0


@pytest.mark.parametrize("bad", [-1, 0.5, math.nan])
def test_impossible_counts_are_refused_by_name(bad: float) -> None:
    """Which of the two counts is wrong is told."""
    with pytest.raises(ValueError, match="second_only must be a whole number"):
        mcnemar(1, bad)  # type: ignore[arg-type]


def test_the_sign_flip_is_the_enumeration_of_all_signs() -> None:
    """The convolution gives what trying every sign gives."""
    generator = np.random.default_rng(5)
    for _ in range(60):
        groups = int(generator.integers(1, 10))
        first, second = generator.integers(0, 6, groups), generator.integers(0, 6, groups)
        gaps = [int(gap) for gap in first - second if gap]
        if not gaps:
            continue
        sums = np.array(
            [np.dot(signs, gaps) for signs in itertools.product((1, -1), repeat=len(gaps))]
        )
        beyond, at = np.abs(sums) > abs(sum(gaps)), np.abs(sums) == abs(sum(gaps))
        test = sign_flip(first, second)
        assert test.statistic == sum(gaps)
        assert test.p_exact == pytest.approx((beyond | at).mean(), rel=1e-12)
        assert test.p_midp == pytest.approx(beyond.mean() + at.mean() / 2, rel=1e-12)


@pytest.mark.parametrize(
    ("first", "second"), [(1, 0), (5, 3), (40, 40), (300, 180), (2000, 1500), (1000, 3)]
)
def test_one_sample_a_group_makes_it_mcnemar(first: int, second: int) -> None:
    """Both are the same question then, also far out in the tail."""
    flipped = sign_flip([1] * first + [0] * second, [0] * first + [1] * second)
    plain = mcnemar(first, second)
    assert flipped.p_exact == pytest.approx(plain.p_exact, rel=1e-9)
    assert flipped.p_midp == pytest.approx(plain.p_midp, rel=1e-9)


def test_variants_of_one_seed_are_one_piece_of_evidence() -> None:
    """Ten rewritings that all flip together say what one says."""
    assert sign_flip([10], [0]).p_exact == 1.0
    assert mcnemar(10, 0).p_exact < 0.01


def test_groups_that_cancel_inside_are_told_apart_from_agreement() -> None:
    """Discordant pairs exist, but in no group do they lean to a side; every p is 1 either way."""
    cancelled, agreed, none = (
        sign_flip([2, 1], [2, 1]),
        sign_flip([0, 0], [0, 0]),
        sign_flip([], []),
    )
    assert cancelled.reason == "in every group the discordant pairs cancel"
    assert agreed.reason == none.reason == "no discordant pair"
    for test in (cancelled, agreed, none):
        assert (test.statistic, test.groups, test.p_exact, test.p_midp) == (0, 0, 1.0, 1.0)


def test_hundreds_of_thousands_of_large_groups_are_no_obstacle() -> None:
    """The transform covers the width of the distribution, not its whole length."""
    generator = np.random.default_rng(1)
    first, second = generator.integers(0, 100, (2, 50_000))
    assert 0.0 < sign_flip(first, second).p_midp <= 1.0


def test_unequal_lengths_are_refused() -> None:
    """A group missing on one side would shift every later one."""
    with pytest.raises(ValueError, match="first_only 1, second_only 2"):
        sign_flip([1], [0, 1])


@pytest.mark.parametrize(("first", "second"), [(3, 14), (20, 6), (5, 5)])
def test_the_asymptotic_tests_are_chi_square(first: int, second: int) -> None:
    """With and without Edwards' correction, by scipy's distribution."""
    test, gap, pairs = mcnemar(first, second), abs(first - second), first + second
    assert test.p_chi2 == pytest.approx(chi2.sf(gap**2 / pairs, 1))
    assert test.p_chi2_corrected == pytest.approx(chi2.sf(max(0, gap - 1) ** 2 / pairs, 1))
