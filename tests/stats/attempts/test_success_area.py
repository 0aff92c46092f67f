"""The area under ASR@k on log k, against the trapezoids it stands for."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guardmark.stats.attempts.success_area import area_difference, areas_of, success_area

BUDGET = 64
ends = st.lists(st.one_of(st.none(), st.integers(0, BUDGET)), min_size=1, max_size=40)


def columns(firsts: list[int | None]) -> tuple[list[int], list[bool]]:
    """First tries and whether there was one."""
    return [f or 0 for f in firsts], [f is not None for f in firsts]


def by_trapezoids(firsts: list[int | None], budget: int) -> float:
    """Draw ASR@k at every k over log k, join the dots, and measure what lies below."""
    k = np.arange(1, budget + 1)
    curve = [np.mean([f is not None and f <= at for f in firsts]) for at in k]
    return float(np.trapezoid(curve, np.log(k)) / np.log(budget))


@given(ends)
def test_it_is_the_area_of_the_drawn_curve(firsts: list[int | None]) -> None:
    """The closed form equals numpy's trapezoids over the whole curve."""
    area = success_area(*columns(firsts), budget=BUDGET)
    assert area.value == pytest.approx(by_trapezoids(firsts, BUDGET), abs=1e-12)
    assert area.trials == len(firsts)


def test_values_by_hand() -> None:
    """At the first try 1; at the second half of the first step is lost; never 0."""
    areas = areas_of([0, 1, 2, 4, 4], [True, True, True, True, False], budget=4)
    last = 1 - (math.log(4) + math.log(3)) / (2 * math.log(4))
    assert areas.tolist() == pytest.approx([1, 1, 0.75, last, 0])


@given(ends, st.integers(0, BUDGET))
def test_an_earlier_bypass_never_lowers_it(firsts: list[int | None], try_: int) -> None:
    """The more gets through and the sooner, the larger the area."""
    before = success_area(*columns(firsts), budget=BUDGET).value
    worst = [try_ if f is None or f > try_ else f for f in firsts]
    after = success_area(*columns(worst), budget=BUDGET).value
    assert before is not None
    assert after is not None
    assert after >= before - 1e-12


def test_an_unbroken_defense_has_an_upper_limit() -> None:
    """Zero is a figure with a bound, not certainty; no attacks give nothing."""
    none = success_area([0] * 30, [False] * 30, budget=16)
    assert (none.value, none.low) == (0, 0)
    assert none.high == pytest.approx(0.1135, abs=1e-3)  # Wilson, 0 of 30
    empty = success_area([], [], budget=16)
    assert (empty.value, empty.low, empty.high, empty.reason) == (None, None, None, "no samples")


def test_variants_of_one_attack_are_not_counted_as_many() -> None:
    """Doubling every attack within its group leaves the interval as wide; apart it would shrink."""
    firsts, reached = [1, 3, 9, 0, 20, 40, 2, 7], [True] * 7 + [False]
    once = success_area(firsts, reached, budget=BUDGET, groups=range(8))
    twice = success_area(firsts * 2, reached * 2, budget=BUDGET, groups=list(range(8)) * 2)
    assert (twice.value, twice.groups) == (pytest.approx(once.value), 8)
    assert (twice.low, twice.high) == pytest.approx((once.low, once.high))


def test_one_group_gives_no_interval() -> None:
    """Nothing shows how groups differ."""
    one = success_area([1, 9], [True, True], budget=16, groups=["a", "a"])
    assert one.value is not None
    assert (one.low, one.high) == (None, None)
    assert "two groups" in one.reason


@pytest.mark.parametrize(
    ("firsts", "reached", "budget"),
    [([1], [True], 1), ([9], [True], 8), ([1, 2], [True], 8), ([-1], [True], 8)],
)
def test_what_is_no_history_is_refused(firsts: list[int], reached: list[bool], budget: int) -> None:
    """A budget without width, a try behind it, columns of two lengths, a negative count."""
    with pytest.raises(ValueError, match=r"budget|length|at least 0"):
        areas_of(firsts, reached, budget=budget)


def by_all_signs(first: np.ndarray, second: np.ndarray, codes: list[int]) -> float:
    """Return the mid-p over every sign assignment of the groups' summed differences."""
    sums = np.rint(np.bincount(codes, weights=first - second) * 1000)
    observed = abs(sums.sum())
    totals = np.array([abs(np.dot(signs, sums)) for signs in product((1, -1), repeat=len(sums))])
    return float((totals > observed).mean() + 0.5 * (totals == observed).mean())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 16), st.integers(0, 16)), min_size=2, max_size=9))
def test_the_test_is_that_of_all_permutations(pairs: list[tuple[int, int]]) -> None:
    """The exact mid-p equals one summed over all 2^K exchanges of the two defenses."""
    first = areas_of([a for a, _ in pairs], [True] * len(pairs), budget=16)
    second = areas_of([b for _, b in pairs], [True] * len(pairs), budget=16)
    codes = [i // 2 for i in range(len(pairs))]
    found = area_difference(first, second, groups=codes)
    sums = np.rint(np.bincount(codes, weights=first - second) * 1000)
    if len(set(codes)) > 1 and not sums.any():
        assert found.p_value == 1  # by convention: nothing differs
    elif len(set(codes)) > 1:
        assert found.p_value == pytest.approx(by_all_signs(first, second, codes), abs=1e-9)
        assert found.test == "sign_flip_midp"
    else:
        assert found.p_value is None


def test_a_comparison_with_oneself_finds_nothing() -> None:
    """No difference, p of 1, and no interval pretended."""
    areas = areas_of([1, 5, 9, 0], [True, True, False, True], budget=16)
    same = area_difference(areas, areas)
    assert (same.value, same.p_value) == (0, 1)
    assert (same.low, same.high) == (None, None)
    assert same.reason


def test_a_clear_difference_is_found_and_its_sign_told() -> None:
    """First minus second: the first falls sooner."""
    first = areas_of([1] * 12, [True] * 12, budget=16)
    second = areas_of([1, 8, 9, 10] * 3, [True] * 12, budget=16)
    found = area_difference(first, second, groups=range(12))
    assert found.value is not None
    assert found.low is not None
    assert found.p_value is not None
    assert found.value > 0
    assert found.low > 0
    assert found.p_value < 0.01


def test_no_attacks_in_common_is_undefined() -> None:
    """Not zero, and no test."""
    none = np.array([])
    found = area_difference(none, none)
    assert (found.value, found.p_value, found.pairs) == (None, None, 0)
