"""How far raters agree beyond chance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.stats.agreement import clustered_kappa, cohen_kappa, krippendorff_alpha
from guardmark.stats.distributions import two_sided_t

tables = st.integers(2, 4).flatmap(
    lambda c: st.lists(st.lists(st.integers(0, 20), min_size=c, max_size=c), min_size=c, max_size=c)
)
ratings = st.integers(1, 8).flatmap(
    lambda n: st.lists(
        st.lists(st.sampled_from(["safe", "unsafe", "odd", None]), min_size=n, max_size=n),
        min_size=1,
        max_size=4,
    )
)


@given(tables)
def test_exchanging_the_raters_changes_nothing(table: list[list[int]]) -> None:
    """Agreement has no first and no second."""
    one, other = cohen_kappa(table), cohen_kappa([list(row) for row in zip(*table, strict=True)])
    assert one.value == pytest.approx(other.value, abs=1e-12)
    assert one.standard_error == pytest.approx(other.standard_error, abs=1e-9)
    assert one.observed == pytest.approx(other.observed, abs=1e-12)


@given(tables)
def test_kappa_is_defined_or_says_why(table: list[list[int]]) -> None:
    """No figure is ever NaN, and limits stay in range."""
    found = cohen_kappa(table)
    for figure in (found.value, found.standard_error, found.low, found.high, found.pabak):
        assert figure is None or math.isfinite(figure)
    if found.value is None or found.low is None:
        assert found.reason
    else:
        assert found.high is not None
        assert -1 <= found.low <= found.value <= found.high <= 1


def test_full_agreement_has_no_interval() -> None:
    """The formula says width zero there; nobody should read that as certainty."""
    found = cohen_kappa([[5, 0], [0, 5]])
    assert (found.value, found.standard_error, found.low) == (1.0, 0.0, None)
    assert "no variance" in found.reason


def test_raters_who_only_said_one_thing_have_no_kappa_but_raw_agreement() -> None:
    """Chance alone would agree as well."""
    found = cohen_kappa([[0, 0], [0, 9]])
    assert (found.value, found.standard_error) == (None, None)
    assert (found.observed, found.pabak) == (1.0, 1.0)
    assert "chance agreement" in found.reason


def test_no_samples_are_undefined() -> None:
    """Nothing rated, nothing agreed."""
    found = cohen_kappa([[0, 0], [0, 0]])
    assert (found.value, found.observed, found.pabak, found.trials) == (None, None, None, 0)
    assert "no samples" in found.reason


def test_rare_unsafe_lowers_kappa_and_not_raw_agreement() -> None:
    """Why kappa never stands alone."""
    found = cohen_kappa([[0, 3], [3, 94]])
    assert found.value is not None
    assert found.value < 0
    assert found.observed == 0.94
    assert found.pabak == pytest.approx(0.88)


@pytest.mark.parametrize(
    "table",
    [[[1, 2]], [[1, 2], [3, 4], [5, 6]], [[1]], [1, 2], [[1, -1], [0, 0]], [[0.5, 1], [1, 1]]],
)
def test_what_is_no_table_is_refused(table: list[object]) -> None:
    """A table is square and holds counts."""
    with pytest.raises(ValueError, match="table must"):
        cohen_kappa(table)


def test_grouped_kappa_has_the_same_value_and_wider_limits() -> None:
    """Ten copies of each sample add no information."""
    first = ["safe", "unsafe", "safe", "unsafe", "safe", "safe", "unsafe", "safe"] * 3
    second = ["safe", "unsafe", "unsafe", "unsafe", "safe", "safe", "safe", "safe"] * 3
    single = clustered_kappa(first, second, groups=list(range(24)))
    copied = clustered_kappa(first * 10, second * 10, groups=[*range(24)] * 10)
    rowwise = cohen_kappa([[130, 30], [30, 50]])
    assert copied.value == pytest.approx(single.value)
    assert (copied.low, copied.high) == (single.low, single.high)
    assert copied.low is not None
    assert rowwise.low is not None
    assert copied.groups == 24
    assert copied.low < rowwise.low


def test_gaps_are_left_out_of_kappa() -> None:
    """Only what both rated counts."""
    found = clustered_kappa(
        ["a", "b", None, "c"], ["a", "b", "a", math.nan], groups=["w", "x", "y", "z"]
    )
    assert (found.trials, found.groups, found.value) == (2, 2, 1.0)
    assert found.low is None
    empty = clustered_kappa([], [], groups=[])
    assert (empty.value, empty.trials) == (None, 0)


def test_one_group_has_no_interval() -> None:
    """Between-group spread needs two groups."""
    found = clustered_kappa(list("abab"), list("abba"), groups=["x"] * 4)
    assert found.value == 0
    assert (found.low, "two groups" in found.reason) == (None, True)


def test_agreement_that_rests_on_one_group_has_no_interval() -> None:
    """One odd sample among many alike: without it nothing is left to agree on."""
    first, second = ["safe"] * 30, ["safe"] * 29 + ["unsafe"]
    found = clustered_kappa(first, second, groups=list(range(30)))
    assert (found.value, found.low) == (0.0, None)
    assert "without one of the groups" in found.reason


def test_unequal_raters_are_refused() -> None:
    """The message names both lengths."""
    with pytest.raises(ValueError, match="first 1, second 2"):
        clustered_kappa(["a"], ["a", "b"], groups=["x"])
    with pytest.raises(ValueError, match="rater 1 1, rater 2 2"):
        krippendorff_alpha([["a"], ["a", "b"]])


@given(ratings)
def test_alpha_is_defined_or_says_why(given_ratings: list[list[str | None]]) -> None:
    """Gaps, single raters and constant raters never give NaN."""
    found = krippendorff_alpha(given_ratings)
    if found.value is None:
        assert found.reason
    else:
        assert math.isfinite(found.value)
        assert found.value <= 1
    assert (found.low is None) == (found.high is None) == bool(found.reason)


@given(ratings)
def test_names_and_order_of_raters_do_not_matter(given_ratings: list[list[str | None]]) -> None:
    """Alpha sees categories, not their names, and raters, not their order."""
    renamed = [
        [None if r is None else {"safe": 7, "unsafe": 8, "odd": 9}[r] for r in row]
        for row in given_ratings
    ]
    one = krippendorff_alpha(given_ratings)
    other = krippendorff_alpha(renamed[::-1])
    assert one.value == pytest.approx(other.value, abs=1e-12)
    assert one.ratings == other.ratings


@pytest.mark.parametrize(
    ("given_ratings", "said"),
    [
        ([], "no sample"),
        ([["a", None], [None, "b"]], "no sample"),
        ([["a", "a"], ["a", None]], "the same"),
        ([["a", "a"], ["a", "a"]], "the same"),
    ],
)
def test_nothing_to_compare_is_undefined(given_ratings: list[list[str]], said: str) -> None:
    """Without pairs, or with one value throughout, there is no agreement beyond chance."""
    found = krippendorff_alpha(given_ratings)
    assert (found.value, found.low, found.high) == (None, None, None)
    assert said in found.reason


def test_groups_widen_alpha_limits() -> None:
    """Samples of one origin are left out together."""
    rows = [["a", "b", "a", "b", "a", "a"] * 4, ["a", "b", "b", "b", "a", "b"] * 4]
    alone = krippendorff_alpha(rows)
    grouped = krippendorff_alpha(rows, groups=[i % 3 for i in range(24)])
    assert alone.value == grouped.value
    assert (alone.groups, grouped.groups) == (24, 3)


def test_limits_of_grouped_kappa_lie_on_both_sides() -> None:
    """On the scale of Fisher's z, so nearer to the end that agreement cannot pass."""
    first = ["safe", "unsafe", "safe", "unsafe", "safe", "safe", "unsafe", "safe"] * 3
    second = ["safe", "unsafe", "unsafe", "unsafe", "safe", "safe", "safe", "safe"] * 3
    found = clustered_kappa(first, second, groups=list(range(24)))
    assert found.low is not None
    assert found.high is not None
    assert found.value is not None
    assert found.low < found.value < found.high < 1
    assert found.high - found.value < found.value - found.low
    middle = (math.atanh(found.low) + math.atanh(found.high)) / 2
    assert math.atanh(found.value) == pytest.approx(middle)


