"""Laws that every comparison of two defenses obeys, from one table of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.alternatives import (
    benjamini_hochberg,
    benjamini_yekutieli,
    bonferroni,
    hochberg,
    miettinen_nurminen,
    newcombe,
    newcombe10,
)

from guardmark.core.estimate import Difference
from guardmark.stats.arguments import Counts
from guardmark.stats.multiplicity import holm
from guardmark.stats.paired.intervals import (
    PairedTable,
    bonett_price,
    clustered_bonett_price,
    tango,
)
from guardmark.stats.paired.noninferiority import noninferiority_clustered, noninferiority_tango
from guardmark.stats.paired.significance import mcnemar, sign_flip

Cells = tuple[int, int, int, int]
Groups = Sequence[tuple[int, int, int]]

paired = pytest.mark.parametrize(
    "interval", [bonett_price, tango, newcombe10], ids=lambda f: f.__name__
)
independent = pytest.mark.parametrize(
    "interval", [newcombe, miettinen_nurminen], ids=lambda f: f.__name__
)
adjustments = pytest.mark.parametrize(
    "adjust",
    [bonferroni, holm, hochberg, benjamini_hochberg, benjamini_yekutieli],
    ids=lambda f: f.__name__,
)

cells = st.tuples(*[st.integers(0, 300)] * 4).filter(lambda four: sum(four) > 0)
sides = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
families = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@st.composite
def group_lists(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Discordant pairs either way among all pairs, for two groups or more."""
    groups = []
    for size in draw(st.lists(st.integers(1, 10), min_size=2, max_size=25)):
        first = draw(st.integers(0, size))
        groups.append((first, draw(st.integers(0, size - first)), size))
    return groups


def table(four: Cells) -> PairedTable:
    """The four cells in the usual order."""
    both, first_only, second_only, neither = four
    return PairedTable(both=both, first_only=first_only, second_only=second_only, neither=neither)


def grouped(groups: Groups) -> Difference:
    """Compare two defenses on groups."""
    first, second, sizes = zip(*groups, strict=True)
    return clustered_bonett_price(first, second, sizes=sizes)


def bounds(estimate: Difference) -> tuple[float, float]:
    """Both bounds of a defined difference."""
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


@paired
@given(four=cells)
def test_a_paired_interval_holds_its_difference(
    interval: Callable[..., Difference], four: Cells
) -> None:
    """Within -1 and 1, with a p in (0, 1]."""
    estimate = interval(table(four))
    low, high = bounds(estimate)
    assert estimate.value is not None
    assert -1.0 <= low <= estimate.value <= high <= 1.0
    assert estimate.p_value is not None
    assert 0.0 < estimate.p_value <= 1.0


@paired
@given(four=cells)
def test_exchanging_the_defenses_changes_the_sign_only(
    interval: Callable[..., Difference], four: Cells
) -> None:
    """First minus second, or second minus first."""
    one, other = interval(table(four)), interval(table((four[0], four[2], four[1], four[3])))
    low, high = bounds(one)
    other_low, other_high = bounds(other)
    assert (low, high) == pytest.approx((-other_high, -other_low), abs=1e-9)
    assert one.p_value == pytest.approx(other.p_value)


@paired
@given(four=cells)
def test_a_run_compared_with_itself_finds_nothing(
    interval: Callable[..., Difference], four: Cells
) -> None:
    """No discordant pair: difference 0, p 1, and still an interval of some width."""
    same = interval(table((four[0] + 1, 0, 0, four[3])))
    low, high = bounds(same)
    assert (same.value, same.p_value) == (0.0, 1.0)
    assert low < 0.0 < high


@given(groups=group_lists())
def test_a_grouped_difference_is_around_its_value(groups: Groups) -> None:
    """Within -1 and 1, with a p in (0, 1]."""
    estimate = grouped(groups)
    low, high = bounds(estimate)
    assert estimate.value is not None
    assert -1.0 <= low <= estimate.value <= high <= 1.0
    assert estimate.p_value is not None
    assert 0.0 < estimate.p_value <= 1.0


@given(groups=group_lists(), data=st.data())
def test_groups_may_come_in_any_order(groups: Groups, data: st.DataObject) -> None:
    """And exchanging the defenses changes the sign only."""
    one, other = grouped(groups), grouped(data.draw(st.permutations(groups)))
    assert one.p_value == pytest.approx(other.p_value)
    assert bounds(one) == pytest.approx(bounds(other), abs=1e-9)
    swapped = grouped([(second, first, size) for first, second, size in groups])
    assert one.p_value == pytest.approx(swapped.p_value)
    assert bounds(one) == pytest.approx(tuple(-end for end in reversed(bounds(swapped))), abs=1e-9)


