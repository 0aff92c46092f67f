"""Differences and tests of pairs, from their formulas, against sums over every case."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.app.verify.formulas.paired import (
    detectable,
    difference,
    flipped,
    holm,
    is_not_worse,
    marked,
)
from guardmark.stats.paired.intervals import clustered_bonett_price
from guardmark.stats.paired.noninferiority import noninferiority_clustered

ROWS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.booleans(), st.booleans()), min_size=1, max_size=40
)


@given(st.lists(st.integers(-6, 6), max_size=9))
def test_the_test_is_the_share_of_all_signs(differences: list[int]) -> None:
    """Every way to turn the groups' signs, counted one by one; ties count half."""
    observed = abs(sum(differences))
    sums = [
        sum(sign * each for sign, each in zip(signs, differences, strict=True))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    beyond = sum(abs(each) > observed for each in sums) / len(sums)
    level = sum(abs(each) == observed for each in sums) / len(sums)
    expected = 1.0 if not any(differences) else beyond + level / 2
    assert flipped(differences) == pytest.approx(expected, abs=1e-12)


@given(ROWS, st.sampled_from([0.8, 0.95]))
def test_both_ways_of_computing_a_difference_agree(
    rows: list[tuple[str, bool, bool]], confidence: float
) -> None:
    """Value, limits, p and what a margin says, of groups of any size."""
    names = sorted({group for group, _, _ in rows})
    table = np.zeros((3, len(names)), dtype=int)
    for group, first, second in rows:
        at = names.index(group)
        table[:, at] += (first and not second, second and not first, 1)
    first, second, sizes = table
    theirs = clustered_bonett_price(first, second, sizes=sizes, confidence=confidence)
    pairs = marked(rows)
    for name, value in difference(pairs, confidence).items():
        assert getattr(theirs, name) == pytest.approx(value, abs=1e-10), name
    for one, two, is_swapped in ((first, second, False), (second, first, True)):
        test = noninferiority_clustered(one, two, sizes=sizes, margin=0.1)
        ours = is_not_worse(pairs, margin=0.1, alpha=0.05, is_swapped=is_swapped)
        assert ours == test.is_noninferior


def test_without_pairs_nothing_is_known() -> None:
    """Neither a value nor limits nor a test, of no group; the reason is given."""
    said = difference(marked([]), 0.95)
    assert (said["value"], said["low"], said["high"], said["p_value"]) == (None,) * 4
    assert (said["pairs"], said["groups"], said["reason"]) == (0, 0, "no pairs")
    assert detectable(marked([]), 0.95) is None


def test_one_group_of_several_pairs_has_a_value_alone() -> None:
    """How far other groups might lie from it is unknown, and said to be."""
    pairs = marked([("a", True, False), ("a", True, True)])
    said = difference(pairs, 0.95)
    assert (said["value"], said["low"], said["high"], said["p_value"]) == (0.5, None, None, None)
    assert (said["pairs"], said["groups"], said["test"]) == (2, 1, "")
    assert said["reason"].startswith("one group only")
    assert detectable(pairs, 0.95) is None


def test_adjusted_values_never_fall_and_leave_out_what_is_no_test() -> None:
    """Holm's steps by hand: 3 times 0.01, then 2 times 0.02, then the larger of both."""
    assert holm([0.02, None, 0.01, 0.03]) == pytest.approx([0.04, None, 0.03, 0.04])
