"""Pairs for a comparison: by enumeration, and what a finished run could see."""

from __future__ import annotations

import pytest

from guardmark.stats.paired import mcnemar
from guardmark.stats.planning_paired import (
    detectable_difference,
    mcnemar_power,
    mcnemar_power_normal,
    pairs_for_difference,
    pairs_for_noninferiority,
)


@pytest.mark.parametrize(
    ("difference", "discordance", "pairs"),
    [(0.05, 0.10, 305), (0.02, 0.06, 1154), (0.02, 0.20, 3920), (0.10, 0.20, 152)],
)
def test_pairs_for_a_difference(difference: float, discordance: float, pairs: int) -> None:
    """The least number with 80 % power by the mid-p; one fewer has less."""
    assert pairs_for_difference(difference, discordance) == pairs
    small, large = (discordance - difference) / 2, (discordance + difference) / 2
    assert mcnemar_power(small, large, pairs=pairs).midp >= 0.8
    assert mcnemar_power(small, large, pairs=pairs - 1).midp < 0.8


def test_the_exact_test_needs_more() -> None:
    """Its conservatism is paid for in samples."""
    assert pairs_for_difference(0.05, 0.10, form="exact") > pairs_for_difference(0.05, 0.10)


def test_the_power_is_the_sum_over_all_tables() -> None:
    """Enumerate every table of 12 pairs with the reported test itself."""
    from math import comb

    small, large, n = 0.1, 0.5, 12
    midp = exact = 0.0
    for b in range(n + 1):
        for c in range(n + 1 - b):
            ways = comb(n, b) * comb(n - b, c)
            chance = ways * large**b * small**c * (1 - small - large) ** (n - b - c)
            test = mcnemar(b, c)
            midp += chance * (test.p_midp <= 0.05)
            exact += chance * (test.p_exact <= 0.05)
    power = mcnemar_power(small, large, pairs=n)
    assert (power.midp, power.exact) == pytest.approx((midp, exact), abs=1e-10)


def test_the_normal_value_is_near_for_many_pairs() -> None:
    """It is only the start of the search."""
    normal = mcnemar_power_normal(0.025, 0.075, pairs=305)
    assert normal == pytest.approx(mcnemar_power(0.025, 0.075, pairs=305).midp, abs=0.02)


def test_pairs_that_all_differ_one_way() -> None:
    """Five out of five is the least the mid-p calls a difference."""
    assert pairs_for_difference(1.0, 1.0) == 5
    assert mcnemar_power_normal(0.0, 1.0, pairs=5) == 1.0
    assert mcnemar_power_normal(0.0, 1.0, pairs=3) == 0.0


def test_where_power_comes_in_teeth_it_stays_reached() -> None:
    """With all pairs discordant one more pair may lower the power: the answer lies past that."""
    pairs = pairs_for_difference(0.5, 1.0)
    for more in range(20):
        assert mcnemar_power(0.25, 0.75, pairs=pairs + more).midp >= 0.8


@pytest.mark.parametrize(("margin", "pairs"), [(0.01, 1237), (0.02, 310)])
def test_pairs_for_not_worse(margin: float, pairs: int) -> None:
    """At a discordance of 2 %."""
    assert pairs_for_noninferiority(margin, 0.02) == pairs


def test_a_truly_worse_rate_needs_more_pairs_to_pass() -> None:
    """Half the margin is used up by a true difference."""
    assert pairs_for_noninferiority(0.02, 0.05, difference=0.01) > 3 * pairs_for_noninferiority(
        0.02, 0.05
    )


def test_the_detectable_difference_has_the_power_it_says() -> None:
    """And undoes the planning of pairs."""
    assert detectable_difference(305, 0.10) == pytest.approx(0.05, abs=2e-4)


def test_groups_and_few_pairs_hide_differences() -> None:
    """The smaller the worth of the pairs, the larger what went unseen."""
    plain, grouped = (
        detectable_difference(300, 0.1),
        detectable_difference(300, 0.1, design_effect=3.0),
    )
    assert plain is not None
    assert grouped is not None
    assert grouped > plain
    assert detectable_difference(4, 0.1) is None
    assert detectable_difference(0, 0.0) is None


def test_agreement_everywhere_still_has_a_detectable_difference() -> None:
    """No discordance seen: a difference would have brought its own."""
    assert detectable_difference(100, 0.0) == pytest.approx(0.0663, abs=1e-3)


@pytest.mark.parametrize(
    "question",
    [
        lambda: pairs_for_difference(0.2, 0.1),
        lambda: pairs_for_difference(0.0, 0.1),
        lambda: pairs_for_difference(0.0001, 0.5),
        lambda: pairs_for_noninferiority(0.01, 0.02, difference=0.01),
        lambda: pairs_for_noninferiority(0.01, 0.0),
        lambda: mcnemar_power(0.2, 0.1, pairs=10),
        lambda: mcnemar_power(0.0, 0.0, pairs=10),
        lambda: mcnemar_power(0.1, 0.2, pairs=0),
        lambda: detectable_difference(10, 0.1, design_effect=0.5),
        lambda: detectable_difference(10, 1.5),
    ],
)
def test_questions_without_an_answer_are_refused(question: object) -> None:
    """A difference cannot exceed the disagreement it is made of."""
    assert callable(question)
    with pytest.raises(ValueError, match=r"must|needed"):
        question()