@given(first=st.integers(0, 400), second=st.integers(0, 400))
def test_mid_p_lies_below_exact_and_above_half_of_it(first: int, second: int) -> None:
    """It takes away half of one term, no more."""
    test = mcnemar(first, second)
    assert test.p_exact / 2 - 1e-12 <= test.p_midp <= test.p_exact
    assert test.p_chi2 <= test.p_chi2_corrected


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=40), st.integers(1, 5))
def test_the_sign_flip_depends_on_differences_up_to_scale(gaps: list[int], factor: int) -> None:
    """Pairs that cancel inside a group, and a common factor, change nothing."""
    first, second = [max(gap, 0) for gap in gaps], [max(-gap, 0) for gap in gaps]
    plain = sign_flip(first, second)
    shifted = sign_flip(
        [factor * value + 3 for value in first], [factor * value + 3 for value in second]
    )
    assert shifted.p_exact == pytest.approx(plain.p_exact, rel=1e-9)
    assert shifted.p_midp == pytest.approx(plain.p_midp, rel=1e-9)


@given(groups=group_lists(), margin=st.floats(0.001, 0.5))
def test_a_wider_margin_is_easier_to_keep(groups: Groups, margin: float) -> None:
    """Non-inferiority and equivalence, grouped."""
    first, second, sizes = zip(*groups, strict=True)
    narrow = noninferiority_clustered(first, second, sizes=sizes, margin=margin)
    wide = noninferiority_clustered(first, second, sizes=sizes, margin=margin + 0.1)
    assert narrow.p_noninferior is not None
    assert wide.p_noninferior is not None
    assert wide.p_noninferior <= narrow.p_noninferior + 1e-12
    assert narrow.p_equivalent is not None
    assert narrow.p_equivalent >= narrow.p_noninferior


@given(four=cells, margin=st.floats(0.001, 0.5))
def test_noninferiority_worsens_with_each_new_false_alarm(four: Cells, margin: float) -> None:
    """One more pair where only the first was wrong is evidence against it."""
    pairs = sum(four) + 1
    less = noninferiority_tango(four[1], four[2], pairs=pairs, margin=margin)
    more = noninferiority_tango(four[1] + 1, four[2], pairs=pairs, margin=margin)
    assert less.p_noninferior is not None
    assert more.p_noninferior is not None
    assert more.p_noninferior >= less.p_noninferior - 1e-12


@independent
@given(first=sides, second=sides)
def test_an_independent_interval_holds_its_difference_and_mirrors(
    interval: Callable[..., Difference], first: tuple[int, int], second: tuple[int, int]
) -> None:
    """Also with rates of 0 and 1 on both sides."""
    one = interval(Counts(*first), Counts(*second))
    other = interval(Counts(*second), Counts(*first))
    low, high = bounds(one)
    assert one.value is not None
    assert -1.0 <= low <= one.value + 1e-12
    assert one.value - 1e-12 <= high <= 1.0
    assert (low, high) == pytest.approx(tuple(-end for end in reversed(bounds(other))), abs=1e-8)
    assert one.p_value is not None
    assert 0.0 < one.p_value <= 1.0


@adjustments
@given(family=families)
def test_adjusting_never_strengthens_a_claim(
    adjust: Callable[..., list[float]], family: list[float]
) -> None:
    """Between the raw p and 1, in the same order."""
    adjusted = adjust(family)
    assert all(raw <= new + 1e-15 for raw, new in zip(family, adjusted, strict=True))
    assert all(new <= 1.0 for new in adjusted)
    pairs = sorted(zip(family, adjusted, strict=True))
    assert all(one[1] <= two[1] + 1e-15 for one, two in pairwise(pairs))


@adjustments
@given(family=families, data=st.data())
def test_the_order_of_tests_does_not_matter(
    adjust: Callable[..., list[float]], family: list[float], data: st.DataObject
) -> None:
    """Defenses are listed in any order."""
    order = data.draw(st.permutations(range(len(family))))
    adjusted = adjust(family)
    shuffled = adjust([family[place] for place in order])
    assert shuffled == pytest.approx([adjusted[place] for place in order])


@given(family=families)
def test_holm_lies_between_hochberg_and_bonferroni(family: list[float]) -> None:
    """Stronger than the one without more assumptions than the other."""
    for low, mid, high in zip(hochberg(family), holm(family), bonferroni(family), strict=True):
        assert low is not None
        assert mid is not None
        assert high is not None
        assert low <= mid + 1e-15 <= high + 2e-15