def test_the_jackknife_leaves_out_each_group_in_turn() -> None:
    """Against loops: the standard error is that of agreement without each group."""
    rng = np.random.default_rng(4)
    first, groups = rng.integers(0, 3, 90).tolist(), (np.arange(90) // 3).tolist()
    second = [each if rng.random() < 0.7 else 2 - each for each in first]
    left = []
    for group in range(30):
        rest = [i for i in range(90) if groups[i] != group]
        table = np.zeros((3, 3))
        for i in rest:
            table[first[i], second[i]] += 1
        left.append(cohen_kappa(table).value)
    error = math.sqrt(29 / 30 * np.sum((np.array(left) - np.mean(left)) ** 2))
    found = clustered_kappa(first, second, groups=groups)
    assert found.standard_error == pytest.approx(error)
    assert found.value is not None
    assert found.high is not None
    half = (math.atanh(found.high) - math.atanh(found.value)) * (1 - found.value**2)
    assert half / error == pytest.approx(two_sided_t(0.95, 29), rel=0.02)


def test_alpha_has_the_limits_of_kappa_where_both_say_the_same() -> None:
    """Two raters, many samples, no gaps: two figures of one idea."""
    rng = np.random.default_rng(6)
    first = rng.integers(0, 2, 600).tolist()
    second = [each if rng.random() < 0.85 else 1 - each for each in first]
    groups = (np.arange(600) // 4).tolist()
    kappa = clustered_kappa(first, second, groups=groups)
    alpha = krippendorff_alpha([first, second], groups=groups)
    assert alpha.value == pytest.approx(kappa.value, abs=0.01)
    assert (alpha.low, alpha.high) == pytest.approx((kappa.low, kappa.high), abs=0.01)
